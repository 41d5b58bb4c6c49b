"""Several tables as one destination: one record for a checkpoint, then a commit to each table. Driver only.

The coordinating journal is the authority. A record's payload holds, for each table that has rows in the checkpoint, the
staged manifest and the number of the record that touched the table before (``previous``); and for every table that was
ever written the newest such number (``heads``). A table's newest snapshot says the last record that it has. See
docs/design/0005-many-tables.md.
"""

import functools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from streamsink import events
from streamsink.clock import Clock
from streamsink.errors import Conflict
from streamsink.faults import fault_point
from streamsink.journal.file_journal import FileJournal
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Committable, LastOfOther, StagedFile
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.journal import Mark, MarkOfTables, Where
from streamsink.protocol.sink import Committer, History, Published
from streamsink.sinks.paimon import promise
from streamsink.sinks.paimon.care.background import check_tags
from streamsink.sinks.paimon.committer import PaimonCommitter
from streamsink.sinks.paimon.history import looking_at_all
from streamsink.sinks.paimon.past import chain_errors, marks
from streamsink.sinks.paimon.past.chains import Chains
from streamsink.sinks.paimon.past.name_before import Had, NameBefore, parts_of_all
from streamsink.sinks.paimon.past.place import Existing, Place
from streamsink.sinks.paimon.past.progress import TableProgress
from streamsink.sinks.paimon.past.record_of_tables import heads_in, own_parts, part_from_root, tell_dead_letters
from streamsink.sinks.paimon.past.records import state_alone
from streamsink.sinks.paimon.trouble import check_options
from streamsink.storage.flush_group import FlushGroup
from streamsink.storage.reading import KEPT_MS, Questions
from streamsink.table.table import Table, is_table, open_table
from streamsink.table.write.spec import WrittenFile

# A checkpoint of several tables has no snapshot of its own; each of its tables does.
NO_SNAPSHOT = 0


@dataclass(frozen=True)
class Member:
    """One of the tables, open."""

    table: Table
    committer: PaimonCommitter


class _Tables:
    """The tables of a query and what their journal says of them. Each is opened when it is needed."""

    beside = ""

    def __init__(self, place: Place, journal: FileJournal, options: SinkOptions, emit: Callable[[events.Event], None]):
        self.place = place
        self._emit = emit
        self._journal = journal
        self._options = options
        self.members: dict[str, Member] = {}  # those that are open, by name
        # Tables without which the pending record is published. No later record has a part for a table that lacks this
        # one's.
        self._left_out: Collection[str] = ()
        self._expected: Existing = list

    def expect_tables(self, paths: Existing) -> None:
        """paths(): (name, path) of the tables that must not know this application unless a record names them."""
        self._expected = paths

    def member(self, name: str, path: str, created: Table | None = None) -> Member:
        """The table at this path below the folder, opened once or just ``created``. Raises Misuse if there is none."""
        if name not in self.members:
            table = created or open_table(self.place.file_io, self.place.absolute(path), for_writing=True)
            self.members[name] = member = Member(
                check_tags(table, self._options),
                PaimonCommitter(
                    table,
                    self._options,
                    journal_of=self.place.root,
                    is_undone=lambda sequence: self._progress().is_undone(sequence, name, member),
                ),
            )
            member.committer.settles_later = self.place.file_io.is_distant
            member.committer.tell_of_iceberg(self._emit, self.place.application)
        return self.members[name]

    def at(self, name: str, path: str) -> str:
        """Path of the table as of ``InTable``. path: relative to the folder of the tables, of which ``beside`` is the
        path as of ``InTable``.
        """
        return path

    def check_there(self, name: str, path: str) -> None:
        """Raises Misuse when this table was dropped, or dropped and created again, since this process opened it."""
        self._progress().check_there(self.member(name, path))

    # -- what they have of a record -------------------------------------------------------------------------------

    def mentions(self, committable: Committable) -> bool:
        return any(member.committer.mentions(mine) for _, member, mine in self._parts(committable))

    def where_is(self, committable: Committable) -> MarkOfTables | None:
        found = {entry["name"]: member.committer.where_is(mine) for entry, member, mine in self._parts(committable)}
        known = {name: mark for name, mark in found.items() if mark is not None}
        return MarkOfTables(known) if known else None

    def is_readable(self, committable: Committable) -> bool:
        """Whether the record's manifests are there, as they were recorded."""
        return all(member.committer.is_readable(mine) for _, member, mine in self._parts(committable))

    def sees_all_since(self, committable: Committable) -> bool:
        return all(member.committer.sees_all_since(mine) for _, member, mine in self._parts(committable))

    def files_in_place(self, committable: Committable) -> tuple[int, int, tuple[str, ...]]:
        found = [member.committer.files_in_place(mine) for _, member, mine in self._parts(committable)]
        return sum(f[0] for f in found), sum(f[1] for f in found), tuple(path for f in found for path in f[2])

    def path_of_rows(self, committable: Committable) -> str:
        paths = (member.committer.path_of_rows(mine) for _, member, mine in self._parts(committable))
        return next(filter(None, paths), "")

    # -- parts -----------------------------------------------------------------------------------------------------

    def _by_table(self, records: Sequence[Committable]) -> dict[str, list[Committable]]:
        """By table name, the table's parts of these records, in order."""
        found: dict[str, list[Committable]] = {}
        for committable in records:
            for entry, _, mine in self._parts(committable):
                found.setdefault(entry["name"], []).append(mine)
        return found

    def _names_before(self) -> NameBefore:
        return NameBefore(self.place, self.member, self._expected, self._options)

    def _progress(self) -> TableProgress:
        return TableProgress(self.place, self._journal, self.member, self._options)

    def _chains(self) -> Chains:
        return Chains(self._progress())

    def _parts(self, committable: Committable) -> list[tuple[Mapping[str, Any], Member, Committable]]:
        """(entry of the record, open table, the table's own part as a record of that table) in the order of publishing.

        Tables that are left out of the pending record are not among them.
        """
        parts = own_parts(self.place, committable)
        kept = [(entry, mine) for entry, mine in parts if entry["name"] not in self._left_out]
        return [(entry, self.member(entry["name"], entry["path"]), mine) for entry, mine in kept]


class ManyTables(_Tables, Committer):
    """Publishes checkpoints of several append tables, as one snapshot for each table that has rows."""

    def __init__(self, place: Place, journal: FileJournal, options: SinkOptions, emit: Callable[[events.Event], None]):
        """journal: a reader of its own, which never claims. Raises Misuse for an option that cannot be had here."""
        check_options(place.root, options, several=True)
        super().__init__(place, journal, options, emit)
        self._clock = Clock()
        self._settled: Committable | None = None
        # In a distant store: the record that this process has published last, as long as it has recorded nothing since,
        # and where it was published, by table. So neither is looked up in the journal.
        self._last: tuple[Committable, Mapping[str, Mark]] | None = None
        # When all tables of that record were found to be at it.
        self._looked_ms = -math.inf
        # The tables that the next record names.
        self._staged: list[Table] = []

    # -- pre-commit ------------------------------------------------------------------------------------------------

    def had_before(self, checkpoint: Checkpoint, path_of: Callable[[str], str | None]) -> Sequence[Had]:
        """What tables have of the name that the query had before, if this is its first record under the new one.

        path_of(name): where the rules have a table now; None when they have no rule for it. Raises Misuse when a table
        has lost what it had.
        """
        key, _ = checkpoint.decision.leads_on or ("", 0)
        return self._names_before().tables(key, checkpoint.batch.query, path_of) if key else ()

    def stage(
        self,
        checkpoint: Checkpoint,
        written: Mapping[str, tuple[str, Sequence[WrittenFile]]],
        dead: Mapping[str, int],
        group: FlushGroup,
        *,
        had: Sequence[Had],
        at_once: Mapping[str, tuple[str, int]],
    ) -> tuple[tuple[StagedFile, ...], Mapping[str, Any]]:
        """Stage each table's manifest. Returns the files and the payload of the one record that names them all.

        All of it is durable when ``group`` is flushed. written: by table name, its path and its files. dead: numbers of
        dead letters, by the table that they were meant for. had: the result of ``had_before``; each of these tables
        gets a part, without files where it has no rows. at_once: by table name, as of ``PaimonCommitter.stage``. Raises
        Misuse when a table is not as the journal says, or when the record could not be published: then nothing is
        recorded.
        """
        staging = checkpoint.staging
        newest = self._last[0] if self._last else self._journal.newest()
        heads = dict(heads_in(newest))
        of_before = {each.name: each.to_json() for each in had}
        every = [file for _, mine in written.values() for file in mine]
        promise.see(self.place.file_io, self.place.root, staging, every)
        files: list[StagedFile] = []
        entries = []
        parts = sorted(parts_of_all(written, had).items())
        members = [self.member(name, path) for name, (path, _) in parts]
        self._staged = [member.table for member in members]
        with self._looking_at([name for name, _ in parts]):
            previous_of = {name: self._check_untouched(name, path, heads) for name, (path, _) in parts}
        for name, (path, mine) in parts:
            member, previous = self.member(name, path), previous_of[name]
            own = [replace(file, handed_over=False) for file in mine]
            part = member.committer.stage(staging, own, group, at_once=at_once.get(name))
            staged, of_table = part_from_root(self.place, staging, path, *part)
            files += staged
            entries.append(
                of_before.get(name, {})
                | {"name": name, "path": path, "table_id": member.table.table_id, "previous": previous}
                | of_table
            )
            heads[name] = {"path": path, "table_id": member.table.table_id, "sequence": checkpoint.sequence}
        payload = {
            "kind": "MANY",
            "tables": entries,
            "heads": heads,
            marks.PUBLISHED: marks.so_far_of(*self._last) if self._last else marks.so_far(self._journal, newest),
            "dead_letters": dict(dead),
        }
        return tuple(files), payload

    def _check_untouched(self, name: str, path: str, heads: Mapping[str, Any]) -> int:
        """The number of the last record that touched the table, 0 for none.

        Raises Misuse unless the table has that record as its last one, and is where its rule has it.
        """
        progress = self._progress()
        progress.expect(self._expected)  # its errors tell what all of the tables have, as those of a start do
        if name not in heads:
            progress.check_unknown(self.members[name])
            return 0
        if heads[name]["path"] != path:
            raise chain_errors.moved(self.place, name, path, heads[name]["path"])
        sequence: int = heads[name]["sequence"]
        if name in self._just_looked_at():
            return sequence
        settled = heads_in(self._settled).get(name)
        Chains(progress).check_head(name, self.members[name], settled)
        return sequence

    def _just_looked_at(self) -> Collection[str]:
        """Names of the tables that were found to be at their last record when the batch was admitted, a moment ago.

        In a distant store such an answer counts again, as it does in the first try of a commit.
        """
        if self._last is None or self._clock.monotonic_ms() - self._looked_ms > KEPT_MS:
            return ()
        return {entry["name"] for entry in self._last[0].payload["tables"]}

    def _looking_at(self, names: Sequence[str]) -> AbstractContextManager[None]:
        """Ask a distant store at once what is asked of the other ones of these tables, which are open."""
        others = [self.members[name].committer.questions() for name in names if name not in self._just_looked_at()]
        return self.place.file_io.asking_to_keep(sum(others, Questions()), more=True)

    # -- Committer -------------------------------------------------------------------------------------------------

    @property
    def settles_later(self) -> bool:  # type: ignore[override]  # nobody sets what the contract names
        return self.place.file_io.is_distant

    def asking(self, questions: Any, *, others: bool = False) -> AbstractContextManager[Any]:
        asked = questions if isinstance(questions, Questions) else Questions()
        # A record that is listed must be one that the look can see: so the tables are asked behind the listing.
        more = self._of_tables(self._last[0]) if self._last else Questions(names=(self._journal.place,))
        return self.place.file_io.asking_to_keep(asked + more)

    def _of_tables(self, record: Committable) -> Questions:
        """What is asked of the tables of this record, as far as they are open: one that is lost may not be."""
        found = [self.members.get(part["name"]) for part in record.payload["tables"]]
        return sum((member.committer.questions() for member in found if member is not None), Questions())

    def recording(self, create: Callable[[], None], questions: Any) -> None:
        self._last = None  # until this record is published
        owner = questions if isinstance(questions, Questions) else Questions()
        next_ones = [path for table in self._staged for path in table.snapshots.questions().size]
        self.place.file_io.ask_beside(create, Questions(size=(*next_ones, *owner.size)), shared=owner)

    def history(self, application: str) -> History:
        if self._last is not None and self._chains().is_at(self._last[0]):
            self._looked_ms = self._clock.monotonic_ms()
            return History(self._last[0].state, True)
        self._last = None
        self._journal.read_listing()
        self._left_out = self._chains().left_out()
        # If nothing is pending, and the last record's tables are as it left them, the other tables are looked at only
        # before they are written again. Otherwise all of them are looked at now.
        if self._settled is None or not self._is_last(self._settled):
            looking = functools.partial(looking_at_all, self.place, self.members, self.member)
            self._settled = self._chains().last_settled(self._expected, looking)
        return History(self._settled.state if self._settled else None, True)

    def _is_last(self, settled: Committable) -> bool:
        if self._journal.last_sequence() != settled.state.sequence:
            return False
        with self.place.file_io.asking(self._of_tables(settled)):
            return self._chains().is_at(settled)

    def state_alone(self, committable: Committable, *, held: bool = False) -> Committable:
        return state_alone(committable, held=held)

    def others(self, application: str) -> Mapping[str, LastOfOther]:
        return self._names_before().others(application)

    def has_reached(self, application: str, sequence: int, where: Where | None = None) -> bool:
        """True: each table is asked by itself, by what the first record under a new name says of it."""
        return True

    def places_of(self, committable: Committable) -> list[str]:
        """Paths of the tables that have their part of the record; none of a lost one.

        Raises Corrupt when it cannot be told.
        """
        found = []
        for entry, _ in own_parts(self.place, committable):
            path = self.place.absolute(entry["path"])
            if (
                is_table(self.place.file_io, path)
                and self.member(entry["name"], entry["path"]).table.table_id == entry["table_id"]
            ):
                has = self._progress().has_now(committable.state.sequence, entry["name"], entry["path"])
                found += [path] if has else []
        return found

    def without_the_lost(self) -> tuple[Sequence[str], str | None]:
        """(names of the lost tables, the option ``accept_as_seen`` that publishes the newest record in the others)."""
        chains = self._chains()
        lost = chains.lost()
        return lost, chains.option_without(lost)

    def publish(self, committable: Committable, *, expect: int, restored: bool, fence: Callable[[], None]) -> Published:
        state = committable.state
        published = self._settled.state.sequence if self._settled else 0
        if published not in (expect, state.sequence):
            raise Conflict(
                f"{self.place.root}: record {state.sequence} of application '{self.place.application}' follows record "
                f"{expect}, but record {published} is the last one that every table has. Nothing was published; "
                "restart the query",
                kind="tables.order",
            )
        attempts = 0
        tables: dict[str, Mark] = {}
        told: list[tuple[Member, Published]] = []
        for _, member, mine in self._parts(committable) if restored else ():
            member.committer.check_schemas(mine)  # before another table gets its part
        for entry, member, mine in self._parts(committable):
            fault_point("tables.before_table")
            if restored and self._progress().has_without_saying(member, mine):
                continue
            self._progress().check_name_before(member, entry)
            done = member.committer.publish(mine, expect=entry["previous"], restored=restored, fence=fence)
            attempts = max(attempts, done.attempts)
            if isinstance(done.where, Mark):
                tables[entry["name"]] = done.where
            told.append((member, done))
            what = (member.table.root, self.place.application, done.checkpoint_id, done.snapshot_id, mine.rows)
            self._emit(events.TablePublished(*what, len(mine.files), again=done.attempts == 0))
            fault_point("tables.table_published")
        self._settled = committable
        tell_dead_letters(self._emit, self.place, committable)
        settle = functools.partial(_settle, self._emit, self.place, told)
        if not self.settles_later or restored:
            settle()
        elif len(tables) == len(committable.payload["tables"]):
            self._last = committable, tables
        where = MarkOfTables(tables) if tables else None
        later = settle if self.settles_later and not restored else None
        return Published(state.checkpoint_id, NO_SNAPSHOT, attempts, where, settle=later)

    @contextmanager
    def restoring(self, records: Sequence[Committable]) -> Iterator[None]:
        with ExitStack() as stack:
            for name, mine in self._by_table(records).items():
                stack.enter_context(self.members[name].committer.restoring(mine))
            yield

    def sweep(self, published: Sequence[Committable]) -> list[str]:
        parts = self._by_table(published)
        return [path for name, member in self.members.items() for path in member.committer.sweep(parts.get(name, []))]


def _settle(emit: Callable[[events.Event], None], place: Place, published: Sequence[tuple[Member, Published]]) -> bool:
    """What is left to do in each table. Its events are told here, by table: the record as a whole has replaced none."""
    for member, done in published:
        if done.settle() if done.settle is not None else done.base_replaced:
            emit(events.SnapshotReplaced(member.table.root, place.application, done.snapshot_id - 1, ()))
    return False
