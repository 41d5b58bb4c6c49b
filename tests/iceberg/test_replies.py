"""Replies that are lost while others commit and let snapshots expire, and metadata that is gone."""

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException

from streamsink.sinks.iceberg.file_io import DurableFileIO
from tests.advice.following import follows, told
from tests.iceberg.lake import TABLE, Lake
from tests.iceberg.test_accidents import all_of, expire, snapshots
from tests.iceberg.test_tables import Query, table_of


@pytest.mark.parametrize("failed", [CommitFailedException("lost"), ConnectionError("lost")])
def test_a_commit_whose_snapshot_has_expired_is_found(failed):
    """It was made, its reply was lost, and the repeated request was refused. Until the driver looks, another writer
    has built on it, and it has expired: its manifests are those of the table."""
    lake = Lake()
    lake.run((3, 6, 9))

    def exchange(action):
        lake.tables.exchange = lambda action: action()
        action()
        lake.append(100, 101)
        expire(lake, *snapshots(lake)[:-1])
        raise failed

    lake.tables.exchange = exchange
    lake.run((3, 6, 9, 12))
    assert lake.ids() == [*all_of(12), 100]
    lake.run((3, 6, 9, 12, 15))
    assert lake.ids() == [*all_of(15), 100]


def test_a_refused_commit_leaves_no_manifest():
    """What its try has written is named by nobody."""
    lake = Lake()
    lake.run((3, 6))
    before = len(lake.io().files_below(f"{lake.table().location()}/metadata"))

    def exchange(action):
        lake.tables.exchange = lambda action: action()
        lake.append(100, 101)
        action()

    lake.tables.exchange = exchange
    lake.run((3, 6, 9))
    files = lake.io().files_below(f"{lake.table().location()}/metadata")
    manifests = [path for path in files if path.endswith(".avro") and not path.rpartition("/")[2].startswith("snap-")]
    table = lake.table()
    named = {each.manifest_path for snapshot in table.metadata.snapshots for each in snapshot.manifests(table.io)}
    assert set(manifests) == named and len(files) > before
    assert lake.ids() == [*all_of(9), 100]


@follows("iceberg.metadata-gone")
@pytest.mark.parametrize("what", ["metadata", "list"])
def test_metadata_that_is_gone_is_told(what):
    """Somebody cleans the table's folder by age. What is recorded waits."""
    lake = Lake()
    lake.run((3, 6))
    lake.record((3, 6, 9))
    table = lake.table()
    path = table.metadata_location if what == "metadata" else table.current_snapshot().manifest_list
    data = lake.io().read(path)
    lake.io().delete(path)
    said = told("iceberg.metadata-gone", lambda: lake.run((3, 6, 9, 12))).says("Nothing was committed")
    assert said.find(r"is gone: .*'(\S+)'\.") == path
    if what == "list":
        lake.io().write(path, data)  # restored
    else:
        lake.catalog().register_table(TABLE, table.metadata.metadata_log[-1].metadata_file)
        told("table.rolled-back", lambda: lake.run((3, 6, 9, 12)))  # as an older copy
        lake.io().write(path, data)
        lake.catalog().register_table(TABLE, path)
    lake.run((3, 6, 9, 12))
    assert lake.ids() == all_of(12)


class KeepingFileIO(DurableFileIO):
    """A store whose client refuses to delete metadata, with an error of its own that is no OSError."""

    asked = 0

    def delete(self, location) -> None:
        if str(location).endswith(".metadata.json"):
            KeepingFileIO.asked += 1
            raise LookupError("AccessDenied")
        super().delete(location)


@pytest.mark.parametrize("is_refused", [False, True])
def test_metadata_that_cannot_be_deleted_changes_nothing_of_a_commit(tmp_path, monkeypatch, caplog, is_refused):
    """The commit is done, or is certainly refused, when what nobody needs any more is deleted behind it."""
    monkeypatch.setattr(KeepingFileIO, "asked", 0)
    query = Query(tmp_path)
    query.properties["py-io-impl"] = f"{__name__}.KeepingFileIO"
    few = {"previous-versions-max": "1", "delete-after-commit.enabled": str(not is_refused)}
    few = {f"write.metadata.{name}": value for name, value in few.items()}
    batches = [table_of({"id": number}, columns={"id": pa.int64()}) for number in range(4)]
    query.run(batches[0], table_options=few)
    if is_refused:
        query.meanwhile = lambda: query.table().append(batches[3])
    made, starts = query.sink, []
    monkeypatch.setattr(query, "sink", lambda: starts.append(1) or made())
    with caplog.at_level("WARNING"):
        query.run(batches[1])
    assert len(starts) - 1 == 1 + is_refused  # one by the test itself, and by the other program
    assert KeepingFileIO.asked and "could not be deleted, and stays (LookupError: AccessDenied)" in caplog.text
    query.run(batches[2])
    assert sorted(row["id"] for row in query.found()) == [0, 1, 2, 3][: 4 if is_refused else 3]
