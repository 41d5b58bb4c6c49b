"""Rollbacks of which snapshots that have expired since leave little to show."""

import pytest

from tests.advice.following import told
from tests.iceberg.lake import Lake
from tests.iceberg.test_accidents import all_of, expire, roll_back, snapshots
from tests.iceberg.test_copies import changed_metadata

AGAIN = {"on_rollback": "republish"}


@pytest.mark.parametrize("keeps_parents", [False, True])
def test_a_rollback_is_noticed_behind_the_one_commit_that_is_left(keeps_parents):
    """It was made right behind what was taken away, and not upon it: pyiceberg takes the parents off that have expired,
    and Iceberg's own library keeps their ids."""
    lake = Lake()
    lake.run((3, 6, 9))
    ids = snapshots(lake)
    roll_back(lake, ids[1])
    lake.append(100, 102)
    expire(lake, *ids[: 3 if keeps_parents else 2])
    if keeps_parents:
        changed_metadata(lake, lambda metadata: metadata["snapshots"][0].update({"parent-snapshot-id": ids[1]}))
    told("table.rolled-back-too-far", lambda: lake.run((3, 6, 9, 12))).says("Nothing was written")
    assert lake.ids() == [*all_of(6), 100, 101]


@pytest.mark.parametrize("keeps_parents", [False, True])
def test_a_commit_upon_a_snapshot_that_has_expired_is_no_sign_of_a_rollback(keeps_parents):
    """The ordinary course of things."""
    lake = Lake()
    lake.run((3, 6, 9))
    ids = snapshots(lake)
    lake.append(100, 102)
    expire(lake, *ids)
    if keeps_parents:
        changed_metadata(lake, lambda metadata: metadata["snapshots"][0].update({"parent-snapshot-id": ids[2]}))
    lake.run((3, 6, 9, 12))
    assert lake.ids() == [*all_of(12), 100, 101]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_record_is_published_again_although_snapshots_have_expired(is_known):
    """As they do everywhere in time. Those since the record was made show that it is not there. Where it is not known
    any more which ones these are, somebody may have picked it."""
    lake = Lake()
    lake.run((3, 6, 9), **AGAIN)
    lake.append(100, 101)
    lake.run((3, 6, 9, 12), **AGAIN)
    ids = snapshots(lake)
    roll_back(lake, ids[2])
    lake.append(101, 102)
    expire(lake, ids[0], *([] if is_known else [ids[3]]))
    found = AGAIN
    if not is_known:
        said = told("journal.undecidable", lambda: lake.run((3, 6, 9, 12, 15), **AGAIN)).says("Nothing was written")
        found = {**AGAIN, "accept_as_new": said.option("accept_as_new")}
    else:
        told("table.rolled-back", lambda: lake.run((3, 6, 9, 12, 15)))
    lake.run((3, 6, 9, 12, 15), **found)
    assert lake.ids() == [*all_of(15), 101]
