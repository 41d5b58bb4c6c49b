"""``streamsink dead-letters replay``: write dead letters into their table after a fix, each row once, without Spark.

A replay is a bounded run of an application of its own, with a journal of its own in the table. Which letters a run
takes is made durable first, in its *plan*, ``<journal>/replays/<run id>``; a letter is replayed when the run of a plan
that names it is published. So a death leaves one of three states: a plan whose run was never recorded, which counts for
nothing; a record, which the next replay publishes before it makes its plan; or a run that is published. Two replays at
one time fence each other as two starts of a query do.

The number of published runs that have a plan must be the number of the application's last record. Where it is not, the
journal was lost, or is an older copy, and which letters were replayed is not known: then nothing is written.
"""

import json
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa

from streamsink import shell
from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.format.types import DataField
from streamsink.journal.repair import is_user_of_replay
from streamsink.operations.letters.from_json import decoded
from streamsink.operations.letters.plans import CLAIMED_BY, check_journal, done_by_all, end_others, make_plan
from streamsink.operations.letters.selection import Chosen, Letter, left, letters_of, open_letters
from streamsink.operations.letters.told_apart import not_of_the_present, unknown_record
from streamsink.operations.recover import of_no_batch
from streamsink.options import MODE_APPEND, SinkOptions
from streamsink.protocol.committable import AppState, Batch
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.ids import END_OF_INPUT, check_application
from streamsink.protocol.journal import Group
from streamsink.protocol.run.batch_rows import BatchRows
from streamsink.protocol.run.micro_batch import QueryRun
from streamsink.sinks.paimon.opened import OpenTable
from streamsink.sinks.paimon.opening import open_one
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup
from streamsink.table.branching.rollback import PROPERTY as ROLLED_BACK
from streamsink.table.routed.dead_letters import Screen
from streamsink.table.routed.rules import EXISTING
from streamsink.table.table import Table, open_table
from streamsink.table.write.folders import Folders

# What the name of an application does not have.
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")
# Of the rows of letters the columns that their table takes, as in a rule of ``to_tables``: names, 'existing', or all.
Columns = Sequence[str] | str | None


@dataclass(frozen=True)
class Replay:
    """What a replay has done, or would do.

    run: its id; '' where nothing was written. replayed: rows that were written, or would be. before: letters of these
    that were replayed earlier. unfit: letters that still do not fit, with the reason why each does not. taken_out:
    numbers of retained snapshots that took rows of replays out of the table on purpose; these do not come again.
    left_out: chosen letters that may be of an earlier table, where only those of the present one were asked for.
    """

    table: str
    application: str
    run: str
    replayed: int
    before: int
    unfit: Sequence[tuple[Letter, str]]
    taken_out: Sequence[int] = ()
    left_out: int = 0


@dataclass(frozen=True)
class _Fitting:
    """The letters that fit now, with their rows in the table's columns, and the others."""

    letters: Sequence[Letter]
    rows: pa.Table
    fields: Sequence[DataField]
    unfit: Sequence[tuple[Letter, str]]


def application_of(letters: str) -> str:
    """The name under which letters of this table are replayed. letters: path of the table for them."""
    return f"replay-{_NO_NAME.sub('-', os.path.basename(letters))}"[:64]


def look(
    file_io: FileIO,
    root: str,
    letters: str,
    chosen: Chosen,
    options: SinkOptions,
    *,
    columns: Columns = None,
    without_journals: Collection[str] = (),
    earlier_tables: bool | None = None,
) -> Replay:
    """What ``replay`` would do now. Changes nothing."""
    check_application(root, options.application)
    table = open_table(file_io, root, for_writing=False)
    done = done_by_all(table, options.application, _states(table), without_journals)
    wanted, left_out = _wanted(table, letters, chosen, earlier_tables=earlier_tables)
    new = left(wanted, done)
    found, before = _fitting(table, new, columns), len(wanted) - len(new)
    said = Replay(root, options.application, "", len(found.letters), before, found.unfit, left_out=left_out)
    return replace(said, taken_out=_taken_out(table) if before else ())


def replay(
    file_io: FileIO,
    root: str,
    letters: str,
    chosen: Chosen,
    options: SinkOptions,
    *,
    columns: Columns = None,
    without_journals: Collection[str] = (),
    earlier_tables: bool | None = None,
) -> Replay:
    """Write those of the chosen letters into the table at ``root`` that fit now and were not replayed yet.

    letters: path of the table for dead letters. options: ``application`` is the replay's own name; the others are as
    the query's, its lock above all. columns: those of the rows that the table takes, as the rule of the query's table
    has it. without_journals: names of earlier replays whose journals are gone for good; what only these knew counts as
    not replayed. earlier_tables: whether letters count that may be of an earlier table of this name; None where nobody
    has said it. Idempotent: each letter is written once, however often it is called, under which name, and wherever it
    died. Raises Misuse when ``letters`` is no such table, or has letters of which somebody must say whether they count;
    Corrupt when it is not known what was replayed; Fenced while another replay runs; and what a start and a batch of a
    query raise.
    """
    check_application(root, options.application)
    open_letters(file_io, letters)
    target = open_table(file_io, root, for_writing=False)
    wanted, left_out = _wanted(target, letters, chosen, earlier_tables=earlier_tables)  # before anything is claimed
    options = replace(of_no_batch(options), mode=MODE_APPEND, overwrite_partition=None)
    table = open_table(file_io, root, for_writing=False)
    check_journal(table, options.application, _states(table).get(options.application), without_journals)
    opened = open_one(file_io, root, options, END_OF_INPUT, tuple)
    run = QueryRun.start(opened, f"{CLAIMED_BY}-{IdSource().new_id()}", options, lambda event: None)
    try:
        end_others(file_io, root, options)
        state = opened.committer.history(options.application).state
        mine = {options.application: state} if state is not None else {}
        done = done_by_all(opened.table, options.application, _states(opened.table) | mine, without_journals)
        new = left(wanted, done)
        found, before = _fitting(opened.table, new, columns), len(wanted) - len(new)
        taken_out = _taken_out(opened.table) if before else ()
        said = Replay(root, options.application, "", 0, before, found.unfit, taken_out, left_out)
        if not found.letters:
            return said
        digests = [letter.digest for letter in found.letters]
        run_id = make_plan(opened.file_io, root, options.application, digests, state.sequence if state else 0)
        rows = run.micro_batch(Batch(END_OF_INPUT, run_id, run_id), _Rows(opened, found))
        return replace(said, run=run_id, replayed=rows)
    finally:
        run.close()


def _wanted(target: Table, letters: str, chosen: Chosen, *, earlier_tables: bool | None) -> tuple[list[Letter], int]:
    """The chosen letters, and how many of them are left out. target: the table that they go to.

    Raises Misuse where nobody has said whether those count that may be of another table of this name, and for those of
    a record that the table does not know, unless ``earlier_tables``: their rows may have come again.
    """
    table = open_letters(target.file_io, letters)
    every = letters_of(table, Chosen(chosen.target))
    wanted, known = [letter for letter in every if chosen.takes(letter)], _states(target)
    if earlier_tables:
        return wanted, 0
    complete = target.states.read(target.snapshots.latest()).complete
    others = not_of_the_present(target, known, every, complete=complete)
    present = [letter for letter in wanted if letter.table_id not in others]
    if len(present) < len(wanted) and earlier_tables is None:
        raise _of_earlier_tables(letters, chosen, len(wanted) - len(present), len(present))
    unknown = unknown_record(target, table, _states(table), known)
    if unknown:
        raise _of_unknown_record(letters, chosen, target.root, unknown)
    return present, len(wanted) - len(present)


def _of_unknown_record(letters: str, chosen: Chosen, root: str, unknown: int) -> Misuse:
    listing, again = _listing(letters, chosen), _again(letters, chosen, "--earlier-tables")
    return Misuse(
        f"{letters}: it has letters of record {unknown}, and the table {root} knows nothing of that record: it was "
        "restored or rolled back, or the record was given up since. Rows of that record may have come again, and be in "
        "the table, or be letters of a later record here or in another table for dead letters. Nothing was written. "
        f"Look which they are {listing}; if none came again, replay all {again}, or by --checkpoint those that did "
        "not. Else write the rows, each once, by a run of their own (streamsink.write)",
        kind="replay.unknown-record",
    )


def _of_earlier_tables(letters: str, chosen: Chosen, others: int, present: int) -> Misuse:
    alone = f"Replay the latter alone {_again(letters, chosen, '--this-table')}. " if present else ""
    return Misuse(
        f"{letters}: {others:,} of these letters are of a table '{chosen.target}' that was dropped, or of a query that "
        f"has begun anew since, or do not say so; {present:,} are of the present table. Rows of the former may have "
        f"come again, and be in the table, or be later letters. Nothing was written. {alone}Look whether a row of "
        f"theirs came again {_listing(letters, chosen)}; if none did, replay all of them "
        f"{_again(letters, chosen, '--earlier-tables')}. Else write the rows, each once, by a run of their own "
        "(streamsink.write)",
        kind="replay.earlier-table",
    )


def _listing(letters: str, chosen: Chosen) -> str:
    target = Chosen(chosen.target, chosen.application).typed()
    return shell.in_a_shell("dead-letters", "list", letters, *target, "--limit", "1000000", "--json")


def _again(letters: str, chosen: Chosen, *options: str) -> str:
    return shell.in_a_shell("dead-letters", "replay", letters, *chosen.typed(), *options)


def _states(table: Table) -> dict[str, AppState]:
    """The last published state of each application."""
    said = table.states.read(table.snapshots.latest()).by_application
    return {name: AppState.from_json(state) for name, state in said.items()}


def _taken_out(table: Table) -> list[int]:
    """The numbers of retained snapshots that went back, on purpose, behind a replay."""
    found, replays = [], []
    for number in table.snapshots.ids():
        snapshot = table.snapshots.load(number)
        said = (snapshot.properties or {}).get(ROLLED_BACK) if snapshot is not None else None
        if snapshot is not None and is_user_of_replay(snapshot.commit_user):
            replays.append(number)
        if said is not None and any(each > json.loads(said).get("to", 0) for each in replays):
            found.append(number)
    return found


def _fitting(table: Table, letters: Sequence[Letter], columns: Columns) -> _Fitting:
    schema = table.latest_schema()
    taken = frozenset(schema.field_names if columns == EXISTING else columns) if columns is not None else None
    limits = table.file_io.name_limits(table.root)
    screen = Screen(schema, Folders(schema, table.root, limits, names_at_once=table.file_io.is_distant))
    fitting: list[Letter] = []
    parts: list[pa.RecordBatch] = []
    reasons: dict[int, str] = {}
    texts = [(letter.row, letter.position_names) for letter in letters]
    for places, rows, refused in decoded(texts, schema, screen, taken):
        reasons.update(refused)
        if rows is not None and places:
            fitting += [letters[place] for place in places]
            parts.append(rows)
    unfit = [(letters[place], reason) for place, reason in sorted(reasons.items())]
    return _Fitting(fitting, pa.Table.from_batches(parts) if parts else pa.table({}), schema.fields, unfit)


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
