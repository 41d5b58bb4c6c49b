"""Conflicts: changes that contradict the table are refused, not retried, and nothing is published."""

import pytest

from streamsink.errors import Conflict, Misuse
from streamsink.format.binary_row import encode_row
from streamsink.format.index_manifest import DELETION_VECTORS_INDEX, HASH_INDEX, DeletionVectorRange, IndexManifestEntry
from streamsink.format.manifest import FileKind
from streamsink.format.schema import TableSchema
from streamsink.format.types import parse_ddl, parse_type
from streamsink.table.commit import conflicts
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.conflicts import key_order
from streamsink.table.commit.overwrite import Overwrite
from streamsink.table.commit.retry import RetryPolicy
from streamsink.testing.memory import MemoryCalls
from tests.table.compacting import CommitMessage, Increment, append_kind, collect, commit_compaction, commit_messages
from tests.table.entries import OPTIONS, add, commit, data_file, index_file, live, new_table, part


def _refused(kind, base, delta, commit_kind="COMPACT", order=None):
    with pytest.raises(Conflict) as caught:
        conflicts.check(base, delta, commit_kind, order)
    assert caught.value.kind == kind


def test_a_file_is_added_once_and_deleted_once():
    """It is a conflict when a file is added twice, deleted twice,
    deleted without having been added, or added and deleted by one commit."""
    a, b = add("a"), add("b")
    _refused("commit.already-in-the-map", [a], [a])
    _refused("commit.already-in-the-map", [], [a, a])
    _refused("commit.not-previously-added", [b], [a.deleting])
    _refused("commit.contradiction", [a], [a.deleting, a.deleting])
    _refused("commit.contradiction", [a], [a.deleting, a])
    assert conflicts.check([a], [a.deleting, b], "COMPACT") == [b]


def test_an_upgrade_is_no_conflict():
    """The level is part of a file's identity: Paimon moves a file up by DELETE at level 0 and ADD at level 5."""
    assert conflicts.check([add("a")], [add("a").deleting, add("a", level=5)], "COMPACT") == [add("a", level=5)]


def test_the_bucket_count_of_a_partition_only_changes_by_overwriting_it():
    old, new = add("a", part("x"), buckets=2), add("b", part("x"), buckets=4)
    _refused("commit.bucket-count", [old], [new], "APPEND")
    assert conflicts.check([old], [old.deleting, new], "OVERWRITE") == [new]
    assert len(conflicts.check([old], [add("b", part("y"), buckets=4)], "APPEND")) == 2


def _order(*types):
    ddl = ", ".join(f"k{i} {t} NOT NULL" for i, t in enumerate(types))
    keys = [f"k{i}" for i in range(len(types))]
    return key_order(TableSchema.create(parse_ddl(ddl + ", v INT"), (), {"bucket": "1"}, primary_keys=keys))


@pytest.mark.parametrize(
    "kind, low, middle, high",
    [
        ("INT", -5, 3, 100),
        ("BIGINT", -1, 0, 2**40),
        ("STRING", "a", "z", "\u00e9"),
        ("STRING", "\uffff", "\U00010000", "\U00010001"),
        ("DOUBLE", -0.0, 0.0, float("nan")),
        ("BYTES", b"\x01", b"\x7f", b"\x80"),
    ],
)
def test_sorted_files_of_a_bucket_do_not_overlap(kind, low, middle, high):
    """Key ranges at one level, in the key's own order, must not. Other buckets, other levels and level 0 are free."""

    def key(value):
        return encode_row((value,), [parse_type(kind)])

    order = _order(kind)
    first = add("a", level=1, keys=(key(low), key(middle)))
    _refused("commit.key-ranges", [first], [add("b", level=1, keys=(key(middle), key(high)))], order=order)
    _refused(
        "commit.key-ranges",
        [add("b", level=1, keys=(key(low), key(high)))],
        [add("a", level=1, keys=(key(middle), key(middle)))],
        order=order,
    )
    free = [
        add("b", level=1, keys=(key(high), key(high))),
        add("c", level=2, keys=(key(low), key(high))),
        add("d", level=0, keys=(key(low), key(high))),
        add("e", bucket=1, level=1, keys=(key(low), key(high))),
    ]
    assert len(conflicts.check([first], free, "COMPACT", order)) == 5


def _compaction(before, after, partition=None):
    files = Increment(deleted=tuple(data_file(b) for b in before), new=tuple(data_file(a) for a in after))
    return CommitMessage(partition or part("x"), 0, -1, compact=files)


def test_a_compaction_is_committed_under_a_user_of_its_own():
    """The snapshot is COMPACT with Paimon's identifier of maintenance;
    no application's state is lost, and the counts are right."""
    table = new_table(MemoryCalls())
    commit(
        table, Changes((add("a", part("x"), rows=1), add("b", part("x"), rows=1))), application="app", state={"n": 1}
    )
    commit_compaction(table, OPTIONS, [_compaction(["a", "b"], ["c"])])
    newest = table.snapshots.latest()
    assert (live(table), newest.commit_kind, newest.commit_identifier) == (["c"], "COMPACT", 2**63 - 1)
    assert newest.commit_user.startswith("streamsink-compact-")
    assert table.states.read(newest).by_application == {"app": {"n": 1}}
    assert (newest.total_record_count, newest.delta_record_count) == (1, -1)


def test_the_second_compaction_of_a_file_is_refused():
    """The first one removed the file, whatever was committed in between."""
    table = new_table(MemoryCalls())
    commit(table, Changes((add("a", part("x")), add("b", part("x")), add("z", part("y")))))
    commit_compaction(table, OPTIONS, [_compaction(["a", "b"], ["c"])])
    commit(table, Changes((add("d", part("x")),)))
    before = table.snapshots.latest()
    with pytest.raises(Conflict, match="not previously added") as caught:
        commit_compaction(table, OPTIONS, [_compaction(["b"], ["e"])])
    assert caught.value.kind == "commit.not-previously-added" and "snapshot 3" in str(caught.value)
    assert table.snapshots.latest() == before and live(table) == ["c", "d", "z"]


def test_what_writing_and_compacting_did_becomes_two_snapshots():
    """One message gives an APPEND and then a COMPACT with the same identifier.
    If files are deleted the first one is an OVERWRITE."""
    table = new_table(MemoryCalls())
    message = CommitMessage(
        part("x"),
        0,
        -1,
        Increment(new=(data_file("a"), data_file("b"))),
        Increment(deleted=(data_file("a"), data_file("b")), new=(data_file("c"),)),
    )
    assert [c.snapshot_id for c in commit_messages(table, OPTIONS, [message], "user", 7)] == [1, 2]
    found = [table.snapshots.load(n) for n in (1, 2)]
    assert [(s.commit_kind, s.commit_identifier, s.commit_user) for s in found] == [
        ("APPEND", 7, "user"),
        ("COMPACT", 7, "user"),
    ]
    gone = CommitMessage(part("x"), 0, -1, Increment(deleted=(data_file("c"),), new=(data_file("d"),)))
    commit_messages(table, OPTIONS, [gone], "user", 8)
    assert (table.snapshots.latest().commit_kind, live(table)) == ("OVERWRITE", ["d"])
    assert append_kind(collect([gone])[0]) == "OVERWRITE"


def _index(name, kind, partition, sign=FileKind.ADD, **more):
    return IndexManifestEntry(sign, part(partition), 0, index_file(name, kind, **more))


def test_index_files_are_carried_and_go_with_their_partition():
    """Every commit keeps the index manifest. An overwrite removes the entries of what it overwrites, and no others."""
    table = new_table(MemoryCalls())
    of_x = (
        _index("h1", HASH_INDEX, "x"),
        _index("dv1", DELETION_VECTORS_INDEX, "x", dv_ranges=(DeletionVectorRange("a", 1, 22, 1),)),
    )
    of_y = (_index("h2", HASH_INDEX, "y"),)
    commit(table, Changes((add("a", part("x")), add("b", part("y"))), of_x + of_y))
    first = table.snapshots.latest().index_manifest
    commit(table, Changes((add("c", part("x")),)))
    assert table.snapshots.latest().index_manifest == first
    commit(table, Changes((add("d", part("x")),)), kind="OVERWRITE", overwrite=Overwrite(dynamic=True))
    assert live(table) == ["b", "d"]
    assert table.manifests.index_of(table.snapshots.latest()) == list(of_y)


def test_a_deletion_vector_goes_with_its_file():
    """Otherwise rows that another commit deleted meanwhile would come back with the compacted file."""
    table = new_table(MemoryCalls())
    vector = _index("dv1", DELETION_VECTORS_INDEX, "x", dv_ranges=(DeletionVectorRange("a", 1, 22, 1),))
    commit(table, Changes((add("a", part("x")),), (vector,)))
    with pytest.raises(Conflict) as caught:
        commit_compaction(table, OPTIONS, [_compaction(["a"], ["b"])])
    assert caught.value.kind == "commit.deletion-vector-left"
    both = Increment(deleted=(data_file("a"),), new=(data_file("b"),), deleted_index=(vector.file,))
    commit_compaction(table, OPTIONS, [CommitMessage(part("x"), 0, -1, compact=both)])
    assert live(table) == ["b"] and table.manifests.index_of(table.snapshots.latest()) == []
    with pytest.raises(Conflict) as caught:
        commit(table, Changes((), (vector.deleting,)), kind="OVERWRITE")
    assert caught.value.kind == "commit.index-changed"


def test_strict_mode_gives_up_after_another_users_compaction_or_overwrite():
    """It counts since the safe snapshot and on the same partition.
    The user's own snapshots and other partitions are no reason."""
    table = new_table(MemoryCalls(), options={"commit.strict-mode.last-safe-snapshot": "1"})
    commit(table, Changes((add("a", part("x")), add("b", part("x")))), user="writer")
    commit_messages(table, OPTIONS, [_compaction(["a"], ["c"])], "compactor", 1)
    commit(table, Changes((add("d", part("y")),)), user="writer")
    with pytest.raises(Conflict, match="snapshot 2 is a COMPACT of another user, 'compactor'") as caught:
        commit(table, Changes((add("e", part("x")),)), user="writer")
    assert caught.value.kind == "commit.strict-mode"
    commit(table, Changes((add("e", part("x")),)), user="compactor")
    assert live(table) == ["b", "c", "d", "e"]


def test_duplicate_files_are_discarded_when_the_table_says_so():
    """The same files come again: no row is there twice, and the commit is recorded all the same."""
    table = new_table(MemoryCalls(), options={"commit.discard-duplicate-files": "true"})
    commit(table, Changes((add("a", part("x")), add("b", part("y")))))
    commit(table, Changes((add("a", part("x")), add("c", part("x")))))
    newest = table.snapshots.latest()
    assert (live(table), newest.id, newest.delta_record_count, newest.total_record_count) == (["a", "b", "c"], 2, 1, 3)


def test_the_tables_retry_options_count_where_the_sink_gives_none():
    """The order is the sink's option, the table's, the default."""
    options = OPTIONS.of("t", {"commit_max_retries": 5})
    given = {
        "commit.max-retries": "7",
        "commit.timeout": "1 min",
        "commit.min-retry-wait": "20ms",
        "commit.max-retry-wait": "2 s",
    }
    assert RetryPolicy.of("t", options, given) == RetryPolicy(5, 20, 2000, 60_000)
    assert RetryPolicy.of("t", OPTIONS.of("t", {}), {}) == RetryPolicy(10, 10, 10_000, 120_000)
    for option, text in (("commit.timeout", "soon"), ("commit.max-retries", "-1")):
        with pytest.raises(Misuse, match=option):
            RetryPolicy.of("t", OPTIONS.of("t", {}), {option: text})
