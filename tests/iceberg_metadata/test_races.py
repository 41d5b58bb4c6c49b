"""Two writers make the metadata of one table at once: readers are led forward only, and nothing else is left."""

import os

import pytest

from streamsink import faults
from streamsink.format.iceberg_manifest import read_list, write_list
from streamsink.storage.file_io import local_file_io
from streamsink.table.care.expire_snapshots import Retention, expire
from streamsink.table.care.removal import Needed
from streamsink.table.iceberg_metadata.folder import Folder
from tests.iceberg_metadata.mirrored import Query, check, folder_of, hinted, metadata_of, named_files

STEPS = sorted(step for step in faults.STEPS if step.startswith("iceberg."))


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "shop.db" / "orders")


def _beside(step, action) -> None:
    """Run this once, when the step is reached."""
    seen = []

    def hook(reached):
        if reached == step and not seen:
            seen.append(reached)
            faults.arm(None)
            action()

    faults.arm(hook)


@pytest.mark.in_turn("races of Iceberg metadata", 3)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("batches", [0, 1, 3])
def test_another_writer_is_faster(path, step, batches, monkeypatch):
    """It has made the same metadata, or that of later snapshots, when the slow one goes on.

    The hint never goes back.
    """
    hints, move = [], Folder.move_hint
    monkeypatch.setattr(Folder, "move_hint", lambda self, number: hints.append(number) or move(self, number))
    query, other = Query(path, table_options={"snapshot.num-retained.min": "1"}), Query(path, application="other")
    query.write(2)
    _beside(step, lambda: other.write(batches) if batches else _follow(other))
    query.write()
    assert hinted(folder_of(path)) == query.table().snapshots.latest().id == 3 + batches
    assert hints == sorted(hints)
    check(path)
    query.write()
    check(path)
    left = set(os.listdir(folder_of(path))) - named_files(folder_of(path))
    assert len(left) <= (2 if batches else 0), left  # of snapshot 3 as the slow one has made it, if anything


def _follow(query) -> None:
    from streamsink.table.iceberg_metadata.mirror import Mirror

    Mirror(query.table(for_writing=True)).follow()


@pytest.mark.in_turn("expiry beside Iceberg metadata", 1)
@pytest.mark.parametrize("step", STEPS)
def test_snapshots_expire_beside_a_commit(path, step):
    """Whoever comes last, none is named that is gone."""
    query = Query(path, table_options={"snapshot.num-retained.min": "2"})
    query.write(5)
    _beside(step, lambda: expire(query.table(for_writing=True), Retention(2, 2, 0), Needed))
    query.write()
    query.write()
    check(path)


def test_a_base_with_other_rows_than_its_snapshot_is_no_base(path):
    """A list that lost a manifest is whole for Avro; only the count of rows tells."""
    query = Query(path)
    query.write(3)
    last = metadata_of(folder_of(path))["snapshots"][-1]["manifest-list"]
    manifests = read_list(local_file_io(False).read(last), last)
    with open(last, "wb") as file:
        file.write(write_list(manifests[1:], "snappy", legacy=False, snapshot_id=3, parent=2))
    query.write()
    check(path)
    assert [each["snapshot-id"] for each in metadata_of(folder_of(path))["snapshots"]] == [4]
