"""Manifests: pruning by partition, merging, and what damaged ones do."""

import pytest

from streamsink.clock import IdSource
from streamsink.format.binary_row import encode_row
from streamsink.format.data_file import DataFileMeta
from streamsink.format.manifest import FileKind, ManifestEntry, write_manifest
from streamsink.format.manifest_list import ManifestFileMeta, write_manifest_list
from streamsink.format.snapshot import Snapshot
from streamsink.format.types import parse_type
from streamsink.storage.file_io import FileIO
from streamsink.storage.memory import MemoryCalls
from streamsink.table.layout import Layout
from streamsink.table.manifests import Manifests
from streamsink.testing.crashing import CrashingCalls


class Bench:
    """Manifests of a table that has nothing else, in memory, with the calls counted."""

    def __init__(self, partition_types=("STRING", "INT")):
        self.types = [parse_type(name) for name in partition_types]
        self.calls = CrashingCalls(MemoryCalls())
        self.io = FileIO(self.calls, IdSource().new_id, flush=False)
        self.at = Layout("/table")
        self.io.make_dir(self.at.manifest_dir)
        self._numbers = iter(range(10**9))

    def manifests(self) -> Manifests:
        return Manifests(self.io, self.at, self.types)

    def entry(self, kind: FileKind, partition: tuple, name: str) -> ManifestEntry:
        file = DataFileMeta.for_append(file_name=name, file_size=10, row_count=1, schema_id=0)
        return ManifestEntry(kind, encode_row(partition, self.types), 0, -1, file)

    def manifest(self, entries: list[ManifestEntry]) -> ManifestFileMeta:
        name = f"manifest-{next(self._numbers)}"
        data = write_manifest(entries)
        self.io.write(self.at.manifest(name), data)
        return ManifestFileMeta.of(name, len(data), entries, self.types)

    def snapshot(self, metas: list[ManifestFileMeta]) -> Snapshot:
        names = [f"list-{next(self._numbers)}" for _ in range(2)]
        for name, part in zip(names, (metas, [])):
            self.io.write(self.at.manifest(name), write_manifest_list(part))
        return Snapshot(
            version=3, uuid="u", id=1, schema_id=0, base_manifest_list=names[0], delta_manifest_list=names[1],
            commit_user="u", commit_identifier=1, commit_kind="APPEND", time_millis=0, total_record_count=0,
            delta_record_count=0,
        )


VALUES = [None, "", "a", "b", "\U0001F600", "zz"]


def test_entries_of_some_partitions_are_those_of_a_full_read(rng):
    """Nulls, empty strings, DELETEs in other manifests: pruning by the list's stats and by entry loses and adds nothing."""
    bench = Bench()
    for _ in range(60):
        names = [f"f{i}" for i in range(12)]
        metas, pool = [], [(rng.choice(VALUES), rng.choice([None, -1, 0, 7])) for _ in range(5)]
        where = {name: rng.choice(pool) for name in names}
        for _ in range(rng.randrange(1, 6)):
            chosen = rng.sample(names, rng.randrange(1, 6))
            metas.append(bench.manifest([
                bench.entry(rng.choice([FileKind.ADD, FileKind.ADD, FileKind.DELETE]), where[n], n) for n in chosen
            ]))
        snapshot = bench.snapshot(metas)
        everything = list(bench.manifests().entries_of(snapshot))
        wanted = {encode_row(p, bench.types) for p in rng.sample(pool, 2)}
        found = list(bench.manifests().entries_of(snapshot, wanted))
        assert found == [entry for entry in everything if entry.partition in wanted]


@pytest.mark.parametrize("wanted, read", [((("b", 2),), 1), ((("b", 3),), 0), (((None, 1),), 0), ((("a", 1), ("c", 3)), 2)])
def test_manifests_without_the_wanted_partitions_are_not_opened(wanted, read):
    """One read for each manifest that may hold one of them, besides the two lists."""
    bench = Bench()
    metas = [bench.manifest([bench.entry(FileKind.ADD, (p, n), p)]) for p, n in (("a", 1), ("b", 2), ("c", 3))]
    snapshot = bench.snapshot(metas)
    before = bench.calls.by_name["read"]
    list(bench.manifests().entries_of(snapshot, {encode_row(p, bench.types) for p in wanted}))
    assert bench.calls.by_name["read"] - before == 2 + read
