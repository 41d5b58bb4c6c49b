"""What another writer, or a tool,
has put into the table and no reader can read is found by whoever builds on it or reads it."""

import dataclasses
import io

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsink.clock import IdSource
from streamsink.commands.verify import verify
from streamsink.errors import Corrupt
from streamsink.format import manifest
from streamsink.storage.file_io import FileIO
from streamsink.table import manifests
from streamsink.table.table import open_table
from tests.crash.test_names import _records
from tests.crash.world import expected, memory_world
from tests.protocol.query import Query
from tests.table.foreign import Prepared

NO_MERGE = {"table_options": {"manifest.merge-min-count": "1000"}}
ENDS = (2, 4, 6, 8)


def _newer_version(records):
    return [{**found, "_VERSION": 3} for found in records]


def _one_more(records):
    return [*records, records[-1]]


def _altered(world, change):
    """Another writer commits a manifest that nobody here can read; its size is what its list says."""
    prepared = Prepared(world)
    table = open_table(FileIO(world.calls, IdSource().new_id), world.driver.root, for_writing=False)
    [meta] = table.manifests.delta_of(prepared.snapshot)
    file = world.calls._names[table.layout.manifest(meta.file_name)]
    reader = fastavro.reader(io.BytesIO(file.data))
    out = io.BytesIO()
    fastavro.writer(out, reader.writer_schema, change(list(reader)), codec="zstandard")
    file.data = out.getvalue()
    listed = world.calls._names[table.layout.manifest(prepared.snapshot.delta_manifest_list)]
    lists = fastavro.reader(io.BytesIO(listed.data))
    found = [{**record, "_FILE_SIZE": len(file.data)} for record in lists]
    out = io.BytesIO()
    fastavro.writer(out, lists.writer_schema, found, codec="zstandard")
    listed.data = out.getvalue()
    prepared.snapshot = dataclasses.replace(prepared.snapshot, delta_manifest_list_size=len(listed.data))
    prepared.rename()
    return table.layout.manifest(meta.file_name)


@pytest.mark.parametrize("change, kind", [(_newer_version, "manifest.version"), (_one_more, "manifest.corrupt")])
def test_a_start_does_not_build_on_entries_that_nobody_can_read(change, kind):
    """Another writer's newest commit is read before anything is written."""
    world = memory_world(**NO_MERGE)
    world.run(boundaries=ENDS[:2])
    path = _altered(world, change)
    before = _records(world)
    with pytest.raises(Corrupt) as refused:
        world.run(boundaries=ENDS)
    assert refused.value.kind == kind and path in str(refused.value) and _records(world) == before


@pytest.mark.parametrize("change, kind", [(_newer_version, "manifest.version"), (_one_more, "manifest.corrupt")])
@pytest.mark.parametrize("settings", [{}, {"publish_every_batches": 2}], ids=["sync", "grouped"])
def test_a_running_query_does_not_build_on_them_either(change, kind, settings, monkeypatch):
    """The batch after that commit is refused, even when a sound commit has come on top of it."""
    world = memory_world(**NO_MERGE, **settings)
    query = Query(world)
    query.batch(1)
    query.batch(2)
    path = _altered(world, change)
    with monkeypatch.context() as patch:  # The writer of the sound commit does not look.
        patch.setattr(manifests, "check_blocks", lambda *_: None)
        patch.setattr(manifest, "check_version", lambda *_: None)
        Prepared(world, 1).rename()
    with pytest.raises(Corrupt) as refused:
        query.batch(3)
    assert refused.value.kind == kind and path in str(refused.value)


def test_a_batch_reads_no_manifest_of_its_own(monkeypatch):
    """Only what another writer has added is read, and once."""
    world = memory_world(**NO_MERGE)
    query = Query(world)
    query.batch(1)
    Prepared(world).rename()
    read = []
    whole = FileIO.read

    def counted(self, path):
        read.append(path)
        return whole(self, path)

    monkeypatch.setattr(FileIO, "read", counted)
    query.batch(2)
    of_the_first = sum("/manifest-" in path and "-list-" not in path for path in read)
    query.batch(3)
    query.batch(4)
    assert of_the_first == sum("/manifest-" in path and "-list-" not in path for path in read) == 1


def _without(world, column):
    """Replace a data file of the table by one that lacks a column of its schema."""
    path = min(p for p in world.calls._names if "/part=" in p and p.endswith(".parquet"))
    file = world.calls._names[path]
    sink = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(file.data)).drop([column]), sink)
    file.data, whole = sink.getvalue().to_pybytes(), file.data
    return path, whole


def test_a_column_that_a_file_lacks_is_no_null():
    """The file's schema has the column, so its rows had values there. They have none of a column that came later."""
    world = memory_world()
    world.run(boundaries=ENDS)
    path, whole = _without(world, "id")
    with pytest.raises(Corrupt) as refused:
        world.ids()
    assert refused.value.kind == "data.columns" and path in str(refused.value) and "'id'" in str(refused.value)
    world.calls._names[path].data = whole
    assert world.ids() == expected(ENDS)


def test_verify_looks_into_data_files_when_it_is_asked_to():
    """Each file's own footer has its rows and columns."""
    world = memory_world()
    world.run(boundaries=ENDS)
    table = FileIO(world.calls, IdSource().new_id)
    assert verify(table, world.driver.root, contents=True).ok
    path, _ = _without(world, "id")
    found = verify(table, world.driver.root, contents=True).findings
    assert [(f.severity, f.kind) for f in found if f.kind != "file.size"] == [("damage", "data.columns")]
    assert path in next(f.message for f in found if f.kind == "data.columns")
