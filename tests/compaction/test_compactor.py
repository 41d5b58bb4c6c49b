"""What a compaction does, what it loses, and what it refuses; what may die is tried in ``test_deaths.py``."""

import dataclasses
import io

import pyarrow.parquet as pq
import pytest

from streamsink.compaction import attempts
from streamsink.compaction.attempts import Attempt, AttemptGuard
from streamsink.compaction.compactor import Compactor
from streamsink.compaction.plan import pack_all
from streamsink.compaction.rewrite import rows_of
from streamsink.errors import Corrupt, Fenced
from streamsink.table.read.scan import data_file_path, read_arrow
from tests.advice.following import follows, told
from tests.compaction import beside
from tests.compaction.beside import BEFORE, BESIDE, compact, compact_beside, files_of, ids_of, left, opened, small_files
from tests.crash.world import expected


def test_small_files_become_one_in_each_partition_with_the_same_rows():
    world = small_files()
    before = opened(world).snapshots.latest()
    assert set(files_of(world).values()) == {3}
    totals = compact(world).totals
    table = opened(world)
    newest = table.snapshots.latest()
    assert world.ids() == expected(BEFORE) == ids_of(world, before.id) and set(files_of(world).values()) == {1}
    assert (newest.commit_kind, newest.id, newest.properties) == ("COMPACT", before.id + 1, before.properties)
    assert (newest.total_record_count, newest.delta_record_count) == (before.total_record_count, 0)
    assert newest.commit_user.startswith("streamsink-compact-")
    assert (totals.files_before, totals.files_after, totals.rows, totals.snapshots) == (9, 3, 14, [newest.id])
    for entry in table.manifests.entries_of(newest):
        file = entry.file
        assert (file.level, file.file_source, file.min_sequence_number) == (0, 1, 0)
        assert file.max_sequence_number == file.row_count - 1 and file.file_name.startswith("data-compact-")
    assert left(world) == []
    assert compact(world).totals.snapshots == [], "a second one finds nothing to do"


def test_rows_keep_the_order_of_the_table():
    """In each partition the rows of the first batch come first."""
    world = small_files(partition_by=())
    compact(world)
    table = opened(world)
    assert read_arrow(table).column("id").to_pylist() == expected(BEFORE)


def test_the_stream_goes_on_with_its_positions():
    world = small_files()
    compact(world)
    world.run(boundaries=BESIDE)
    assert world.ids() == expected(BESIDE) and left(world) == []


@follows("compact.taken-for-dead")
def test_who_is_taken_for_dead_commits_nothing():
    """Its new files are gone before its commit: it is fenced by the name of its next try. What is left to do then, the
    next call finds.
    """
    world = small_files()
    sleeper = Compactor(opened(world), world.driver.options)
    sleeper.settle()
    tasks = sleeper.plan(pack_all)
    real = sleeper._commit_once

    def slept(attempt, done, guard):
        beside.takes_it_for_dead(world)
        return real(attempt, done, guard)

    sleeper._commit_once = slept
    told("compact.taken-for-dead", lambda: sleeper.do(tasks)).says("Compact again")
    assert compact(world).totals.snapshots == []
    assert world.ids() == expected(BEFORE) and left(world) == []


def test_a_file_that_others_have_taken_out_while_it_was_to_be_read_is_no_damage():
    """The table was rolled back, with the files, between plan and rewriting: that is a lost race."""
    world = small_files()
    compactor = Compactor(opened(world), world.driver.options)
    compactor.settle()
    tasks = compactor.plan(pack_all)
    beside.rolled_back(world)
    compactor.do(tasks)
    assert (compactor.totals.conflicts, compactor.totals.snapshots) == (1, [])
    assert world.ids() == expected((9,)) and [name for name in left(world) if "compact-" in name] == []


def test_what_was_committed_and_not_forgotten_stays(monkeypatch):
    """The compaction died right after its commit: only its announcement goes."""
    world = small_files()
    with monkeypatch.context() as patch:
        patch.setattr(attempts, "forget", lambda *_: None)
        compact(world)
    assert len(list(attempts.announced(opened(world)))) == 1
    compact(world)
    assert world.ids() == expected(BEFORE) and left(world) == [] and set(files_of(world).values()) == {1}


def test_a_try_that_may_come_is_not_swept():
    """Its driver sleeps behind the note of its try: its files stay as long as the number is free."""
    world = small_files()
    table = opened(world)
    newest = table.snapshots.latest()
    attempt = Attempt.new(["part=a/bucket-0"], (newest.id, newest.uuid))
    attempts.announce(table, attempt)
    AttemptGuard(table, attempt).fence()
    assert attempts.sweep(table, abandoned_ms=0) == 0
    world.run(boundaries=BESIDE)
    table.snapshots.latest()
    assert attempts.sweep(table, abandoned_ms=0) == 1 and left(world) == []
    with pytest.raises(Fenced):
        AttemptGuard(table, attempt).fence()


def test_what_is_young_is_not_swept():
    """It may be of a compaction that runs in another process."""
    world = small_files()
    table = opened(world)
    attempts.announce(table, Attempt.new(["part=a/bucket-0"], (0, "")))
    compact(world, abandoned_ms=attempts.ABANDONED_MS)
    assert len(list(attempts.announced(table))) == 1
    assert attempts.sweep(table, abandoned_ms=0) == 1


def test_a_damaged_announcement_is_logged_and_nothing_goes(caplog):
    world = small_files()
    table = opened(world)
    attempt = Attempt.new(["part=a/bucket-0"], (0, ""))
    table.file_io.write(f"{table.root}/streamsink/compact-{attempt.id}", b"{")
    assert attempts.sweep(table, abandoned_ms=0) == 0 and "delete the file" in caplog.text
    assert compact(world).totals.files_after == 3


def test_of_a_group_only_the_tasks_are_lost_whose_files_others_have_removed():
    """The partition 'a' is overwritten between rewriting and commit: the two others are compacted all the same."""
    world = small_files()
    totals = compact_beside(world, lambda: beside.overwritten(world)).totals
    assert (totals.conflicts, totals.files_before, totals.files_after) == (1, 6, 2) and totals.bytes_lost > 0
    assert world.ids() == sorted([n for n in expected(BEFORE) if n % 3] + [1002]) and left(world) == []


@follows("data.unreadable")
def test_a_file_that_was_altered_is_an_error_and_nothing_changes():
    """When it is restored, the table is compacted."""
    world = small_files()
    table = opened(world)
    newest = table.snapshots.latest()
    entry = next(iter(table.manifests.entries_of(newest)))
    path = data_file_path(table, table.latest_schema(), entry)
    file = world.calls._names[path]
    whole = file.data
    for altered in (whole[:-20], whole[:4] + b"ZZZZZZ" + whole[10:]):
        file.data = altered  # cut off, and a page of it damaged: Arrow raises other errors for that
        advised = told("data.unreadable", lambda: compact(world))
        assert advised.says("Nothing was changed", "Restore it").find("^([^:]+): the data file") == path
        assert opened(world).snapshots.latest() == newest and left(world) == []
    table.file_io.delete(path)
    told("data.missing", lambda: compact(world)).says("drop_missing")
    assert left(world) == []
    table.file_io.write(path, whole)
    assert compact(world).totals.rows == 14 and world.ids() == expected(BEFORE)


def test_a_damaged_byte_never_becomes_a_row():
    """A page is checked against its sum, which its writer has left: else a flipped bit would be another number, and the
    new file would have it with statistics to fit.
    """
    world = small_files(partition_by=())
    table = opened(world)
    entry, schema = next(iter(table.manifests.entries_of(table.snapshots.latest()))), table.known_schema
    file = world.calls._names[data_file_path(table, schema, entry)]
    whole, rows = file.data, list(rows_of(table, entry, schema))
    pages = pq.ParquetFile(io.BytesIO(whole)).metadata.row_group(0)
    ends = [pages.column(n).data_page_offset + pages.column(n).total_compressed_size for n in range(pages.num_columns)]
    refused = 0
    for at in range(4, max(ends)):
        file.data = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        try:
            assert list(rows_of(table, entry, schema)) == rows, "a bit of a page's header, which says nothing of rows"
        except Corrupt as damaged:
            refused += damaged.kind in ("data.unreadable", "data.rows")
    assert refused > 0.6 * (max(ends) - 4)


@follows("compact.strict-mode")
def test_a_table_whose_strict_mode_would_stop_its_writers_is_not_compacted():
    """Each of them would end with a conflict behind a COMPACT snapshot. Without the option of the table it goes on."""
    option = "commit.strict-mode.last-safe-snapshot"
    world = small_files(table_options={option: "0"})
    advised = told("compact.strict-mode", lambda: compact(world)).says("Nothing was changed", "ALTER TABLE")
    assert advised.find("option '([^']*)'") == option and left(world) == []
    table = opened(world)
    plain = dataclasses.replace(table.known_schema, id=1, options={})
    table.schemas.add(plain)
    assert compact(world).totals.files_after == 3
    world.run(boundaries=BESIDE)
    assert world.ids() == expected(BESIDE)
