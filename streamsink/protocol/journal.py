"""The journal of pre-commits: the contract. ``journal/file_journal.py`` keeps one in files."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from streamsink.errors import Corrupt
from streamsink.protocol.committable import Committable, KnownRun
from streamsink.protocol.ids import Writer
from streamsink.protocol.recorded_files import KnownFiles


@dataclass(frozen=True)
class Mark:
    """Where a record was published.

    at_ms: a moment, in ms of our clock, at which that snapshot was in its place with this uuid. alone: the snapshot has
    the record's state alone, or may have: the rows are in an earlier snapshot, and need not vanish with this one.
    again: the mark is of an earlier publishing; since then the record was about to be published once more, and nobody
    knows whether it was.
    """

    snapshot_id: int
    uuid: str
    at_ms: int
    alone: bool = False
    again: bool = False

    def to_json(self) -> dict[str, Any]:
        more = ({"alone": True} if self.alone else {}) | ({"again": True} if self.again else {})
        return {"snapshot": self.snapshot_id, "uuid": self.uuid, "at_ms": self.at_ms} | more

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Mark":
        return cls(
            int(value["snapshot"]),
            str(value["uuid"]),
            int(value["at_ms"]),
            bool(value.get("alone")),
            bool(value.get("again")),
        )


@dataclass(frozen=True)
class MarkOfTables:
    """Where a record of several tables was published: by name, the mark of each table of which that is known."""

    tables: Mapping[str, Mark]

    def to_json(self) -> dict[str, Any]:
        return {"tables": {name: mark.to_json() for name, mark in self.tables.items()}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "MarkOfTables":
        return cls({name: Mark.from_json(mark) for name, mark in value["tables"].items()})


# What a committer says of a publishing; the protocol hands it back to the committer.
Where = Mark | MarkOfTables


def encode_mark(where: Where | None) -> bytes:
    """What is in a mark's file."""
    return json.dumps(where.to_json()).encode() if where is not None else b""


def decode_mark(data: bytes) -> Where | None:
    """None for a mark of an older version, or one that a crash has torn: the file's name alone counts then."""
    try:
        value = json.loads(data)
        return (MarkOfTables if "tables" in value else Mark).from_json(value)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):  # the last for a number without an end
        return None


def comes_again(where: Where | None) -> bool:
    """Whether a mark says that its record was about to be published once more."""
    return isinstance(where, Mark) and where.again


@dataclass(frozen=True)
class JournalIdentity:
    """Which journal this is.

    id: given to a journal once; each state repeats it. began: number of the last record that was published before the
    journal began. A journal that began at 0 knows every bounded run of its application; a later one has replaced a
    journal that was removed, or went on from an older copy. ended: what was recorded behind this number was given up; a
    journal without records knows that from here. behind: as in ``AppState``, of what was given up, when no record of it
    is left; else empty.
    """

    id: str
    began: int
    ended: int = 0
    behind: tuple[str, int] | tuple[()] = ()


class Group(Protocol):
    """Files and folders that become durable together, as ``storage/flush_group.py`` has them."""

    def flush(self) -> None:
        """All of it is durable when this returns. On OSError, none of it may be assumed durable."""

    def give_up(self) -> None:
        """Let go of what is not flushed. Idempotent; never raises."""


class Journal(ABC):
    """The journal of one application, in a place that outlives the driver and Spark's checkpoint. Driver only.

    Record numbers ("sequence") grow by one. A record is written once, whole, and never changed; a mark beside it says
    that it is published. The last ``retain`` published records are kept: they answer a replay when history has expired,
    and a rollback is mended from them. Pending records are always kept.

    One thread may record (``staging``, ``stage_record``, ``create_record``, ``discard``) while another publishes
    (``mark_published``, ``forget``).
    """

    @property
    @abstractmethod
    def place(self) -> str:
        """Where the journal lies, for messages."""

    @abstractmethod
    def claim(self, query: str, above: int, run: str = "") -> Writer:
        """Take the application over with an epoch greater than ``above``; every earlier writer is fenced.

        run: id of this start of the query, which has one claim of each application; empty where it is not known. Raises
        Fenced while another query holds it, Misuse when the same start does.
        """

    @abstractmethod
    def identify(self, published: int, new_id: Callable[[], str], anew: bool = False) -> JournalIdentity:
        """The journal's identity, after ``claim``. published: the last record that the destination has.

        A journal that does not know that record is a new one, or an older copy: it gets a new identity. Idempotent.
        anew: it gets one in any case.
        """

    @abstractmethod
    def identity(self) -> JournalIdentity:
        """As the last ``identify`` has found it."""

    @abstractmethod
    def check_owner(self, writer: Writer) -> None:
        """Raises Fenced when a newer writer has claimed the application. Called before each durable step."""

    def questions(self, writer: Writer) -> Any:
        """What ``check_owner`` will ask of the journal's store, as ``Fence`` hands it on; None if it does not tell.

        writer: one of epoch 0 for what ``claim`` asks first.
        """
        return None

    def questions_of_restore(self) -> Any:
        """Likewise, what is asked of the journal when a restart, after ``claim``, plans what to publish."""
        return None

    def check_before_record(self, writer: Writer, sequence: int) -> None:
        """As ``check_owner``, called when all that the record of this number will name is durable, before the record.

        A journal whose ``sweep`` never deletes what a record of a number that is free could name need not ask: the
        record's number is given once.
        """
        self.check_owner(writer)

    @abstractmethod
    def release(self, unused: bool = False) -> None:
        """Give the hold back; the claim's epoch stays.

        unused: no batch was given to this start, so another claim of its run may follow.
        """

    @abstractmethod
    def last_sequence(self) -> int:
        """Number of the newest record, 0 when there is none."""

    @abstractmethod
    def stage_record(self, committable: Committable, group: Group) -> None:
        """Write the record's bytes, as far as the store lets them be written ahead of their name.

        They are durable when ``group`` is flushed.
        """

    @abstractmethod
    def create_record(self, committable: Committable) -> None:
        """Give the staged record its name: the point of no return.

        From here on the checkpoint will be published, whatever happens. Called when ``group`` is flushed and
        ``check_owner`` has been asked after that. Raises Fenced when the number is taken by a successor, or its sweep
        took what was staged; Retryable when it is taken by an earlier writer, which was about to when this one took
        over: the restart publishes that; Retryable as well when the store was not asked, because it needs a lock that
        could not be taken. After any other error the record may be there, or may come yet: the next ``claim`` finds
        out.
        """

    @abstractmethod
    def load(self, sequence: int) -> Committable | None:
        """One record. Raises Corrupt, naming the file and the way out, when it is torn or altered."""

    def loading(self) -> AbstractContextManager[None]:
        """Entered while the records of earlier runs are needed: a journal in a distant store reads several at once, and
        each of them once.
        """
        return nullcontext()

    @abstractmethod
    def retained(self) -> list[int]:
        """Numbers of all records that are there, in order."""

    @abstractmethod
    def is_marked(self, sequence: int) -> bool:
        """Whether the record is marked published. An unmarked one may be published all the same (crash between)."""

    def mark_of(self, sequence: int) -> Where | None:
        """Where a marked record was published; None when its mark does not say."""
        return None

    @abstractmethod
    def mark_published(self, committable: Committable, where: Where | None = None) -> None:
        """Mark the record as published. Idempotent; a newer ``where`` replaces an older one.

        After a crash before the mark, the committer finds out by reading the destination. A bounded job's run is
        remembered for good, longer than its record.
        """

    def mark_all(self, records: Sequence[tuple[Committable, Where | None]], *, soon: bool = False) -> None:
        """As ``mark_published``, of several. After a crash any of them may be marked.

        soon: it may be done with what the store is asked next, and before the next such call without it returns.
        """
        for committable, where in records:
            self.mark_published(committable, where)

    @abstractmethod
    def known_run(self, run: str, table_id: str) -> KnownRun:
        """Whether a bounded job's run was marked published in this table, however long ago, and what it was made of."""

    def known_files(self, since: int) -> KnownFiles | None:
        """The source files of which the records from number ``since`` on were made, retained or not.

        None when not all records from the first one on say their files. Raises Corrupt.
        """
        return None

    @abstractmethod
    def forget(self, sequences: Sequence[int]) -> None:
        """Drop the staging of published records, of every epoch, and the oldest records beyond what is retained.

        Idempotent.
        """

    @abstractmethod
    def staging(self, sequence: int, writer: Writer) -> str:
        """Create and name the folder into which writers of this record flush files (absolute path).

        It is durable once the sink has made the names in it durable, which is before the record is saved. The sink
        begins the file that is called ``manifest-...`` after all others: without it the checkpoint has no files, or is
        not ready for its record.
        """

    def attempt(self, sequence: int, new_id: Callable[[], str]) -> str:
        """Id for the record of a checkpoint that begins: one that the journal has made known, or a new one."""
        return new_id()

    @abstractmethod
    def discard(self, staging: str) -> None:
        """Delete the staging folder of a checkpoint that is given up, and no other one of its number. Idempotent."""

    @abstractmethod
    def sweep(self, writer: Writer) -> list[str]:
        """Delete staged files of earlier writers that no record names or can come to name. Idempotent.

        Those are the files of a number that is taken, and files that were not ready for their record when this writer
        had claimed: their writer asks who owns the application once they are ready. Others wait until this writer's
        record takes the number (``forget``). Returns the names of what was deleted.
        """


def readable(store: Journal, sequence: int) -> Committable | None:
    """A record; None where it is lost or damaged, as one that is published may be."""
    try:
        return store.load(sequence)
    except Corrupt:
        return None
