"""Manifests: pruning by partition, merging, and what damaged ones do."""

import math
from dataclasses import replace

import pytest

from streamsink.clock import IdSource
from streamsink.errors import Corrupt, Misuse
from streamsink.format.binary_row import encode_row
from streamsink.format.data_file import DataFileMeta
from streamsink.format.manifest import FileKind, ManifestEntry, write_manifest
from streamsink.format.manifest_list import ManifestFileMeta, write_manifest_list
from streamsink.format.simple_stats import EMPTY_STATS
from streamsink.format.snapshot import Snapshot
from streamsink.format.types import parse_type
from streamsink.storage.file_io import FileIO
from streamsink.table.layout import Layout
from streamsink.table.manifest_merge import MergeOptions, runs
from streamsink.table.manifests import Manifests
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.memory import MemoryCalls


class Bench:
    """The manifests of a table that has nothing else, in memory, with the calls counted."""

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
            version=3,
            uuid="u",
            id=1,
            schema_id=0,
            base_manifest_list=names[0],
            delta_manifest_list=names[1],
            commit_user="u",
            commit_identifier=1,
            commit_kind="APPEND",
            time_millis=0,
            total_record_count=0,
            delta_record_count=0,
        )


def test_live_files_are_adds_without_a_delete_anywhere():
    """A DELETE cancels an ADD even when the ADD is later;
    another level is another identity; what is added twice is there twice."""
    bench = Bench(())
    added, later, other = (bench.entry(FileKind.ADD, (), name) for name in ("1", "2", "3"))
    upgraded = replace(added, file=replace(added.file, level=5))
    deletes = [replace(entry, kind=FileKind.DELETE) for entry in (added, later)]
    parts = [[added, deletes[0], upgraded], [deletes[1]], [later, other]]
    assert list(bench.manifests().entries_of(bench.snapshot([bench.manifest(part) for part in parts]))) == [
        upgraded,
        other,
    ]
    twice = bench.snapshot([bench.manifest([added]), bench.manifest([added])])
    assert list(bench.manifests().entries_of(twice)) == [added, added]


VALUES = [None, "", "a", "b", "\U0001f600", "zz"]


def test_entries_of_some_partitions_are_those_of_a_full_read(rng):
    """With nulls, empty strings and DELETEs in other manifests,
    pruning by the list's stats and by entry loses and adds nothing."""
    bench = Bench()
    for _ in range(60):
        names = [f"f{i}" for i in range(12)]
        metas, pool = [], [(rng.choice(VALUES), rng.choice([None, -1, 0, 7])) for _ in range(5)]
        where = {name: rng.choice(pool) for name in names}
        for _ in range(rng.randrange(1, 6)):
            chosen = rng.sample(names, rng.randrange(1, 6))
            metas.append(
                bench.manifest(
                    [
                        bench.entry(rng.choice([FileKind.ADD, FileKind.ADD, FileKind.DELETE]), where[n], n)
                        for n in chosen
                    ]
                )
            )
        snapshot = bench.snapshot(metas)
        everything = list(bench.manifests().entries_of(snapshot))
        wanted = {encode_row(p, bench.types) for p in rng.sample(pool, 2)}
        found = list(bench.manifests().entries_of(snapshot, wanted))
        assert found == [entry for entry in everything if entry.partition in wanted]


@pytest.mark.parametrize(
    "wanted, read", [((("b", 2),), 1), ((("b", 3),), 0), (((None, 1),), 0), ((("a", 1), ("c", 3)), 2)]
)
def test_manifests_without_the_wanted_partitions_are_not_opened(wanted, read):
    """There is one read for each manifest that may hold one of them, besides the two lists."""
    bench = Bench()
    metas = [bench.manifest([bench.entry(FileKind.ADD, (p, n), p)]) for p, n in (("a", 1), ("b", 2), ("c", 3))]
    snapshot = bench.snapshot(metas)
    before = bench.calls.by_name["read"]
    list(bench.manifests().entries_of(snapshot, {encode_row(p, bench.types) for p in wanted}))
    assert bench.calls.by_name["read"] - before == 2 + read


# -- merging ---------------------------------------------------------------------------------------------------------


def names(entries) -> list[str]:
    return sorted(entry.file.file_name for entry in entries)


class History:
    """Random commits of a table, with what must be live after each.
    Every file is added once and deleted at most once."""

    def __init__(self, bench: Bench, rng):
        self.bench, self.rng = bench, rng
        self.live: dict[str, tuple] = {}
        self._added = 0
        arity = len(bench.types)
        self._pool = [(rng.choice(VALUES), rng.choice([None, 0, 1, 2]))[:arity] for _ in range(4)]

    def commit(self) -> ManifestFileMeta:
        rng, bench = self.rng, self.bench
        gone = [n for n in self.live if rng.random() < rng.choice([0, 0, 0.1, 0.6])]
        entries = [bench.entry(FileKind.DELETE, self.live.pop(name), name) for name in gone]
        for _ in range(rng.choice([1, 1, 2, 3, 40])):
            self._added += 1
            name, partition = f"data-{self._added}", rng.choice(self._pool)
            self.live[name] = partition
            entries.append(bench.entry(FileKind.ADD, partition, name))
        return bench.manifest(entries)


def test_merging_never_changes_what_is_live(rng):
    """Random ADDs and DELETEs are merged after each commit under random options.
    The live files are the oracle's, each once."""
    merges = 0
    for _ in range(8):
        bench = Bench(rng.choice([(), ("STRING",), ("STRING", "INT")]))
        history, metas = History(bench, rng), []
        options = {
            "manifest.target-file-size": rng.choice(["1", "4 kb", "6kb", "8 mb"]),
            "manifest.merge-min-count": rng.choice(["1", "2", "3", "7"]),
            "manifest.full-compaction-threshold-size": rng.choice(["1 b", "9 kb", "15000", "16 mb"]),
        }
        for number in range(20):
            before = [meta.file_name for meta in metas]
            metas = bench.manifests().merge(metas, options, f"try-{number}")
            merges += [meta.file_name for meta in metas] != before
            metas = metas + [history.commit()]
            found = names(bench.manifests().entries_of(bench.snapshot(metas)))
            assert found == sorted(history.live), options
            for meta in metas:
                assert bench.io.size(bench.at.manifest(meta.file_name)) == meta.file_size
                entries = bench.manifests().read(meta.file_name)
                assert ManifestFileMeta.of(meta.file_name, meta.file_size, entries, bench.types) == meta
    assert merges > 10


def test_minor_merging_cancels_pairs_and_keeps_the_other_deletes():
    """The big manifest before the run stays, and its file stays hidden.
    What the run itself adds and deletes is gone."""
    bench = Bench()
    big = bench.manifest([bench.entry(FileKind.ADD, ("a", 1), f"a{i}" * 20) for i in range(2000)])
    run = [
        bench.manifest([bench.entry(kind, ("a", 1), name)])
        for kind, name in (
            (FileKind.ADD, "x"),
            (FileKind.DELETE, "a7" * 20),
            (FileKind.ADD, "y"),
            (FileKind.DELETE, "x"),
        )
    ]
    assert big.file_size > sum(meta.file_size for meta in run)
    merged = bench.manifests().merge([big, *run], {"manifest.merge-min-count": "4"}, "try")
    assert merged[0] == big and len(merged) == 2 and merged[1].counts == (1, 1)
    assert [(e.kind, e.file.file_name) for e in bench.manifests().read(merged[1].file_name)] == [
        (FileKind.ADD, "y"),
        (FileKind.DELETE, "a7" * 20),
    ]
    assert bench.manifests().merge([big, *run], {"manifest.merge-min-count": "5"}, "try2") == [big, *run]


def test_the_cost_of_minor_merging_does_not_grow_with_the_table():
    """By sizes alone, over 20,000 commits: there are few manifests at any time, the bytes written per commit stay what
    they were, and each entry is written again a logarithmic number of times, although a manifest of one is as large as
    the head of one of many."""
    options, head, entry = MergeOptions.of({}), 3_300, 100
    metas, written, again, most = [], [], 0, 0

    def meta(files: int) -> ManifestFileMeta:
        return ManifestFileMeta(f"m-{files}", head + entry * files, files, 0, EMPTY_STATS, 0)

    for _ in range(20_000):
        merged = [run if len(run) == 1 else [meta(sum(m.num_added_files for m in run))] for run in runs(metas, options)]
        written.append(sum(run[0].file_size for run, old in zip(merged, runs(metas, options)) if len(old) > 1))
        again += sum(run[0].num_added_files for run, old in zip(merged, runs(metas, options)) if len(old) > 1)
        metas = [m for run in merged for m in run] + [meta(1)]
        most = max(most, len(metas))
    assert sum(m.num_added_files for m in metas) == 20_000
    assert again <= 20_000 * math.log2(20_000 / options.min_count)
    assert most <= 30 + 12
    early, late = sum(written[100:1100]) / 1000, sum(written[19_000:]) / 1000
    assert 0 < late <= 2 * early and late < 2 * head


def full_options(target: int) -> dict[str, str]:
    return {"manifest.target-file-size": str(target), "manifest.full-compaction-threshold-size": "1"}


def test_full_merging_leaves_no_delete_and_keeps_manifests_out_of_reach():
    """Big manifests of partitions without a DELETE keep their very file. One that holds a deleted file is rewritten."""
    bench = Bench()
    big = [bench.manifest([bench.entry(FileKind.ADD, (p, 1), f"{p}{i}") for i in range(300)]) for p in "abc"]
    small = [
        bench.manifest([bench.entry(FileKind.DELETE, ("b", 1), "b7"), bench.entry(FileKind.ADD, ("d", 1), "d0")]),
        bench.manifest([bench.entry(FileKind.DELETE, ("d", 1), "d0")]),
    ]
    target = min(meta.file_size for meta in big)
    assert max(meta.file_size for meta in small) < target
    merged = bench.manifests().merge(big + small, full_options(target), "try")
    assert merged[:2] == [big[0], big[2]]
    assert sum(meta.num_deleted_files for meta in merged) == 0
    assert names(e for meta in merged[2:] for e in bench.manifests().read(meta.file_name)) == sorted(
        f"b{i}" for i in range(300) if i != 7
    )


def test_a_big_manifest_that_only_might_hold_a_deleted_file_is_kept():
    """Its partitions include the deleted file's, but the file is not in it."""
    bench = Bench()
    wide = bench.manifest([bench.entry(FileKind.ADD, (p, 1), f"{p}{i}") for p in "ac" for i in range(300)])
    add = bench.manifest([bench.entry(FileKind.ADD, ("b", 1), "b0"), bench.entry(FileKind.ADD, ("b", 1), "b1")])
    delete = bench.manifest([bench.entry(FileKind.DELETE, ("b", 1), "b0")])
    merged = bench.manifests().merge([add, wide, delete], full_options(wide.file_size), "try")
    assert merged[0] == wide and len(merged) == 2
    assert names(bench.manifests().read(merged[1].file_name)) == ["b1"]


def test_full_merging_waits_for_the_threshold_and_needs_more_than_one_manifest():
    """One byte below the threshold nothing happens. A single small manifest is never rewritten."""
    bench = Bench()
    metas = [bench.manifest([bench.entry(FileKind.ADD, ("a", i), f"a{i}")]) for i in range(4)]
    total = sum(meta.file_size for meta in metas)
    options = {"manifest.full-compaction-threshold-size": str(total + 1)}
    assert bench.manifests().merge(metas, options, "try") == metas
    assert len(bench.manifests().merge(metas, {"manifest.full-compaction-threshold-size": str(total)}, "try")) == 1
    assert bench.manifests().merge(metas[:1], {"manifest.full-compaction-threshold-size": "1"}, "try2") == metas[:1]


def test_rewritten_manifests_roll_at_the_target_size():
    """Each of them except the last reaches the target and none is much larger,
    so none is small enough to be rewritten next time."""
    bench = Bench()
    metas = [
        bench.manifest([bench.entry(FileKind.ADD, ("a", i), f"{i}-{j}" * 9) for j in range(400)]) for i in range(20)
    ]
    target = 20_000
    merged = bench.manifests().merge(metas, full_options(target), "try")
    assert len(merged) > 2
    assert all(target <= meta.file_size < 2 * target for meta in merged[:-1]) and merged[-1].file_size < 2 * target
    again = bench.manifests().merge(merged, full_options(target), "try2")
    assert again == merged
    assert sum(meta.num_added_files for meta in merged) == 8000


@pytest.mark.parametrize(
    "option", ["manifest.target-file-size", "manifest.merge-min-count", "manifest.full-compaction-threshold-size"]
)
@pytest.mark.parametrize("value", ["", "0", "-1", "many", "3 qb", "1.5 mb"])
def test_a_bad_option_is_refused_by_name(option, value):
    """The error is not a ValueError from deep inside a commit."""
    bench = Bench()
    with pytest.raises(Misuse, match=option) as caught:
        bench.manifests().merge([], {option: value}, "try")
    assert caught.value.kind == "table.bad-option"


@pytest.mark.parametrize("damage", ["gone", "torn", "cut between blocks", "another", "hidden delete"])
@pytest.mark.parametrize("use", ["merge", "scan"])
def test_a_damaged_manifest_is_refused_by_name(damage, use):
    """It is missing, torn, cut short where Avro does not notice, or not what its list says: nothing is built on it."""
    bench = Bench()
    metas = [bench.manifest([bench.entry(FileKind.ADD, ("a", 1), f"a{m}-{i}") for i in range(800)]) for m in range(3)]
    path = bench.at.manifest(metas[1].file_name)
    data = bench.io.read(path)
    bench.io.delete(path)
    if damage == "torn":
        bench.io.write(path, data[:-200])
    elif damage == "cut between blocks":
        blocks = data.split(data[-16:])
        assert len(blocks) > 3
        bench.io.write(path, data[-16:].join(blocks[:-2]) + data[-16:])
    elif damage == "another":
        bench.io.write(
            path, bench.io.read(bench.at.manifest(bench.manifest([bench.entry(FileKind.ADD, ("a", 1), "x")]).file_name))
        )
    elif damage == "hidden delete":
        entries = [bench.entry(FileKind.ADD, ("a", 1), f"b{i}") for i in range(799)]
        bench.io.write(path, write_manifest([*entries, bench.entry(FileKind.DELETE, ("a", 1), "a0-1")]))
    with pytest.raises(Corrupt, match=metas[1].file_name):
        if use == "merge":
            bench.manifests().merge(metas, full_options(8_000_000), "try")
        else:
            list(bench.manifests().entries_of(bench.snapshot(metas)))
