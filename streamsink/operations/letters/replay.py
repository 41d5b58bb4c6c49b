"""``streamsink dead-letters replay``: write dead letters into their table after a fix, each row once, without Spark.

A replay is a bounded run of an application of its own, with a journal of its own in the table. Which letters a run
takes is made durable first, in its *plan*, ``<journal>/replays/<run id>``; a letter is replayed when the run of a plan
that names it is published. So a death leaves one of three states: a plan whose run was never recorded, which counts for
nothing; a record, which the next replay publishes before it makes its plan; or a run that is published. Two replays at
one time fence each other as two starts of a query do.

The number of published runs that have a plan must be the number of the application's last record. Where it is not, the
journal was lost, or is an older copy, and which letters were replayed is not known: then nothing is written.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.errors import Corrupt
from streamsink.format.types import AtomicType, DataField
from streamsink.journal.file_journal import FileJournal, journal_dir
from streamsink.operations.letters.from_json import decoded
from streamsink.operations.letters.selection import Chosen, Letter, left, letters_of, open_letters
from streamsink.operations.recover import of_no_batch
from streamsink.options import MODE_APPEND, SinkOptions
from streamsink.protocol.committable import AppState, Batch
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.journal import Group
from streamsink.protocol.run.batch_rows import BatchRows
from streamsink.protocol.run.micro_batch import QueryRun
from streamsink.sinks.paimon.opened import OpenTable
from streamsink.sinks.paimon.opening import open_one
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup
from streamsink.table.routed.dead_letters import Screen
from streamsink.table.table import Table, open_table
from streamsink.table.write.folders import Folders

# Begins what stands for this command in the record of who owns the application, where queries have their ids.
CLAIMED_BY = "replay"
PLANS = "replays"
_BYTES = ("BINARY", "VARBINARY")


@dataclass(frozen=True)
class Replay:
    """What a replay has done, or would do.

    run: its id; '' where nothing was written. replayed: rows that were written, or would be. before: letters of these
    that were replayed earlier. unfit: letters that still do not fit, with the reason why each does not.
    """

    table: str
    application: str
    run: str
    replayed: int
    before: int
    unfit: Sequence[tuple[Letter, str]]


@dataclass(frozen=True)
class _Fitting:
    """The letters that fit now, with their rows in the table's columns, and the others."""

    letters: Sequence[Letter]
    rows: pa.Table
    fields: Sequence[DataField]
    unfit: Sequence[tuple[Letter, str]]


def application_of(letters: str) -> str:
    """The name under which letters of this table are replayed. letters: path of the table for them."""
    return f"replay-{os.path.basename(letters)}"[:64]


def look(file_io: FileIO, root: str, letters: str, chosen: Chosen, options: SinkOptions) -> Replay:
    """What ``replay`` would do now. Changes nothing."""
    table, journal = open_table(file_io, root, for_writing=False), _journal(file_io, root, options)
    journal.read_listing()
    states = table.states.read(table.snapshots.latest()).by_application
    said = states.get(options.application)
    done = _done(file_io, root, journal, table.table_id, AppState.from_json(said) if said else None)
    wanted = letters_of(open_letters(file_io, letters), chosen)
    new = left(wanted, done)
    found = _fitting(table, new)
    return Replay(root, options.application, "", len(found.letters), len(wanted) - len(new), found.unfit)


def replay(file_io: FileIO, root: str, letters: str, chosen: Chosen, options: SinkOptions) -> Replay:
    """Write those of the chosen letters into the table at ``root`` that fit now and were not replayed yet.

    letters: path of the table for dead letters. options: ``application`` is the replay's own name; the others are as
    the query's, its lock above all. Idempotent: each letter is written once, however often it is called, and wherever
    it died. Raises Misuse when ``letters`` is no such table; Corrupt when it is not known what was replayed; Fenced
    while another replay runs; and what a start and a batch of a query raise.
    """
    wanted = letters_of(open_letters(file_io, letters), chosen)  # before anything is claimed
    options = replace(of_no_batch(options), mode=MODE_APPEND, overwrite_partition=None)
    opened = open_one(file_io, root, options, END_OF_INPUT, tuple)
    run = QueryRun.start(opened, f"{CLAIMED_BY}-{IdSource().new_id()}", options, lambda event: None)
    try:
        state = opened.committer.history(options.application).state
        opened.journal.read_listing()
        done = _done(opened.file_io, root, opened.journal, opened.table.table_id, state)
        new = left(wanted, done)
        found = _fitting(opened.table, new)
        before = len(wanted) - len(new)
        if not found.letters:
            return Replay(root, options.application, "", 0, before, found.unfit)
        run_id = _plan(opened.file_io, root, options.application, found.letters, state.sequence if state else 0)
        rows = run.micro_batch(Batch(END_OF_INPUT, run_id, run_id), _Rows(opened, found))
        return Replay(root, options.application, run_id, rows, before, found.unfit)
    finally:
        run.close()


def _journal(file_io: FileIO, root: str, options: SinkOptions) -> FileJournal:
    return FileJournal(file_io, root, options.application, options.journal_retain, of_table=True)


def _folder(root: str, application: str) -> str:
    return os.path.join(journal_dir(root, application), PLANS)


def _plan(file_io: FileIO, root: str, application: str, letters: Sequence[Letter], base: int) -> str:
    """Make durable which letters the run takes, and return its id. base: number of the last published record."""
    digests = sorted(letter.digest for letter in letters)
    run_id = f"{base + 1}-{hashlib.sha256(json.dumps(digests).encode()).hexdigest()[:32]}"
    body = json.dumps({"run": run_id, "letters": digests}).encode()
    # A file of that name is of an earlier try, of the same letters.
    file_io.create_if_absent(os.path.join(_folder(root, application), run_id), body)
    return run_id


def _done(file_io: FileIO, root: str, journal: FileJournal, table_id: str, last: AppState | None) -> Counter[str]:
    """How often each letter was replayed, by its digest.

    last: the last published state of the replays. What is pending behind it counts as well, because the next replay
    publishes that first. Raises Corrupt where it is not known.
    """
    application, base = os.path.basename(journal.place), last.sequence if last is not None else 0
    folder, pending = _folder(root, application), _pending_runs(journal, base)
    done: Counter[str] = Counter()
    published = 0
    for run_id in sorted(file_io.names(folder)):
        # The last one may have no mark yet.
        is_last = last is not None and run_id == last.query
        is_published = is_last or bool(journal.known_run(run_id, table_id).is_published)
        if is_published or run_id in pending:
            done.update(_read_plan(file_io, os.path.join(folder, run_id)))
            published += run_id not in pending
    if published != base:
        raise Corrupt(
            f"{root}: {base} replays of application '{application}' are published, and its journal {journal.place} has "
            f"the plans of {published}: it was removed, or is an older copy, so which letters are in the table already "
            "is not known. Nothing was written. Restore the journal. If it is lost, look which of the letters' rows "
            "are in the table, and replay only others, under another name: streamsink dead-letters replay with "
            "--application, and with --reason or --from to choose them",
            kind="replay.unknown",
        )
    return done


def _pending_runs(journal: FileJournal, base: int) -> set[str]:
    records = (journal.load(sequence) for sequence in journal.retained() if sequence > base)
    return {record.state.query for record in records if record is not None}


def _read_plan(file_io: FileIO, path: str) -> list[str]:
    try:
        return list(map(str, json.loads(file_io.read(path))["letters"]))
    except (ValueError, KeyError, TypeError) as broken:
        raise Corrupt(
            f"{path}: not a valid plan of a replay ({type(broken).__name__}), so which letters are in the table "
            "already is not known. Nothing was written. Restore it from a backup",
            kind="replay.plan",
        ) from broken


def _fitting(table: Table, letters: Sequence[Letter]) -> _Fitting:
    schema = table.latest_schema()
    limits = table.file_io.name_limits(table.root)
    screen = Screen(schema, Folders(schema, table.root, limits, names_at_once=table.file_io.is_distant))
    fitting: list[Letter] = []
    parts: list[pa.RecordBatch] = []
    reasons: dict[int, str] = {}
    texts = [letter.row for letter in letters]
    for places, rows, refused in decoded(texts, schema, screen, _always_bytes(table)):
        reasons.update(refused)
        if rows is not None and places:
            fitting += [letters[place] for place in places]
            parts.append(rows)
    unfit = [(letters[place], reason) for place, reason in sorted(reasons.items())]
    return _Fitting(fitting, pa.Table.from_batches(parts) if parts else pa.table({}), schema.fields, unfit)


def _always_bytes(table: Table) -> frozenset[str]:
    """Names of the columns that have held bytes under every schema of the table."""
    found: Mapping[str, bool] = {}
    for schema_id in range(table.known_schema.id + 1):
        for field in table.schemas.load(schema_id).fields:
            is_bytes = isinstance(field.type, AtomicType) and field.type.root in _BYTES
            found = {**found, field.name: found.get(field.name, True) and is_bytes}
    return frozenset(name for name, is_bytes in found.items() if is_bytes)


class _Rows(BatchRows):
    """The rows of one replay, which are in the table's columns already."""

    def __init__(self, opened: OpenTable, found: _Fitting):
        self._opened = opened
        self._found = found

    def count(self) -> int:
        return self._found.rows.num_rows

    def write(self, checkpoint: Checkpoint, group: Group) -> Sequence[Any]:
        writer = self._opened.writing(checkpoint, self._found.fields, ()).open(self._opened.file_io)
        try:
            for batch in self._found.rows.combine_chunks().to_batches():
                writer.write(batch)
            return writer.close(cast(FlushGroup, group))  # it is one that the sink has opened
        except BaseException:
            writer.abort()
            raise
