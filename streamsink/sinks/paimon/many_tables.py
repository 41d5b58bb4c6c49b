"""Several tables as one destination of the protocol: one record for a checkpoint, then a commit to each table. Driver only.

The coordinating journal is the authority. A record's payload holds, of each table that has rows in the checkpoint, the
staged manifest and the number of the record that touched the table before (``previous``); and of every table that was
ever written the newest such number (``heads``). A table's newest snapshot says the last record that it has. See
docs/design/0005-many-tables.md.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from streamsink import events
from streamsink.errors import Conflict, Misuse
from streamsink.faults import fault_point
from streamsink.journal.file_journal import FileJournal
from streamsink.options import MODE_APPEND, ON_ROLLBACK_FAIL, SYNC, SinkOptions
from streamsink.protocol.committable import Committable, LastOfOther, StagedFile
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.journal import MarkOfTables, Where
from streamsink.protocol.sink import Committer, History, Published
from streamsink.sinks.paimon import promise
from streamsink.sinks.paimon.committer import PaimonCommitter
from streamsink.sinks.paimon.past import marks
from streamsink.sinks.paimon.past.above import identity_path
from streamsink.sinks.paimon.past.chains import Chains
from streamsink.sinks.paimon.past.name_before import SUFFIX, Had, NameBefore, parts_of_all
from streamsink.sinks.paimon.past.records import state_alone
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup
from streamsink.table.table import Table, is_table, open_table
from streamsink.table.write.spec import WrittenFile

# A checkpoint of several tables has no snapshot of its own; each of its tables does.
NO_SNAPSHOT = 0
# Options of a query of one table, the only value that they may have here, and why.
_ONLY = {
    "mode": (MODE_APPEND, "a batch replaces nothing in them"),
    "on_rollback": (ON_ROLLBACK_FAIL, "what one table lost is not published again while the others keep it"),
    "publish": (SYNC, "a batch is published before it ends"),
    "publish_every_batches": (1, "a batch is published before it ends"),
    "lock_id": (None, "each table's own path gives the name of its lock"),
}


@dataclass(frozen=True)
class Place:
    """root: the warehouse's path. application: the query's name. journal_id: the coordinating journal's identity."""

    file_io: FileIO
    root: str
    application: str
    journal_id: str

    @property
    def key(self) -> str:
        """Under this name the tables know the application: no query of one table has it."""
        return self.application + SUFFIX

    def absolute(self, path: str) -> str:
        return os.path.join(self.root, path)


def open_place(file_io: FileIO, root: str, application: str, new_id: Callable[[], str]) -> Place:
    """The place of the coordinating journal, which gets its identity on the first start. Raises Misuse: it is a table."""
    if is_table(file_io, root):
        raise Misuse(
            f"{root}: this is a table; expected the folder that holds the tables, such as 'lake/shop.db'",
            kind="tables.root-is-a-table",
        )
    path = identity_path(root, application)
    if not file_io.exists(path):
        file_io.create_if_absent(path, new_id().encode())
    return Place(file_io, root, application, file_io.read(path).decode())


def check_options(path: str, options: SinkOptions, *, several: bool) -> None:
    """Raises Misuse for an option that several tables do not have; or one table with dead letters, which may be rolled back alone."""
    for option, (only, why) in _ONLY.items():
        if getattr(options, option) != only and (several or option != "on_rollback"):
            raise Misuse(
                f"{path}: option '{option}' is {getattr(options, option)!r}, expected {only!r} {'for several tables' if several else 'with dead letters'}: {why}. "
                "Nothing was written",
                kind="option.value",
            )


@dataclass(frozen=True)
class Member:
    """One of the tables, open."""

    table: Table
    committer: PaimonCommitter


class ManyTables(Committer):
    """Publishes checkpoints of several append tables, one snapshot for each table that has rows."""

    def __init__(self, place: Place, journal: FileJournal, options: SinkOptions, emit: Callable[[events.Event], None]):
        """journal: a reader of its own, which never claims. Raises Misuse for an option that several tables do not have."""
        check_options(place.root, options, several=True)
        self.place = place
        self._journal = journal
        self._options = options
        self._emit = emit
        self._members: dict[str, Member] = {}
        self._settled: Committable | None = None
        self._left_out: Collection[
            str
        ] = ()  # of the record that is pending; no later one has a part for a table that lacks this one's
        self._expected: Callable[[], Sequence[tuple[str, str]]] = list

    def expect_tables(self, paths: Callable[[], Sequence[tuple[str, str]]]) -> None:
        """(name, path) of tables that must not know this application while its journal has no record."""
        self._expected = paths

    # -- tables ----------------------------------------------------------------------------------------------------

    def heads(self) -> Mapping[str, Mapping[str, Any]]:
        """By name, of every table that any record touched: its path, its identity, the newest record's number."""
        newest = self._journal.newest()
        return newest.payload["heads"] if newest else {}

    def member(self, name: str, path: str) -> Member:
        """The table, opened once. Raises Misuse when there is none."""
        if name not in self._members:
            table = open_table(self.place.file_io, self.place.absolute(path), for_writing=True)
            self._members[name] = member = Member(
                table,
                PaimonCommitter(
                    table,
                    self._options,
                    journal_of=self.place.root,
                    is_undone=lambda sequence: self._chains().is_undone(sequence, name, member),
                ),
            )
        return self._members[name]

    # -- pre-commit ------------------------------------------------------------------------------------------------

    def had_before(self, checkpoint: Checkpoint, path_of: Callable[[str], str | None]) -> Sequence[Had]:
        """What tables have of the name that the query had before, where this is its first record under the new one.

        path_of(name): where the rules have a table now. Raises Misuse: one of them has lost it.
        """
        key, _ = checkpoint.decision.leads_on or ("", 0)
        return self._names_before().tables(key, checkpoint.batch.query, path_of) if key else ()

    def _names_before(self) -> NameBefore:
        return NameBefore(self.place, self.member, self._expected, self._options)

    def stage(
        self,
        checkpoint: Checkpoint,
        written: Mapping[str, tuple[str, Sequence[WrittenFile]]],
        dead: Mapping[str, int],
        group: FlushGroup,
        *,
        had: Sequence[Had],
    ) -> tuple[tuple[StagedFile, ...], Mapping[str, Any]]:
        """Stage each table's manifest; the files and the payload of the one record that names them all.

        All of it is durable when ``group`` is flushed. written: by table name, its path and files. dead: dead letters by the table
        that they were meant for. had: as ``had_before``; each of them gets a part, without files where it has no rows.
        Raises Misuse when a table is not as the journal says: then nothing is recorded.
        """
        staging, heads = checkpoint.staging, dict(self.heads())
        of_before = {each.name: each.to_json() for each in had}
        every = [file for _, mine in written.values() for file in mine]
        promise.see(self.place.file_io, self.place.root, staging, every)
        files: list[StagedFile] = []
        entries = []
        for name, (path, mine) in sorted(parts_of_all(written, had).items()):
            member = self.member(name, path)
            previous = self._check_untouched(name, path, heads)
            staged, payload = member.committer.stage(
                staging, [replace(file, handed_over=False) for file in mine], group
            )
            files += [self._from_root(staging, file, path) for file in staged]
            entries.append(
                of_before.get(name, {})
                | {
                    "name": name,
                    "path": path,
                    "table_id": member.table.table_id,
                    "previous": previous,
                    "files": len(staged),
                    "manifest": self._manifest_from_root(staging, payload["manifest"]),
                    "base": payload["base"],
                }
            )
            heads[name] = {"path": path, "table_id": member.table.table_id, "sequence": checkpoint.sequence}
        payload = {
            "kind": "MANY",
            "tables": entries,
            "heads": heads,
            marks.PUBLISHED: marks.so_far(self._journal),
            "dead_letters": dict(dead),
        }
        return tuple(files), payload

    def _check_untouched(self, name: str, path: str, heads: Mapping[str, Any]) -> int:
        """The number of the last record that touched the table, which the table must carry; 0 for none."""
        chains = self._chains()
        if name not in heads:
            chains.check_unknown(self._members[name])
            return 0
        if heads[name]["path"] != path:
            raise Misuse(
                f"{self.place.absolute(path)}: table '{name}' was written at {self.place.absolute(heads[name]['path'])} so "
                "far. Nothing was written. Give it that path, or another name",
                kind="tables.moved",
            )
        settled = self._settled.payload["heads"].get(name) if self._settled else None
        chains.check_head(name, self._members[name], settled)
        return heads[name]["sequence"]

    def _from_root(self, staging: str, file: StagedFile, path: str) -> StagedFile:
        return StagedFile(self._staged(staging, file.staged), os.path.join(path, file.final), file.size, file.rows)

    def _manifest_from_root(self, staging: str, manifest: Mapping[str, Any] | None) -> Mapping | None:
        return {**manifest, "staged": self._staged(staging, manifest["staged"])} if manifest is not None else None

    def _staged(self, staging: str, file: str) -> str:
        """Path of a file in the staging folder, relative to the warehouse."""
        folder = staging.removeprefix(self.place.root).lstrip("/")
        return os.path.join(folder, os.path.basename(file))

    # -- Committer -------------------------------------------------------------------------------------------------

    def history(self, application: str) -> History:
        self._journal.read_listing()
        self._left_out = self._chains().left_out()
        settled = self._settled
        # Nothing is pending, and the last record's tables are as it left them: other tables are looked at before they are
        # written again. Else all are looked at.
        if (
            settled is None
            or self._journal.last_sequence() != settled.state.sequence
            or not self._chains().is_at(settled)
        ):
            self._settled = self._chains().last_settled(self._expected)
        return History(self._settled.state if self._settled else None, True)

    def state_alone(self, committable: Committable, *, held: bool = False) -> Committable:
        return state_alone(committable, held=held)

    def mentions(self, committable: Committable) -> bool:
        return any(member.committer.mentions(mine) for _, member, mine in self._parts(committable))

    def where_is(self, committable: Committable) -> MarkOfTables | None:
        found = {entry["name"]: member.committer.where_is(mine) for entry, member, mine in self._parts(committable)}
        known = {name: mark for name, mark in found.items() if mark is not None}
        return MarkOfTables(known) if known else None

    def others(self, application: str) -> Mapping[str, LastOfOther]:
        return self._names_before().others(application)

    def has_reached(self, application: str, sequence: int, where: Where | None = None) -> bool:
        return True  # each table is asked, by what the first record under a new name says of it

    def check_there(self, name: str, path: str) -> None:
        """Raises Misuse when this table was dropped, or dropped and created again, since this process has opened it."""
        self._chains().check_there(self.member(name, path))

    def places_of(self, committable: Committable) -> list[str]:
        """Paths of the tables that have their part of the record. One that is lost has none. Raises Corrupt: it cannot be told."""
        found = []
        for entry, _ in self._own_parts(committable):
            path = self.place.absolute(entry["path"])
            if (
                is_table(self.place.file_io, path)
                and self.member(entry["name"], entry["path"]).table.table_id == entry["table_id"]
            ):
                found += [path] if self._chains().has(committable.state.sequence, entry["name"], entry["path"]) else []
        return found

    def without_the_lost(self) -> tuple[Sequence[str], str]:
        """(names of tables that are lost, the option ``accept_as_seen`` that publishes the newest record in the others)."""
        chains = self._chains()
        lost = chains.lost()
        return lost, chains.option_without(lost)

    def is_readable(self, committable: Committable) -> bool:
        """Whether the record's manifests are as they were recorded."""
        return all(member.committer.is_readable(mine) for _, member, mine in self._parts(committable))

    def sees_all_since(self, committable: Committable) -> bool:
        return all(member.committer.sees_all_since(mine) for _, member, mine in self._parts(committable))

    def files_in_place(self, committable: Committable) -> tuple[int, int, tuple[str, ...]]:
        found = [member.committer.files_in_place(mine) for _, member, mine in self._parts(committable)]
        return sum(f[0] for f in found), sum(f[1] for f in found), tuple(path for f in found for path in f[2])

    def path_of_rows(self, committable: Committable) -> str:
        return next(
            filter(None, (member.committer.path_of_rows(mine) for _, member, mine in self._parts(committable))), ""
        )

    def publish(self, committable: Committable, *, expect: int, restored: bool, fence: Callable[[], None]) -> Published:
        published = self._settled.state.sequence if self._settled else 0
        if published not in (expect, committable.state.sequence):
            raise Conflict(
                f"{self.place.root}: record {committable.state.sequence} of application '{self.place.application}' follows record "
                f"{expect}, but record {published} is the last one that every table has. Nothing was published; restart the query",
                kind="tables.order",
            )
        attempts, tables = 0, {}
        for entry, member, mine in self._parts(committable):
            fault_point("tables.before_table")
            fence()
            if restored and self._chains().has_without_saying(member, mine):
                continue
            self._chains().check_name_before(member, entry)
            done = member.committer.publish(mine, expect=entry["previous"], restored=restored, fence=fence)
            attempts = max(attempts, done.attempts)
            tables |= {entry["name"]: done.where} if done.where is not None else {}
            self._emit(
                events.TablePublished(
                    member.table.root,
                    self.place.application,
                    done.checkpoint_id,
                    done.snapshot_id,
                    mine.rows,
                    len(mine.files),
                )
            )
            if done.base_replaced:
                self._emit(events.SnapshotReplaced(member.table.root, self.place.application, done.snapshot_id - 1, ()))
            fault_point("tables.table_published")
        self._settled = committable
        self._tell_dead_letters(committable)
        return Published(
            committable.state.checkpoint_id, NO_SNAPSHOT, attempts, MarkOfTables(tables) if tables else None
        )

    @contextmanager
    def restoring(self, records: Sequence[Committable]) -> Iterator[None]:
        with ExitStack() as stack:
            for name, mine in self._by_table(records).items():
                stack.enter_context(self._members[name].committer.restoring(mine))
            yield

    def sweep(self, published: Sequence[Committable]) -> list[str]:
        parts = self._by_table(published)
        return [path for name, member in self._members.items() for path in member.committer.sweep(parts.get(name, []))]

    # -- parts -----------------------------------------------------------------------------------------------------

    def _by_table(self, records: Sequence[Committable]) -> dict[str, list[Committable]]:
        """By table name, its parts of these records, in order."""
        found: dict[str, list[Committable]] = {}
        for committable in records:
            for entry, _, mine in self._parts(committable):
                found.setdefault(entry["name"], []).append(mine)
        return found

    def _chains(self) -> Chains:
        return Chains(self.place, self._journal, self.member, self._own_parts, self._options)

    def _parts(self, committable: Committable) -> list[tuple[Mapping[str, Any], Member, Committable]]:
        """(entry of the record, open table, the table's own part as a record of that table) in the order of publishing."""
        parts = [(entry, mine) for entry, mine in self._own_parts(committable) if entry["name"] not in self._left_out]
        return [(entry, self.member(entry["name"], entry["path"]), mine) for entry, mine in parts]

    def _own_parts(self, committable: Committable) -> Iterator[tuple[Mapping[str, Any], Committable]]:
        """As ``_parts``, without the open tables, of which one may be lost."""
        at = 0
        for entry in committable.payload["tables"]:
            files = committable.files[at : at + entry["files"]]
            at += entry["files"]
            own = tuple(
                StagedFile(self.place.absolute(f.staged), os.path.relpath(f.final, entry["path"]), f.size, f.rows)
                for f in files
            )
            manifest = (
                {**entry["manifest"], "staged": self.place.absolute(entry["manifest"]["staged"])}
                if entry["manifest"] is not None
                else None
            )
            mine = Committable(
                committable.state,
                self.place.key,
                committable.watermark_ms,
                own,
                {"kind": "APPEND", "manifest": manifest, "base": entry.get("base")},
            )
            yield entry, mine

    def _tell_dead_letters(self, committable: Committable) -> None:
        for target, rows in sorted(committable.payload["dead_letters"].items()):
            self._emit(
                events.RowsDeadLettered(
                    self.place.root, self.place.application, committable.state.checkpoint_id, target, rows
                )
            )
