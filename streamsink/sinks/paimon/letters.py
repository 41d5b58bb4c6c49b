"""Dead letters beside one table: a part of the table's own records, published before the rest of them. Driver only.

A record that names dead letters is published with them, whether or not the query still has the option by then. See
docs/design/0011-dead-letters.md.
"""

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, cast

from streamsink import events
from streamsink.faults import fault_point
from streamsink.format.manifest import ManifestEntry
from streamsink.options import ASYNC, SinkOptions
from streamsink.protocol.committable import DEAD_LETTERS, Committable, StagedFile
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.journal import Mark, Where
from streamsink.protocol.sink import History
from streamsink.sinks.paimon import promise
from streamsink.sinks.paimon.committer import PaimonCommitter
from streamsink.sinks.paimon.letter_tables import LetterTables, saying_where
from streamsink.sinks.paimon.many_tables import Member
from streamsink.sinks.paimon.past.place import Place
from streamsink.sinks.paimon.restoring import check_last
from streamsink.storage.flush_group import FlushGroup
from streamsink.storage.reading import Questions
from streamsink.table.table import Table
from streamsink.table.write.spec import WrittenFile


class TableCommitter(PaimonCommitter):
    """Publishes checkpoints of one table, with the dead letters that their records name."""

    def __init__(
        self,
        table: Table,
        options: SinkOptions,
        entries: dict[str, list[ManifestEntry]] | None = None,
        *,
        emit: Callable[[events.Event], None] = lambda event: None,
    ):
        """entries: as in ``PaimonCommitter``. emit: takes the events of dead letters."""
        super().__init__(table, options, entries)
        self._emit = emit
        self.letters = LetterTables(table, options)
        self._tell_of_iceberg(self)

    def _tell_of_iceberg(self, committer: PaimonCommitter) -> None:
        committer.tell_of_iceberg(lambda event: self._emit(event), self._options.application)

    @property
    def settles_later(self) -> bool:  # type: ignore[override]  # nobody sets what the contract names
        """In a distant store, where batches publish, each of them or the last one of a group."""
        return self._table.file_io.is_distant and self._options.publish != ASYNC

    def for_background(self) -> "TableCommitter":
        other = cast(TableCommitter, super().for_background())  # it makes a committer of the class of this one
        other._emit = self._emit
        return other

    def asking(self, questions: Any, *, others: bool = False) -> AbstractContextManager[Any]:
        asked = questions if isinstance(questions, Questions) else Questions()
        return super().asking(asked + self.letters.questions(), others=others)

    def history(self, application: str) -> History:
        history = super().history(application)
        self.letters.see(history)
        self.letters.look()
        return history

    def next_snapshots(self) -> tuple[str, ...]:
        return (*super().next_snapshots(), *self.letters.next_snapshots())

    def join(self, records: Sequence[Committable]) -> list[Committable]:
        """As ``PaimonCommitter.join``, but a record with dead letters stays alone: their table knows its number."""
        found: list[Committable] = []
        for has_letters, run in itertools.groupby(records, lambda record: DEAD_LETTERS in record.payload):
            found += list(run) if has_letters else super().join(list(run))
        return found

    def publish_first(self, committable: Committable, *, restored: bool, fence: Callable[[], None]) -> Committable:
        """Publish the record's dead letters. The record then says where they are.

        It is known when this returns that their snapshot came in time: the table says that they are there.
        """
        found = {}
        if restored:
            self.check_schemas(committable)  # before the letters' table gets its part
        for part, mine in self.letters.parts((committable,)):
            found[part["name"]] = self._publish_letters(part, mine, restored=restored, fence=fence)
        return saying_where(committable, found, self.letters.heads())

    def see_published(self, committable: Committable) -> None:
        # A batch may find that earlier records are to be published again. Then what ``history`` said before that is not
        # what the batch's own record follows.
        self.letters.see(History(committable.state, complete=True))

    def _publish_letters(
        self, part: Mapping[str, Any], mine: Committable, *, restored: bool, fence: Callable[[], None]
    ) -> Mark | None:
        """Returns where they are."""
        fault_point("letters.before_publish")
        if restored:  # otherwise the commit finds the table as the record was made for it, or raises
            self.letters.check_there(part, mine)
        where: Where | None = None
        table, committer = self.letters.open(part["name"])
        self._tell_of_iceberg(committer)
        application, checkpoint_id = self._options.application, mine.state.checkpoint_id
        has = restored and self.letters.has_or_is_said_to(part, mine)
        if restored:  # a driver that has published them may have died before its check
            check_last(table, (mine,))
        if not has:
            with self.letters.unless_replaced(part["name"]):
                done = committer.publish(mine, expect=part["previous"], restored=restored, fence=fence)
            where, has, size = done.where, done.attempts == 0, (mine.rows, len(mine.files))
            self._emit(
                events.TablePublished(table.root, application, done.checkpoint_id, done.snapshot_id, *size, again=has)
            )
        fault_point("letters.published")
        root = self._table.root
        target = root.rpartition("/")[2]
        self._emit(events.RowsDeadLettered(root, application, checkpoint_id, target, mine.rows, again=has))
        return where if isinstance(where, Mark) else committer.where_is(mine)

    def is_readable(self, committable: Committable) -> bool:
        """Whether the record's manifests are as they were recorded, and its dead letters are published or can be."""
        parts = self.letters.parts((committable,))
        return all(self.letters.is_readable(part, mine) for part, mine in parts) and super().is_readable(committable)

    def places_of(self, committable: Committable) -> list[str]:
        """Paths of the table and of tables for dead letters where a retained snapshot names a file of the record."""
        beside = [
            self.letters.path_of(part["name"])
            for part, mine in self.letters.parts((committable,))
            if self.letters.is_there(part) and self.letters.open(part["name"])[1].mentions(mine)
        ]
        return [*super().places_of(committable), *beside]

    def sweep(self, published: Sequence[Committable]) -> list[str]:
        return super().sweep(published) + self.letters.sweep(published)


class TableAndLetters:
    """One table and the one for its dead letters, with the methods of ``ManyTables`` that ``RoutedTables`` calls."""

    beside = "../"

    def __init__(self, table: Table, committer: TableCommitter, root: str, letters: str):
        """root: path of the folder that holds both tables. letters: name of the table for dead letters."""
        self._committer = committer
        self._table = table
        self._letters = letters
        self._is_checked = False  # whether the table for dead letters has no record that the table does not know
        self.place = Place(table.file_io, root, "", table.table_id)

    @property
    def members(self) -> Collection[str]:
        """Names of the tables that are open."""
        own = self._table.root.rpartition("/")[2]
        return [own, *([self._letters] if self._committer.letters.is_open(self._letters) else [])]

    def member(self, name: str, path: str, created: Table | None = None) -> Member:
        """As ``ManyTables.member``."""
        if name == self._letters:
            return Member(*self._committer.letters.open(name, created))
        return Member(self._table, self._committer)

    def at(self, name: str, path: str) -> str:
        """As ``ManyTables.at``: the journal lies in the table."""
        return f"{self.beside}{name}" if name == self._letters else ""

    def check_there(self, name: str, path: str) -> None:
        """As ``ManyTables.check_there``."""
        with self._committer.letters.unless_replaced(name) if name == self._letters else nullcontext():
            self.member(name, path).table.check_identity()

    def had_before(self, checkpoint: Checkpoint, path_of: Callable[[str], str | None]) -> tuple[()]:
        """Nothing: of one table the restore looks up what it has of the query's name before."""
        return ()

    def stage(
        self,
        checkpoint: Checkpoint,
        written: Mapping[str, tuple[str, Sequence[WrittenFile]]],
        dead: Mapping[str, int],
        group: FlushGroup,
        *,
        had: Sequence[Any],
        at_once: Mapping[str, tuple[str, int]],
    ) -> tuple[tuple[StagedFile, ...], Mapping[str, Any]]:
        """As ``ManyTables.stage``: the files and the payload of the one record, durable when ``group`` is flushed."""
        staging, letters = checkpoint.staging, self._committer.letters
        every = [file for _, mine in written.values() for file in mine]
        promise.see(self._table.file_io, self._table.root, staging, every)
        files = {name: [replace(file, handed_over=False) for file in mine] for name, (_, mine) in written.items()}
        dead_letters = files.pop(self._letters, [])
        if not self._is_checked:
            letters.check_known(self._letters)
            self._is_checked = True
        letters.begin()
        own = [file for mine in files.values() for file in mine]
        named = next((at_once[name] for name in files if name in at_once), None)
        staged, payload = self._committer.stage(
            staging, own, group, leads_on=checkpoint.decision.leads_on, at_once=named
        )
        if dead_letters:
            named = at_once.get(self._letters)
            part = letters.stage(checkpoint, self._letters, dead_letters, group, at_once=named)
            payload = {**payload, **part}
        return staged, payload
