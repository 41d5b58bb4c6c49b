"""A suite that any ``Journal`` must pass: what it says is true after any death, and of two writers one is told to stop.

Where the journal lies is its own affair. The suite gives it stores over one memory, counts their I/O calls, and dies at
each of them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streamsink.clock import IdSource
from streamsink.errors import Fenced, Retryable
from streamsink.protocol.committable import AppState, Committable
from streamsink.protocol.ids import END_OF_INPUT, Writer
from streamsink.protocol.journal import Journal, Mark
from streamsink.storage.calls import PosixLikeCalls
from streamsink.storage.file_io import FileIO
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.faults import InjectedCrash
from streamsink.testing.memory import MemoryCalls

# The number of published records that the journal is to keep.
RETAIN = 2
APPLICATION = "app"
_QUERY, _TABLE = "query", "table-1"


class BrokenJournal(AssertionError):
    """What the journal does wrong."""


def check_journal(make: Callable[[FileIO], Journal]) -> int:
    """Try every claim. Return the number of states of the store that were opened again.

    make: returns the journal of the application ``APPLICATION`` that keeps ``RETAIN`` published records, opened over
    this store.

    Raises ``BrokenJournal`` for the first thing that the journal does wrong.
    """
    for claim in (
        _records_stay,
        _of_two_writers_one_is_told,
        _a_number_is_taken_once,
        _what_is_published_is_pruned,
        _staging_goes_with_its_writer,
        _runs_are_remembered,
        _an_identity_stays_and_is_lost_with_its_journal,
    ):
        claim(_Place(make))
    return sum(_death(make, mode, power) for mode in (Mode.BEFORE, Mode.TORN) for power in (False, True))


class _Place:
    """A store in which the journal lies."""

    def __init__(self, make: Callable[[FileIO], Journal], calls: MemoryCalls | None = None):
        self._make = make
        self.calls = calls or MemoryCalls()

    def open(self, calls: PosixLikeCalls | None = None) -> tuple[Journal, FileIO]:
        io = FileIO(calls or self.calls, IdSource().new_id)
        return self._make(io), io

    def claimed(self, above: int = 0) -> tuple[Journal, FileIO, Writer]:
        """The journal claimed by another driver, because the one before has died."""
        self.calls.process_death()
        store, io = self.open()
        return store, io, store.claim(_QUERY, above)


def _records_stay(place: _Place) -> None:
    store, io, writer = place.claimed()
    made = [_record(store, io, writer, number) for number in (1, 2)]
    store.mark_published(made[0], Mark(7, "uuid", 5))
    for again in (store, place.claimed()[0]):
        _expect("the numbers of its records", again.retained(), [1, 2])
        _expect("its last number", again.last_sequence(), 2)
        _expect("its records", [again.load(number) for number in (1, 2, 3)], [*made, None])
        _expect("which are marked", [again.is_marked(number) for number in (1, 2)], [True, False])
        _expect("where it was published", again.mark_of(1), Mark(7, "uuid", 5))


def _of_two_writers_one_is_told(place: _Place) -> None:
    store, _, writer = place.claimed()
    _, _, later = place.claimed()
    if later.epoch <= writer.epoch:
        raise BrokenJournal(f"a later claim has epoch {later.epoch}, the earlier one {writer.epoch}")
    with _refused("the owner of an earlier claim may go on", Fenced):
        store.check_owner(writer)
    _, _, latest = place.claimed(above=later.epoch + 5)
    if latest.epoch <= later.epoch + 5:
        raise BrokenJournal(f"a claim above {later.epoch + 5} has epoch {latest.epoch}")


def _a_number_is_taken_once(place: _Place) -> None:
    store, io, writer = place.claimed()
    with io.flush_group() as group:
        late = _committable(writer, 1)
        store.stage_record(late, group)
        group.flush()
    other, other_io, later = place.claimed()
    taken = _record(other, other_io, later, 1)
    with _refused("a number that is taken is taken again", Fenced, Retryable):
        store.create_record(late)
    _expect("the record of that number", place.claimed()[0].load(1), taken)


def _what_is_published_is_pruned(place: _Place) -> None:
    store, io, writer = place.claimed()
    made = [_record(store, io, writer, number) for number in range(1, RETAIN + 4)]
    for record in made[:-1]:
        store.mark_published(record)
    store.forget([record.state.sequence for record in made[:-1]])
    for again in (store, place.claimed()[0]):
        _expect(
            "what it keeps: the newest published records, and the pending one",
            again.retained(),
            list(range(3, RETAIN + 4)),
        )
    pending, *_ = place.claimed()
    pending.forget([])
    _expect("what it keeps without a newer published record", pending.retained(), list(range(3, RETAIN + 4)))


def _staging_goes_with_its_writer(place: _Place) -> None:
    store, io, writer = place.claimed()
    named, given_up, unfinished = (store.staging(number, writer) for number in (1, 2, 3))
    for folder in (named, given_up, unfinished):
        io.write(f"{folder}/data", b"rows")
    _record(store, io, writer, 1)
    store.discard(given_up)
    _expect("the files of a checkpoint that is given up", io.names(given_up), [])
    again, _, later = place.claimed()
    again.sweep(later)
    _expect("files that no record can come to name, after a sweep", io.names(unfinished), [])
    _expect("files that a pending record names, after a sweep", io.names(named), ["data"])


def _runs_are_remembered(place: _Place) -> None:
    store, io, writer = place.claimed()
    record = _record(store, io, writer, 1, END_OF_INPUT)
    _expect("a run that is not published", store.known_run(_QUERY, _TABLE).is_published is True, False)
    store.mark_published(record)
    for number in range(2, RETAIN + 3):
        store.mark_published(_record(store, io, writer, number))
    store.forget(list(range(1, RETAIN + 3)))
    _expect("a run whose record is pruned", place.claimed()[0].known_run(_QUERY, _TABLE).is_published, True)


def _an_identity_stays_and_is_lost_with_its_journal(place: _Place) -> None:
    store, io, writer = place.claimed()
    known = store.identify(0, IdSource().new_id)
    _record(store, io, writer, 1)
    again, *_ = place.claimed()
    _expect("its identity, after another start", again.identify(1, IdSource().new_id).id, known.id)
    older, *_ = place.claimed()
    if older.identify(5, IdSource().new_id).id == known.id:
        raise BrokenJournal(
            "a journal that does not have the destination's last record keeps its identity: it is an older copy"
        )


def _death(make: Callable[[FileIO], Journal], mode: Mode, power: bool) -> int:
    """The driver dies at each call in turn of the lives of two records. Returns the number of calls."""
    counting = CrashingCalls(MemoryCalls())
    _lives(make, counting)
    for number in range(1, counting.count + 1):
        place = _Place(make)
        done: list[str] = []
        try:
            _lives(make, CrashingCalls(place.calls, number, mode), done)
        except InjectedCrash:
            place.calls.power_failure() if power else place.calls.process_death()
        where = f"after a {'power failure' if power else 'death'} ({mode.value}) at call {number}"
        store, _, writer = place.claimed()
        store.identify(0, IdSource().new_id)
        store.sweep(writer)
        there = store.retained()
        if there != list(range(1, len(there) + 1)):
            raise BrokenJournal(f"{where} its records are {there}")
        lost = [step for step in done if step.startswith("recorded") and int(step.split()[1]) not in there]
        if lost or any(store.load(sequence) is None for sequence in there):
            raise BrokenJournal(f"{where} a record is lost: {done}, and there are {there}")
        _record(store, place.open()[1], writer, len(there) + 1)
    return counting.count


def _lives(make: Callable[[FileIO], Journal], calls: CrashingCalls, done: list[str] | None = None) -> None:
    done = done if done is not None else []
    io = FileIO(calls, IdSource().new_id)
    store = make(io)
    writer = store.claim(_QUERY, 0)
    store.identify(0, IdSource().new_id)
    for number in (1, 2):
        io.write(f"{store.staging(number, writer)}/manifest-1", b"rows")
        record = _record(store, io, writer, number)
        done.append(f"recorded {number}")
        store.mark_published(record, Mark(number, "uuid", 1))
        store.forget([number])
    store.release()


def _committable(writer: Writer, sequence: int, checkpoint_id: int | None = None) -> Committable:
    state = AppState(
        query=_QUERY,
        generation=0,
        epoch=writer.epoch,
        checkpoint_id=sequence if checkpoint_id is None else checkpoint_id,
        sequence=sequence,
        record_id=IdSource().new_id(),
        table_id=_TABLE,
        sources=(),
    )
    return Committable(state, APPLICATION, None, (), {"kind": "APPEND", "manifest": None})


def _record(store: Journal, io: FileIO, writer: Writer, sequence: int, checkpoint_id: int | None = None) -> Committable:
    made = _committable(writer, sequence, checkpoint_id)
    with io.flush_group() as group:
        store.stage_record(made, group)
        group.flush()
    store.create_record(made)
    return made


def _expect(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise BrokenJournal(f"{what}: found {found}, expected {expected}")


@contextmanager
def _refused(what: str, *errors: type[Exception]) -> Iterator[None]:
    try:
        yield
    except errors:
        return
    raise BrokenJournal(what)
