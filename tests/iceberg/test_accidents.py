"""What operators, other programs and catalogs do to a table: each row is there once, or an error says why not."""

import contextlib
import json
import re
import threading

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException

from streamsink.errors import OutcomeUnknown, StreamsinkError
from streamsink.testing.conformance import ROOT
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import InjectedCrash
from tests.advice.following import follows, told
from tests.iceberg.lake import TABLE, Lake
from tests.iceberg.test_tables import Query, table_of

STATE = "streamsink.app.streamsink"


@pytest.fixture
def lake():
    """Three batches are published, of three rows each."""
    made = Lake()
    made.run((3, 6, 9))
    return made


def all_of(end: int) -> list[int]:
    return list(range(end))


def snapshots(lake) -> list[int]:
    """Ids of the retained snapshots, the oldest first."""
    return [each.snapshot_id for each in lake.table().metadata.snapshots]


def roll_back(lake, snapshot: int) -> None:
    lake.table().manage_snapshots().rollback_to_snapshot(snapshot_id=snapshot).commit()


def make_current(lake, snapshot: int) -> None:
    lake.table().manage_snapshots().set_current_snapshot(snapshot_id=snapshot).commit()


def expire(lake, *ids: int) -> None:
    lake.table().maintenance.expire_snapshots().by_ids(list(ids)).commit()


# -- rolled back, replaced, restored -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [1, 2])
def test_a_table_that_was_rolled_back_is_noticed(lake, kept):
    """Its properties stay as they were, and say more than the table has."""
    newest = snapshots(lake)[-1]
    roll_back(lake, snapshots(lake)[kept - 1])
    for ends in ((3, 6, 9), (3, 6, 9, 12)):
        said = told("table.rolled-back", lambda ends=ends: lake.run(ends))
        said.says("Nothing was written", "set_current_snapshot")
    assert lake.ids() == all_of(3 * kept)
    make_current(lake, newest)
    lake.run((3, 6, 9, 12))
    assert lake.ids() == all_of(12)


def test_what_a_rollback_has_taken_is_published_again():
    """With the option that was set before."""
    lake = Lake()
    lake.run((3, 6, 9), on_rollback="republish")
    roll_back(lake, snapshots(lake)[0])
    lake.append(100, 102)
    lake.run((3, 6, 9, 12), on_rollback="republish")
    assert lake.ids() == [*all_of(12), 100, 101]
    lake.run((3, 6, 9, 12, 13), on_rollback="republish")
    assert lake.ids() == [*all_of(13), 100, 101]


def test_a_rollback_under_a_query_is_noticed_by_its_commit(lake):
    """Between the look at the table and the commit."""
    lake.meanwhile = lambda: roll_back(lake, snapshots(lake)[1])
    told("table.rolled-back", lambda: lake.run((3, 6, 9, 12)))
    assert lake.ids() == all_of(6)


@pytest.mark.parametrize("expired", [(), (2,), (0, 2)], ids=str)
def test_a_rollback_is_noticed_behind_another_writer(lake, expired):
    """Also when the snapshots that were taken away have expired, and the first one of all."""
    ids = snapshots(lake)
    roll_back(lake, ids[1])
    lake.append(100, 102)
    if expired:
        expire(lake, *[ids[number] for number in expired])
    told("table.rolled-back", lambda: lake.run((3, 6, 9, 12)))
    assert lake.ids() == [*all_of(6), 100, 101]


def test_a_rollback_further_than_the_journal_remembers_is_an_error():
    lake = Lake()
    lake.run((3, 6, 9, 12, 15), journal_retain=2)
    roll_back(lake, snapshots(lake)[0])
    again = {"journal_retain": 2, "on_rollback": "republish"}
    said = told("table.rolled-back-too-far", lambda: lake.run((3, 6, 9, 12, 15, 18), **again))
    said.says("Nothing was written", "set_current_snapshot")
    assert lake.ids() == all_of(3)


def test_a_table_that_was_replaced_is_noticed(lake):
    """As CREATE OR REPLACE does: the same id and properties, and no past of what is current."""
    table = lake.table()
    metadata = json.loads(lake.io().read(table.metadata_location))
    metadata |= {"current-snapshot-id": -1, "refs": {}, "snapshot-log": []}
    replaced = table.metadata_location.replace("/0000", "/0009")
    lake.io().write(replaced, json.dumps(metadata).encode())
    lake.catalog().register_table(TABLE, replaced)
    told("table.rolled-back", lambda: lake.run((3, 6, 9, 12)))
    lake.append(100, 102)
    told("table.rolled-back-too-far", lambda: lake.run((3, 6, 9, 12)))
    assert lake.ids() == [100, 101]


def test_an_older_copy_of_the_metadata_is_noticed(lake):
    """The catalog was restored from a backup: property and rows go back together."""
    older = lake.table().metadata.metadata_log[-1].metadata_file
    lake.catalog().drop_table(TABLE)
    lake.catalog().register_table(TABLE, older)
    told("table.rolled-back", lambda: lake.run((3, 6, 9, 12)))
    assert lake.ids() == all_of(6)


@follows("table.recreated")
@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_table_that_was_recreated_is_noticed(lake, meanwhile):
    """Between two runs, or under the query."""

    def recreate():
        old = lake.table()
        lake.catalog().drop_table(TABLE)
        lake.catalog().create_table_transaction(TABLE, old.schema()).commit_transaction()

    if meanwhile:
        lake.meanwhile = recreate
    else:
        recreate()
    said = told("table.recreated", lambda: lake.run((3, 6, 9, 12)))
    said.says("Nothing was written", "remove the journal", "new checkpoint")
    assert lake.ids() == []
    lake.io().delete_tree(f"{ROOT}/streamsink")
    lake.begin_anew()
    lake.run((3, 6))
    assert lake.ids() == all_of(6)


@follows("table.gone")
def test_a_table_that_is_gone_is_not_created_anew_for_a_query_with_a_past(lake):
    """Its rows would be missing, in silence."""
    lake.catalog().drop_table(TABLE)
    told("table.gone", lambda: lake.run((3, 6, 9, 12))).says("start a new checkpoint")
    assert not lake.catalog().table_exists(TABLE)
    lake.io().delete_tree(f"{ROOT}/streamsink")
    lake.begin_anew()
    lake.run((3,))
    assert lake.ids() == all_of(3)


def test_a_table_that_goes_under_a_query_is_an_error(lake):
    lake.meanwhile = lambda: lake.catalog().drop_table(TABLE)
    told("table.gone", lambda: lake.run((3, 6, 9, 12)))


# -- what the table remembers ------------------------------------------------------------------------------------------


def test_identity_outlives_all_snapshots_and_the_journal(lake):
    """Others have compacted the table, and let everything older expire; the journal is lost as well."""
    for first in (100, 110):
        lake.append(first, first + 1)
    expire(lake, *snapshots(lake)[:-1])
    lake.run((3, 6, 9, 12))
    lake.append(120, 121)
    expire(lake, *snapshots(lake)[:-1])
    lake.io().delete_tree(f"{ROOT}/streamsink")
    lake.checkpoint.committed -= 1  # Spark has lost its last commit as well, so the batch comes again
    lake.run((3, 6, 9, 12, 15))
    assert lake.ids() == [*all_of(15), 100, 110, 120]


def test_a_tag_that_keeps_the_last_snapshot_is_no_rollback(lake):
    """What led from it to the current one has expired."""
    lake.table().manage_snapshots().create_tag(snapshots(lake)[-1], "kept").commit()
    for first in (100, 110):
        lake.append(first, first + 1)
    expire(lake, *snapshots(lake)[:2], snapshots(lake)[-2])
    lake.run((3, 6, 9, 12))
    assert lake.ids() == [*all_of(12), 100, 110]


@follows("iceberg.state-removed")
def test_a_property_that_was_removed_is_noticed_and_can_be_set_again(lake):
    """The journal is lost, too, so only the snapshots know that the query was here."""
    lake.io().delete_tree(f"{ROOT}/streamsink")
    with lake.table().transaction() as changing:
        changing.remove_properties(STATE)
    said = told("iceberg.state-removed", lambda: lake.run((3, 6, 9, 12)))
    assert lake.ids() == all_of(9)
    older = said.find(r"the newest of these is (\S+)\.")
    text = re.search(r'"streamsink\.app\.streamsink":("(?:[^"\\]|\\.)*")', lake.io().read(older).decode())
    with lake.table().transaction() as changing:
        changing.set_properties({STATE: json.loads(text[1])})
    lake.run((3, 6, 9, 12))
    assert lake.ids() == all_of(12)


@follows("destination.state-corrupt")
@pytest.mark.parametrize("text", ["{}", "no JSON", '{"state": {}, "snapshot": 1, "order": 1}', "zstd:1:x"])
def test_a_property_that_was_altered_is_noticed(lake, text):
    whole = lake.table().properties[STATE]
    for value in (text, whole):
        with lake.table().transaction() as changing:
            changing.set_properties({STATE: value})
        if value == text:
            said = told("destination.state-corrupt", lambda: lake.run((3, 6, 9, 12)))
            said.says("Set it to the value that it has in an earlier metadata file")
    lake.run((3, 6, 9, 12))
    assert lake.ids() == all_of(12)


def test_two_applications_know_nothing_of_each_other(lake):
    other = Lake()
    other.name, other.calls = lake.name, lake.calls
    other.checkpoint.query = "other"
    other.run((2, 4), application="second")
    lake.run((3, 6, 9, 12))
    other.run((2, 4, 5), application="second")
    assert lake.ids() == sorted([*all_of(12), *all_of(5)])


# -- commits -----------------------------------------------------------------------------------------------------------


def test_other_writers_are_first_and_no_row_of_anybody_is_lost_or_doubled(lake):
    """Before the first exchanges of each batch another program commits; what it cost is swept."""
    numbers = iter(range(100, 104))

    def exchange(action):
        lake.tables.exchange = lambda action: action()
        number = next(numbers, None)
        if number is not None:
            lake.append(number, number + 1)
            lake.tables.exchange = exchange
        action()

    lake.tables.exchange = exchange
    lake.run((3, 6, 9, 12))
    assert lake.ids() == [*all_of(12), 100, 101, 102, 103]


@pytest.mark.parametrize("failed", [ConnectionError("lost"), KeyError("lost"), CommitFailedException("lost")])
def test_a_commit_whose_reply_was_lost_is_found(lake, failed):
    """Even where the answer to a repeated request says that it was refused."""

    def exchange(action):
        lake.tables.exchange = lambda action: action()
        action()
        raise failed

    lake.tables.exchange = exchange
    lake.run((3, 6, 9, 12))
    assert lake.ids() == all_of(12) and lake.tables.commits == 6  # with the creation and the trial


@pytest.mark.parametrize("arrives", ["before the restart", "behind it", "never"])
def test_a_commit_that_arrives_late_is_not_doubled(lake, arrives):
    """It got no answer, and was not there when the driver looked."""
    late = []

    def exchange(action):
        lake.tables.exchange = lambda action: action()
        late.append(action)
        raise ConnectionError("no answer")

    lake.tables.exchange = exchange
    with pytest.raises(OutcomeUnknown) as unknown:
        lake.run((3, 6, 9, 12))
    assert unknown.value.kind == "publish.unknown"
    if arrives == "before the restart":
        late[0]()
    lake.run((3, 6, 9, 12))
    if arrives == "behind it":
        with pytest.raises(CommitFailedException):
            late[0]()
    lake.run((3, 6, 9, 12, 15))
    assert lake.ids() == all_of(15)


def test_a_record_is_published_by_the_next_start(lake):
    """The driver has died between its record and the commit."""
    lake.record((3, 6, 9, 12))
    assert lake.ids() == all_of(9)
    lake.run((3, 6, 9, 12))
    assert lake.ids() == all_of(12)


def test_each_record_is_one_snapshot_that_says_whose_it_is(lake):
    """Also that of a batch without rows: it changes what a rival relies on."""
    lake.run((3, 6, 9, 9))
    found = [each.summary.additional_properties for each in lake.table().metadata.snapshots]
    assert [each["streamsink.number"] for each in found] == ["1", "2", "3", "4"]
    assert {each["streamsink.application"] for each in found} == {"streamsink"} and lake.ids() == all_of(9)


# -- files -------------------------------------------------------------------------------------------------------------


def test_whatever_call_a_driver_dies_at_its_files_are_swept(lake):
    """Those of a batch that got no record; and no file that a snapshot names."""

    def another() -> Lake:
        made = Lake()
        made.run((3,))
        return made

    counting = another()
    calls = CrashingCalls(counting.calls)
    counting.run((3, 6), calls)
    for number in range(1, calls.count + 1, 9):
        world = another()
        with contextlib.suppress(InjectedCrash, StreamsinkError, OSError):
            world.run((3, 6), CrashingCalls(world.calls, number))
        world.calls.process_death()
        world.run((3, 6, 9))
        assert (world.left(), world.ids()) == ([], all_of(9)), number


@pytest.mark.parametrize("rolled_back", [False, True])
def test_a_commit_names_no_file_that_is_gone(rolled_back):
    """Orphan cleaning was given too short an age, or let go of what a rollback had left."""
    lake = Lake()
    lake.run((3,), on_rollback="republish")
    if rolled_back:
        lake.run((3, 6), on_rollback="republish")
        roll_back(lake, snapshots(lake)[0])
    else:
        lake.record((3, 6), on_rollback="republish")
    current = lake.table().inspect.files().column("file_path").to_pylist()
    [path] = set(lake.io().files_below(f"{ROOT}/shop/orders/data")) - set(current)
    data = lake.io().read(path)
    lake.io().delete(path)
    said = told("pending.files-gone", lambda: lake.run((3, 6), on_rollback="republish"))
    assert said.find(r"lake\.shop\.orders: (\S+) is gone") == path and lake.ids() == all_of(3)
    lake.io().write(path, data)
    lake.run((3, 6), on_rollback="republish")
    assert lake.ids() == all_of(6)


def test_an_older_copy_of_the_journal_takes_no_file_that_the_table_has(lake):
    """It was copied while batch 3 was written: it has the folder of that batch, and no record of it."""
    with contextlib.suppress(InjectedCrash):
        lake.record((3, 6, 9, 12))
    journal = f"{ROOT}/streamsink"
    copy = {path: lake.io().read(path) for path in lake.io().files_below(journal) if "record-4" not in path}
    copy = {path: data for path, data in copy.items() if "manifest-4" not in path}
    lake.run((3, 6, 9, 12))
    assert any("lake-" in path for path in copy)
    lake.io().delete_tree(journal)
    for path, data in copy.items():
        lake.io().make_dir(path.rpartition("/")[0])
        lake.io().write(path, data)
    lake.run((3, 6, 9, 12, 15))
    assert lake.ids() == all_of(15)


def test_another_program_commits_all_the_time(tmp_path):
    """On a real catalog, beside a query that publishes in its own thread; both lose many tries, and no row."""
    query = Query(tmp_path)
    columns = {"id": pa.int64()}
    query.run(table_of({"id": 0}, columns=columns))
    failed: list[BaseException] = []

    def append() -> None:
        try:
            for number in range(1_000, 1_008):
                query.table().append(table_of({"id": number}, columns=columns))
        except BaseException as error:  # seen below
            failed.append(error)

    other = threading.Thread(target=append)
    other.start()
    query.run(*[table_of({"id": number}, columns=columns) for number in range(1, 9)], publish="async")
    other.join()
    mine = [row["id"] for row in query.found() if row["id"] < 1_000]
    others = [row["id"] for row in query.found() if row["id"] >= 1_000]
    assert sorted(mine) == all_of(9) and len(others) == len(set(others)) and (len(others) == 8 or failed)
