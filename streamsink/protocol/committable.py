"""What a pre-commit hands to the committer, and how it is recorded: all a restart needs, nothing to compute again."""

import base64
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from streamsink.errors import Misuse
from streamsink.protocol.file_entries import lengthened
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.positions import SourceRange
from streamsink.protocol.recorded import Recorded
from streamsink.protocol.same_query import QueryComparison, QueryFingerprint

# Key in the payload of a record of one table: the part of its rows that did not fit, for the dead-letter table.
DEAD_LETTERS = "letters"
# Key in the payload of the first record under a new name: the id of the record under the name before from which it goes
# on.
LED_ID = "led_id"
# Key in the payload of a record that one destination of a fan-out was given: which fan-out, and how that names it.
OF_FAN_OUT = "fan_out"


def _not_told() -> None:
    """The default of ``Batch.before``: the checkpoint does not tell the batch before."""


@dataclass(frozen=True)
class Batch:
    """One micro-batch as Spark describes it, before anything is written; or the single batch of a bounded run.

    query: id of the Spark checkpoint. run: id of this start of the query.
    watermark_ms: milliseconds since the epoch, or None.
    planned_ms, before_ms: when Spark planned this batch, and the one before it in its checkpoint, in milliseconds since
    the epoch; 0 where the checkpoint does not say it. A replay has the time of its first run.
    fingerprint: what the query is. stateful: whether its rows come out of state.
    output_mode: 'update' or 'complete' where a result comes again when it changes, else 'append'.
    combines: the operator by which the batch function has made one row of several, if there is one.
    may_combine: what hides whether the batch function, or the query before it, has done so; empty where the plan shows
    that neither has.
    place: digest of where the checkpoint is; empty where that is not known.
    other_sinks: names under which this run of the query has called other sinks of the same place.
    before(): the sources of the batch before this one in its checkpoint; None where the checkpoint does not tell them
    any more.

    Of a bounded run only:
    has_one_count: whether the same run has the same number of rows whenever it is repeated.
    rows: the number of its rows, once they are counted.
    inputs: the files that it reads, as digests; None where it reads anything else.
    compared: the comparison of its rows with the published ones, once it is made.
    """

    batch_id: int
    query: str
    run: str
    sources: tuple[SourceRange, ...] = ()
    watermark_ms: int | None = None
    planned_ms: int = 0
    before_ms: int = 0
    fingerprint: QueryFingerprint | None = None
    stateful: bool = False
    output_mode: str = "append"
    combines: str = ""
    may_combine: str = ""
    place: str = ""
    other_sinks: frozenset[str] = frozenset()
    has_one_count: bool = False
    rows: int | None = None
    inputs: frozenset[str] | None = None
    compared: QueryComparison | None = None
    before: Callable[[], tuple[SourceRange, ...] | None] = field(default=_not_told, compare=False, repr=False)


@dataclass(frozen=True)
class StagedFile:
    """A file that is completely written; durable when its group is flushed. size: in bytes.

    staged: where it is staged. final: its final name. Both are relative to the table.
    """

    staged: str
    final: str
    size: int
    rows: int

    def to_json(self) -> dict[str, Any]:
        """The file as a record has it."""
        return {"staged": self.staged, "final": self.final, "size": self.size, "rows": self.rows}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "StagedFile":
        """The inverse of ``to_json``."""
        return cls(value["staged"], value["final"], value["size"], value["rows"])


def told_of(files: Sequence[StagedFile]) -> dict[str, int]:
    """How much it is, as fields of an event: rows, files and bytes."""
    return {"rows": sum(f.rows for f in files), "files": len(files), "bytes": sum(f.size for f in files)}


@dataclass(frozen=True)
class AppState:
    """What the newest snapshot says of one application: its last published checkpoint.

    sequence: number of the record in the application's journal; the numbers have no holes and begin with 1.
    journal_id: identity of that journal; empty in a state of version 1.
    recorded: numeric positions up to which everything is published (empty for opaque sources).
    sources: the last batch's own ranges, as Spark described them.
    fingerprint: of the query that wrote it; None where an older streamsink did.
    replaying: batches of this checkpoint may hold rows that another checkpoint, or this one before it was restored from
    an older copy, has published.
    files_from: number of the first record whose files count as published by this query.
    carried: a JSON object of the sink, which it finds again in the next state.
    place: digest of where the checkpoint is; empty where an older streamsink wrote it.
    rows: how many rows a bounded run was given; None for a micro-batch, and where an older streamsink wrote the run.
    inputs: what is kept of the files that a bounded run has read (``run_inputs.py``).
    planned_ms: as of ``Batch``; 0 where that has no meaning, or an older streamsink wrote it.
    leads_on: of the first record under a new name: the name before, and the number of the last record under it; else
    empty.
    behind: the same, in each record under the new name from there on, whatever is given up meanwhile.
    """

    query: str
    generation: int
    epoch: int
    checkpoint_id: int
    sequence: int
    record_id: str
    table_id: str
    sources: tuple[SourceRange, ...]
    recorded: Recorded = field(default_factory=Recorded)
    journal_id: str = ""
    fingerprint: QueryFingerprint | None = None
    replaying: bool = False
    files_from: int = 0
    carried: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""
    rows: int | None = None
    inputs: tuple[str, ...] = ()
    planned_ms: int = 0
    leads_on: tuple[str, int] | tuple[()] = ()
    behind: tuple[str, int] | tuple[()] = ()

    @property
    def checkpoint_name(self) -> str:
        """What the user calls this checkpoint, for messages."""
        return f"run '{self.query}'" if self.checkpoint_id == END_OF_INPUT else f"checkpoint {self.checkpoint_id}"

    def to_json(self) -> dict[str, Any]:
        """The state as a JSON object of version 2. The topic ids of a state with very many topics are shortened.

        Code that knows only version 1 does not find ``query`` in it, and stops before it writes.
        """
        value = {name: getattr(self, name) for name in _STATE_FIELDS}
        value |= {"version": _STATE_VERSION, "query_id": self.query, "journal_id": self.journal_id}
        value["sources"], value["recorded"] = self._positions
        if self.fingerprint is not None:
            value["fingerprint"] = self.fingerprint.to_json()
        if self.rows is not None:
            value["rows"] = self.rows
        return value | {name: getattr(self, name) for name in _STATE_FIELDS_WHEN_SET if getattr(self, name)}

    @functools.cached_property
    def _positions(self) -> tuple[list[Any], list[Any]]:
        """Sources and recorded positions as JSON, made once for the record and for the snapshot."""
        short = len(self.recorded.topics) > _MOST_WHOLE_IDS
        return [source.to_json(short) for source in self.sources], self.recorded.to_json(self.sources, short)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "AppState":
        """Read a state of version 1 or 2. Raises Misuse for a newer version.

        For what is no state it raises what ``value.altered`` makes of the error, where the object has that: it knows
        what it was read from. Else the error itself, as of any JSON that is read.
        """
        state = cls.told(value)
        state.recorded  # noqa: B018 - what cannot be read is noticed here
        return state

    @classmethod
    def told(cls, value: Mapping[str, Any]) -> "AppState":
        """As ``from_json``, but positions are read when they are first asked for.

        Nearly every commit asks only which record it is, and there may be thousands of topics.
        """
        with _altered(value):
            return cls._told_of(value)

    @classmethod
    def _told_of(cls, value: Mapping[str, Any]) -> "AppState":
        version = value.get("version", 1)
        if version > _STATE_VERSION:
            raise Misuse(
                f"the state of a streamsink application has version {version}, this library reads versions 1 to "
                f"{_STATE_VERSION}: a newer streamsink has written it. Nothing was written. Start the query with that "
                "version of streamsink",
                kind="state.version",
            )
        plain = {name: value[name] for name in _STATE_FIELDS}
        plain["query"] = value["query"] if version == 1 else value["query_id"]
        plain["journal_id"] = value.get("journal_id", "")
        plain |= {name: value[name] for name in _STATE_FIELDS_WHEN_SET if name in value}
        plain |= {name: tuple(value.get(name, ())) for name in ("inputs", "leads_on", "behind")}
        known = value.get("fingerprint")
        fingerprint = QueryFingerprint.from_json(known) if known is not None else None
        state = cls(sources=(), fingerprint=fingerprint, rows=value.get("rows"), **plain)
        for name, kind in _KINDS.items():
            if not isinstance(getattr(state, name), kind):
                raise TypeError(f"'{name}' is {type(getattr(state, name)).__name__}, expected {kind.__name__}")
        del state.__dict__["sources"], state.__dict__["recorded"]
        state.__dict__["_told"] = (value["sources"], value["recorded"], value)
        return state

    if not TYPE_CHECKING:  # it would hide misspelt names

        def __getattr__(self, name: str) -> Any:
            """The positions of a state that ``told`` has made, when they are first asked for."""
            said = self.__dict__.get("_told")
            if said is None or name not in ("sources", "recorded"):
                raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'", name=name, obj=self)
            with _altered(said[2]):
                sources = tuple(SourceRange.from_json(each) for each in said[0])
                self.__dict__.update(sources=sources, recorded=Recorded.from_json(said[1], sources))
            return self.__dict__[name]


@contextmanager
def _altered(value: Any) -> Iterator[None]:
    """Within it a state is read. Raises as ``AppState.from_json``."""
    try:
        yield
    except _NO_STATE as broken:
        altered = getattr(value, "altered", None)
        if altered is None:
            raise
        raise altered(broken) from broken


# What reading a JSON object ends with that is no state.
_NO_STATE = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError)
_STATE_VERSION = 2
# A state of more topics has their ids shortened: whole ids do not compress, and would be most of the state's size in a
# snapshot.
_MOST_WHOLE_IDS = 1_000
_STATE_FIELDS = ("generation", "epoch", "checkpoint_id", "sequence", "record_id", "table_id")
_KINDS: dict[str, type] = dict.fromkeys(
    ("generation", "epoch", "checkpoint_id", "sequence", "files_from", "planned_ms"), int
)
_KINDS |= dict.fromkeys(("query", "record_id", "table_id", "journal_id", "place"), str) | {"carried": dict}
_STATE_FIELDS_WHEN_SET = ("replaying", "files_from", "carried", "place", "planned_ms", "inputs", "leads_on", "behind")


@dataclass(frozen=True)
class LastOfOther:
    """The last record of another application.

    is_published: whether it is certain that the record is published; False for one that is pending or was rolled back.
    is_whole: False where one of several tables has its part of the record, and the journal is lost that could say
    whether the others have theirs.
    forgotten_by: then, the paths of tables that may have later records, because snapshots that could say so have
    expired.
    said: what the table itself says of the application; None where it says nothing.
    """

    state: AppState
    is_published: bool
    is_whole: bool = True
    forgotten_by: tuple[str, ...] = ()
    said: AppState | None = None


@dataclass(frozen=True)
class KnownRun:
    """What is known of the bounded run with one id.

    is_published: None when that cannot be told.
    fingerprint, rows, inputs: what the published run was made of; None, or empty, where nothing says so.
    table_id: of the table that has its rows. journal_id: of the journal that knew the run. '' where nothing says so.
    """

    is_published: bool | None
    fingerprint: QueryFingerprint | None = None
    rows: int | None = None
    inputs: tuple[str, ...] = ()
    table_id: str = ""
    journal_id: str = ""

    @classmethod
    def of(cls, state: AppState) -> "KnownRun":
        """What is known of a published run. state: of its record."""
        return cls(True, state.fingerprint, state.rows, state.inputs, state.table_id, state.journal_id)

    def to_json(self) -> bytes:
        """What the run was made of, and where it is, as the bytes of a JSON object."""
        said = {
            "fingerprint": self.fingerprint.to_json() if self.fingerprint is not None else None,
            "rows": self.rows,
            "table": self.table_id,
        }
        more = ({"journal": self.journal_id} if self.journal_id else {}) | (
            {"inputs": self.inputs} if self.inputs else {}
        )
        return json.dumps(said | more).encode()

    @classmethod
    def from_json(cls, data: bytes) -> "KnownRun":
        """Read what is known of a published run.

        Bytes that an older version wrote, or that a crash tore, say no more than that the run is published.
        """
        try:
            value = json.loads(data)
            known, rows = value["fingerprint"], value["rows"]
            made_of = QueryFingerprint.from_json(known) if known is not None else None
            return cls(
                True,
                made_of,
                rows,
                tuple(value.get("inputs", ())),
                str(value.get("table", "")),
                str(value.get("journal", "")),
            )
        except (ValueError, KeyError, TypeError):
            return cls(True)


@dataclass(frozen=True)
class Committable:
    """A checkpoint between pre-commit and publishing: its state once published, its files, and the sink's payload.

    payload: JSON object of the sink (for a Paimon table the staged manifest). No row value stands in it.
    source_files: entries of the files that the batch was read from (``file_entries.py``); None where its sources do not
    tell them.
    """

    state: AppState
    application: str
    watermark_ms: int | None
    files: tuple[StagedFile, ...]
    payload: Mapping[str, Any]
    source_files: bytes | None = None

    @property
    def rows(self) -> int:
        """The number of rows in all files."""
        return sum(f.rows for f in self.files)

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(f.size for f in self.files)

    def published_by(self, epoch: int) -> "Committable":
        """The same checkpoint, published by a later writer that took over. epoch: of that writer."""
        return replace(self, state=replace(self.state, epoch=epoch))

    def to_json(self) -> dict[str, Any]:
        """The body of a record, as a JSON object."""
        read = {} if self.source_files is None else {"read_files": base64.b64encode(self.source_files).decode()}
        return read | {
            "application": self.application,
            "state": self.state.to_json(),
            "watermark_ms": self.watermark_ms,
            "files": [f.to_json() for f in self.files],
            "payload": self.payload,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Committable":
        """Read the body of a record, also one by earlier code. Raises Misuse for a state of a newer version."""
        return cls(
            state=AppState.from_json(value["state"]),
            application=value["application"],
            watermark_ms=value["watermark_ms"],
            files=tuple(StagedFile.from_json(f) for f in value["files"]),
            payload=value["payload"],
            source_files=_read_files(value),
        )


def _read_files(value: Mapping[str, Any]) -> bytes | None:
    """The entries of the files that a record's batch was read from; None where the record does not tell them.

    Earlier code had another key for its shorter entries, and takes a record with the longer ones for one that tells no
    files.
    """
    if "source_files" in value:
        return lengthened(base64.b64decode(value["source_files"], validate=True))
    return base64.b64decode(value["read_files"], validate=True) if "read_files" in value else None
