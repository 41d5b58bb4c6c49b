"""What a journal keeps of the files that its records were made of:
all of them, whatever is pruned, at a cost that does not grow."""

import dataclasses
import hashlib
import itertools
import json
import os
import re

import pytest

from streamsink.clock import Clock, IdSource
from streamsink.errors import Corrupt
from streamsink.journal.repair import RepairJournal
from streamsink.protocol import recorded_files
from streamsink.protocol.admission import files
from streamsink.protocol.committable import AppState, Batch, Committable
from streamsink.protocol.positions import SourceFile, SourceRange
from streamsink.storage.file_io import FileIO
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import InjectedCrash
from streamsink.testing.memory import MemoryCalls

ROOT = "/lake/shop.db/orders"
FOLDER = f"{ROOT}/streamsink/streamsink"


class Journal:
    """A journal over calls that are counted, each of whose records is published at once.
    retain: how many records it retains."""

    def __init__(self, retain: int, calls: MemoryCalls | None = None):
        self.inner = calls or MemoryCalls()
        self.retain = retain
        self.start()

    def start(self) -> None:
        """Start its query anew."""
        self.calls = CrashingCalls(self.inner)
        self.log = RepairJournal(FileIO(self.calls, IdSource().new_id), ROOT, "streamsink", self.retain)
        self.log.claim("q", 0)

    def restart(self, retain: int | None = None) -> None:
        self.log.release()
        self.retain = retain or self.retain
        self.start()

    def record(
        self, first: int, last: int, per_batch: int = 1, tells: bool = True, since: int = 0, other: int = 0
    ) -> None:
        """Record a batch. other: what is added to the numbers of the files."""
        for number in range(first, last + 1):
            read = recorded_files.entries(source(number + other, per_batch)) if tells else None
            state = AppState("q", 0, 1, number, number, f"id-{number}", "t", (), files_from=since)
            record = Committable(state, "streamsink", None, (), {"manifest": None}, read)
            with self.log._io.flush_group() as group:
                self.log.stage_record(record, group)
                group.flush()
            self.log.create_record(record)
            self.log.mark_published(record)
            self.log.forget([number])

    def names(self, pattern: str) -> list[str]:
        return sorted(os.path.basename(path) for path in self.inner._names if re.fullmatch(f"{FOLDER}/{pattern}", path))

    def known(self, since: int = 0) -> recorded_files.KnownFiles | None:
        return self.log.known_files(since)


def source(number: int, per_batch: int = 1) -> tuple[SourceRange, ...]:
    """What batch ``number`` reads."""
    paths = tuple(SourceFile(f"file:///in/{number}-{part}.json", number) for part in range(per_batch))
    return (SourceRange({"logOffset": number - 1}, {"logOffset": number}, files=paths),)


def all_seen(known: recorded_files.KnownFiles, first: int, last: int, per_batch: int = 1) -> bool:
    return all(not files.sort_out(source(n, per_batch), known).new for n in range(first, last + 1))


@pytest.mark.parametrize("retain", [2, 7, 63, 64, 65, 100])
@pytest.mark.parametrize("last", [3, 64, 65, 130, 300])
def test_what_is_pruned_stays_known(retain, last):
    """Whatever is retained, each file is known, and none besides."""
    journal = Journal(retain)
    journal.record(1, last)
    assert len(journal.log.retained()) == min(retain, last)
    for _ in range(2):
        known = journal.known()
        assert all_seen(known, 1, last)
        assert len(files.sort_out(source(last + 1), known).new) == 1
        journal.restart()


def test_restarts_and_another_retention_leave_no_hole():
    """What one start has recorded is put together by another one, which reads the records."""
    journal, last = Journal(9), 0
    for retain in (9, 2, 30, 5, 9):
        journal.restart(retain)
        journal.record(last + 1, last + 17, per_batch=3)
        last += 17
    assert all_seen(journal.known(), 1, last, per_batch=3)


def test_the_cost_of_a_batch_does_not_grow_and_the_number_of_files_stays_small():
    """The calls of each 400 batches after the first 1,200 of 6,000 are compared, and what a later start has to read."""
    journal = Journal(2)
    spent = []
    for first in range(1, 6_000, 400):
        before = journal.calls.count
        journal.record(first, first + 399)
        spent.append(journal.calls.count - before)
    assert max(spent[3:]) <= 1.1 * min(spent[3:]), spent
    kept = journal.names(r"files-\d+-\d+-\d+")
    assert len(kept) < 3 * 64, len(kept)
    journal.restart()
    before = journal.calls.by_name
    assert all_seen(journal.known(), 1, 6_000)
    beyond = [sequence for sequence in journal.log.retained() if sequence > last_of(kept)]
    assert (journal.calls.by_name - before)["read"] == len(kept) + len(beyond)


def last_of(names: list[str]) -> int:
    return max(int(name.rpartition("-")[2]) for name in names)


def test_a_source_that_tells_no_files_pays_nothing():
    """For Kafka there are the same calls as with files, without those for the files: nothing is listed and nothing is
    read, and a start pays nothing either."""
    journal = Journal(2)
    journal.record(1, 2, tells=False)
    before = journal.calls.by_name
    journal.record(3, 200, tells=False)
    each = {name: count / 198 for name, count in (journal.calls.by_name - before).items()}
    assert each.get("read", 0) == 0 and journal.names("files-.*") == [] and journal.known() is None
    assert all(count == int(count) for count in each.values()), f"not the same for each batch: {each}"
    journal.restart()
    before = journal.calls.by_name
    journal.record(201, 300, tells=False)
    assert {n: c / 100 for n, c in (journal.calls.by_name - before).items()} == each


@pytest.mark.parametrize("hole", [range(1, 2), range(50, 51), range(90, 101)])
def test_one_record_that_tells_no_files_is_enough_not_to_know(hole):
    """It does not matter whether it is retained or pruned."""
    journal = Journal(5)
    for number in range(1, 101):
        journal.record(number, number, tells=number not in hole)
    for _ in range(2):
        assert journal.known() is None
        journal.restart()


def test_files_that_do_not_count_any_more_are_left_out():
    """Records before ``since`` are of another query, whatever was put together with what."""
    journal = Journal(3)
    journal.record(1, 50)
    journal.record(51, 400, since=51)
    journal.restart()
    known = journal.known(since=51)
    assert all_seen(known, 51, 400) and len(known) == 350
    assert len(journal.known()) == 400


def test_a_file_is_missing_and_nothing_is_known():
    journal = Journal(3)
    journal.record(1, 40)
    kept = journal.names("files-.*")
    journal.inner.unlink(f"{FOLDER}/{kept[len(kept) // 2]}")
    journal.restart()
    assert journal.known() is None
    journal.record(41, 60)
    assert journal.known() is None


def test_each_damage_is_refused_and_names_the_file_and_the_way_out():
    """The file is truncated anywhere, or one byte is altered."""
    journal = Journal(3)
    journal.record(1, 5)
    [name] = journal.names("files-.*")
    path = f"{FOLDER}/{name}"
    data = journal.inner.read(path)
    broken = [data[:length] for length in range(len(data))] + [
        data[:n] + bytes([data[n] ^ 1]) + data[n + 1 :] for n in range(len(data))
    ]
    for bad in broken:
        journal.inner._names[path].data = bad
        journal.restart()
        try:
            found = journal.known()
        except Corrupt as refused:
            assert path in str(refused) and "delete it" in str(refused) and refused.kind == "journal.files"
        else:
            assert all_seen(found, 1, 5), "only what the header says beside may change without a trace"
    journal.inner.unlink(path)
    journal.restart()
    assert journal.known() is None


def _put_together_and_not_deleted() -> Journal:
    """A journal with 199 records, in which the small files of the first 189 are still beside the large one."""
    journal = Journal(2)
    journal.record(1, 3 * 64 - 1)
    older = {name: journal.inner.read(f"{FOLDER}/{name}") for name in journal.names("files-0-.*")}
    journal.record(3 * 64, 199)
    assert (
        journal.names("files-1-.*") != [] and len(older) == 63 and not older.keys() & set(journal.names("files-0-.*"))
    )
    for name, data in older.items():
        journal.log._io.create_new(f"{FOLDER}/{name}", data)
    journal.restart()
    return journal


def test_small_files_that_were_not_deleted_do_not_come_to_light_when_records_are_given_up():
    """The large file is divided, and covers fewer of them."""
    journal = _put_together_and_not_deleted()
    _given_up(journal, 100)
    journal.record(101, 300, other=10_000)
    assert (
        len(journal.known()) == 300 and all_seen(journal.known(), 1, 100) and all_seen(journal.known(), 10_101, 10_300)
    )


def test_a_crash_between_putting_together_and_deleting_is_harmless():
    """Both are there: the larger file counts, and the next start goes on from it."""
    journal = _put_together_and_not_deleted()
    journal.record(200, 400)
    assert all_seen(journal.known(), 1, 400) and len(journal.known()) == 400


def _given_up(journal: Journal, base: int) -> None:
    """Give up the records behind ``base`` that are there, by a process of its own."""
    journal.restart()
    journal.log.give_up([number for number in journal.log.retained() if number > base], base=base)
    assert journal.log.last_sequence() <= base
    journal.restart()


@pytest.mark.in_turn("known files of records that are given up", 4)
@pytest.mark.parametrize(
    "retain, last, base",
    [
        (2, 3, 2),
        (2, 3, 1),
        (3, 40, 39),
        (3, 40, 37),
        (100, 101, 90),
        (100, 101, 64),
        (100, 101, 50),
        (100, 300, 201),
        (2, 3 * 64, 3 * 64 - 1),
        (2, 70 * 64, 70 * 64 - 2),
    ],
)
def test_files_of_records_that_are_given_up_are_not_known_and_those_of_the_next_ones_of_their_numbers_are(
    retain, last, base
):
    """Otherwise rows of the given-up ones would be left out as if they were here,
    and rows of the next ones would be written twice."""
    journal = Journal(retain)
    journal.record(1, last, per_batch=2)
    _given_up(journal, base)
    for end in (base, base + 1, base + 150):
        journal.record(max(journal.log.last_sequence(), base) + 1, end, other=10_000, per_batch=2)
        known = journal.known()
        assert (
            len(known) == 2 * end
            and all_seen(known, 1, base, 2)
            and all_seen(known, 10_000 + base + 1, 10_000 + end, 2)
        )


def test_records_that_are_given_up_with_pruned_ones_before_them_leave_no_wrong_knowledge():
    """The table went back further than the journal remembers."""
    journal = Journal(5)
    journal.record(1, 60)
    _given_up(journal, 20)
    journal.record(21, 40, other=10_000)
    journal.restart()
    known = journal.known()
    assert len(known) == 40 and all_seen(known, 1, 20) and all_seen(known, 10_021, 10_040)


def _as_earlier_code_wrote(journal: Journal, version: int) -> None:
    """Turn all of its files into those of earlier code:
    entries without the path alone; in version 1 without counts, too."""
    for name in journal.names("files-.*"):
        path, counts = f"{FOLDER}/{name}", 4 * (int(name.split("-")[3]) + 1 - int(name.split("-")[2]))
        body = journal.inner.read(path).partition(b"\n")[2]
        entries = b"".join(body[at : at + 20] for at in range(counts, len(body), 28))
        body = entries if version == 1 else body[:counts] + entries
        header = {
            "format": "streamsink-files",
            "version": version,
            "length": len(body),
            "sha256": hashlib.sha256(body).hexdigest(),
        }
        journal.inner._names[path].data = json.dumps(header).encode() + b"\n" + body
    journal.restart()


@pytest.mark.in_turn("known files of earlier code", 1)
@pytest.mark.parametrize("version", [1, 2])
def test_files_of_earlier_code_are_put_together_with_others(version):
    """Each file stays known. A path with another time is known where the entry says it."""
    journal = Journal(2)
    journal.record(1, 2 * 64)
    _as_earlier_code_wrote(journal, version)
    journal.record(2 * 64 + 1, 70 * 64)
    journal.restart()
    known = journal.known()
    assert len(known) == 70 * 64 and all_seen(known, 1, 70 * 64)
    retimed = [
        files.sort_out((dataclasses.replace(range_, files=(SourceFile(range_.files[0].path, 7),)),), known).asked
        for number in (2, 70 * 64)
        for range_ in source(number)
    ]
    assert [[paths for paths in asked.values() if paths] for asked in retimed] == [
        [],
        [(f"file:///in/{70 * 64}-0.json",)],
    ]


@pytest.mark.parametrize("retain, is_known", [(100, False), (2, True)])
def test_files_of_earlier_code_are_read_and_go_whole_when_some_of_their_records_are_given_up(retain, is_known):
    """Earlier code did not write down how many entries each record has: where one of the records is pruned nothing is
    known any more, and its user is asked."""
    journal = Journal(retain)
    journal.record(1, 101)
    _as_earlier_code_wrote(journal, 1)
    assert len(journal.known()) == 101 and all_seen(journal.known(), 1, 101)
    base = journal.log.retained()[0]
    _given_up(journal, base)
    journal.record(base + 1, base + 3, other=10_000)
    known = journal.known()
    assert (known is not None) == is_known and (known is None or len(known) == base + 3)


def test_a_death_while_records_are_given_up_leaves_no_wrong_knowledge():
    """It happens at each I/O call, even with a power failure: a file is known as long as its record is there. When the
    command is called again it ends the same."""
    for power, call in itertools.product((False, True), range(1, 40)):
        journal = Journal(3)
        journal.record(1, 9)
        journal.log.release()
        try:
            log = RepairJournal(FileIO(CrashingCalls(journal.inner, call), IdSource().new_id), ROOT, "streamsink", 3)
            log.read_listing()
            log.give_up([9, 8], base=7)
        except InjectedCrash:
            journal.inner.power_failure() if power else journal.inner.process_death()
        journal.start()
        there = max(journal.log.last_sequence(), 7)
        assert len(journal.known()) == there and all_seen(journal.known(), 1, there), (power, call)
        _given_up(journal, 7)
        journal.record(8, 12, other=10_000)
        assert (
            len(journal.known()) == 12 and all_seen(journal.known(), 1, 7) and all_seen(journal.known(), 10_008, 10_012)
        ), (power, call)
    assert there == 7


def test_a_batch_without_recorded_sources_tells_nothing():
    """This is a bounded job, a source of another kind, or several sources of which one is of another kind."""
    known = SourceRange(None, {"logOffset": 0}, files=(SourceFile("file:///in/a", 1),))
    other = SourceRange(None, {"t": {"0": 5}})
    assert (
        recorded_files.entries(()) is None
        and recorded_files.entries((known, other)) is None
        and len(recorded_files.entries((known, known))) == 56
    )
    assert not files.can_tell(Batch(0, "q", "r", (known,), stateful=True))


@pytest.mark.soak
def test_a_million_files(capsys):
    """What a start after an accident has to read and hold, and what a batch costs before it: printed, not judged."""
    clock = Clock()
    journal, begun = Journal(100), clock.monotonic_ms()
    journal.record(1, 10_000, per_batch=100)
    recorded = clock.monotonic_ms() - begun
    journal.restart()
    before, begun = journal.calls.by_name, clock.monotonic_ms()
    known = journal.known()
    loaded = clock.monotonic_ms() - begun
    reads = (journal.calls.by_name - before)["read"]
    assert len(known) == 1_000_000 and all_seen(known, 1, 10_000, per_batch=100) and reads < 300
    with capsys.disabled():
        print(
            f"\nRESULT 1,000,000 files: {recorded / 10_000:.2f} ms a batch of 100; a start reads {reads} files and "
            f"knows all in {loaded:.0f} ms"
        )
