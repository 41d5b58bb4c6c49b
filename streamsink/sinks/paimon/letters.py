"""Dead letters beside one table: a part of the table's own records, published before the rest of them. Driver only.

A record that names dead letters is published with them, whether or not the query has the option by then. See
docs/design/0011-dead-letters.md.
"""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from streamsink import events
from streamsink.errors import Corrupt, Misuse, Retryable
from streamsink.faults import fault_point
from streamsink.format.manifest import ManifestEntry
from streamsink.format.snapshot import APPEND
from streamsink.options import (
    MODE_APPEND,
    ON_ROLLBACK_FAIL,
    SNAPSHOT_PER_CHECKPOINT,
    SYNC,
    SinkOptions,
    with_word,
    words_of,
)
from streamsink.protocol import ways
from streamsink.protocol.committable import DEAD_LETTERS, AppState, Committable, StagedFile
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.journal import Mark
from streamsink.protocol.run.restore import IS_PUBLISHED, MAY_OVERWRITE, token_of
from streamsink.protocol.sink import History, Published
from streamsink.sinks.paimon import promise
from streamsink.sinks.paimon.committer import PaimonCommitter
from streamsink.sinks.paimon.many_tables import Member, Place
from streamsink.storage.flush_group import FlushGroup
from streamsink.table.routed.rules import Routing
from streamsink.table.table import Table, is_table, open_table
from streamsink.table.write.spec import WrittenFile

# In what the table's state carries: by name of a table for dead letters, its id, the key below which it knows this table, and the number
# of the last record that it has, and where that was published.
_HEADS = "dead_letters"
# An id of a table is a digest; so much of it tells tables of one name apart.
_ID_LETTERS = 12
# In a head, as a mark: where the record's dead letters were published. In a record's part: where those before it were.
_AT, _HAD_AT = "at", "had_at"


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
        super().__init__(table, options, entries)
        self._emit = emit
        self._of_letters: dict[str, tuple[Table, PaimonCommitter]] = {}
        self._history: History | None = None

    def for_background(self) -> "TableCommitter":
        other = super().for_background()
        other._emit = self._emit
        return other

    # -- tables for dead letters -----------------------------------------------------------------------------------

    def path_of(self, name: str) -> str:
        """Of the table for dead letters with this name: it lies beside the table."""
        return f"{self._table.root.rpartition('/')[0]}/{name}"

    def letters(self, name: str) -> tuple[Table, PaimonCommitter]:
        """The table for dead letters with this name, and its committer; opened once. Raises Misuse when there is none."""
        if name not in self._of_letters:
            # What the query asks of its table is nothing that the other one has to do.
            options = replace(
                self._options,
                mode=MODE_APPEND,
                overwrite_partition=None,
                on_rollback=ON_ROLLBACK_FAIL,
                publish=SYNC,
                publish_every_batches=1,
                publish_interval_ms=0,
                publish_as=SNAPSHOT_PER_CHECKPOINT,
                lock_id=None,
            )
            table = open_table(self._table.file_io, self.path_of(name), for_writing=True)
            self._of_letters[name] = (
                table,
                PaimonCommitter(table, options, journal_of=self._table.root, is_undone=lambda sequence: False),
            )
        return self._of_letters[name]

    def look_after(self, name: str) -> None:
        """A restore removes what dead processes left in this table for dead letters, too."""
        if is_table(self._table.file_io, self.path_of(name)):
            self.letters(name)

    # -- pre-commit ------------------------------------------------------------------------------------------------

    def stage_letters(
        self, staging: str, sequence: int, name: str, written: Sequence[WrittenFile], group: FlushGroup
    ) -> Mapping[str, Any]:
        """What the payload of the record is to say of these dead letters; durable when ``group`` is flushed.

        Raises Misuse when their table is not as the last record has left it: then nothing is recorded.
        """
        (table, committer), key = self.letters(name), self._key
        with self._unless_replaced(name):
            previous, had = self._previous(name, sequence), self._heads().get(name, {})
            files, payload = committer.stage(staging, written, group)
        folder, manifest = self._table.layout.relative(staging), payload["manifest"]
        part = {
            "name": name,
            "table_id": table.table_id,
            "key": key,
            "previous": previous,
            "base": payload["base"],
            "manifest": {**manifest, "staged": os.path.join(folder, os.path.basename(manifest["staged"]))},
            "files": [
                replace(file, staged=os.path.join(folder, os.path.basename(file.staged))).to_json() for file in files
            ],
            **({_HAD_AT: had[_AT]} if previous and _AT in had else {}),
        }
        heads = {**self._heads(), name: {"table_id": table.table_id, "key": key, "sequence": sequence}}
        return {DEAD_LETTERS: part, "carried": {_HEADS: heads}}

    @property
    def _key(self) -> str:
        """Under this name tables for dead letters know this application of this table: no query has it."""
        return f"{self._options.application}@{self._table.root.rpartition('/')[2]}@{self._table.table_id[:_ID_LETTERS]}"

    def check_known(self, name: str) -> None:
        """Raises Misuse when the table for dead letters, if there is one, has a record that this table does not know.

        Called when nothing is pending: a record of which only the dead letters are published is no reason.
        """
        self.look_after(name)
        head = self._heads().get(name)
        with self._unless_replaced(name):
            history = self.letters(name)[1].history(self._key) if name in self._of_letters else None
        found = history.state.sequence if history and history.state else 0
        known = head["sequence"] if head and head["key"] == self._key else 0
        if found > known and (self._history.state is not None or self._history.complete):
            raise _unknown(self.path_of(name), self._table.root, self._options.application, found)

    @contextmanager
    def _unless_replaced(self, name: str) -> Iterator[None]:
        """What is said of a table that the query writes, when it is dropped under the query, is wrong for this one."""
        try:
            yield
        except Misuse as gone:
            if gone.kind not in ("table.gone", "table.recreated"):
                raise
            raise Retryable(
                f"{self.path_of(name)}: this table for dead letters was dropped, or dropped and created again, under the running query. The next "
                "start of the query looks what it has, and says what to do where dead letters are missing",
                kind="dead-letters.replaced",
            ) from gone

    def _heads(self) -> Mapping[str, Mapping[str, Any]]:
        state = self._history.state if self._history else None
        return heads_of(state) if state else {}

    def _previous(self, name: str, sequence: int) -> int:
        """The number of the last record that the table for dead letters has, which must be the last one that went there; 0 for none.

        sequence: of the record that is about to name some; their table takes none up to the number that it has."""
        self.check_known(name)
        table, committer = self.letters(name)
        head = self._heads().get(name)
        history = committer.history(self._key)
        found = history.state.sequence if history.state else 0
        if found >= sequence:
            raise _unknown(self.path_of(name), self._table.root, self._options.application, found)
        if head is None or head["key"] != self._key:
            return found
        if head["table_id"] == table.table_id and _has_reached(committer, self._key, head["sequence"], head.get(_AT)):
            return head["sequence"]
        raise Misuse(
            f"{table.root}: record {head['sequence']} of application '{self._options.application}' of {self._table.root} has dead letters in it, "
            "and the table does not say so: it was dropped, recreated, rolled back or restored since. Nothing was recorded or published. "
            f"Restore the table; or set dead_letters to another name than '{name}', under which a new table begins",
            kind="dead-letters.changed",
        )

    # -- Committer -------------------------------------------------------------------------------------------------

    def history(self, application: str) -> History:
        self._history = super().history(application)
        return self._history

    def join(self, records: Sequence[Committable]) -> list[Committable]:
        """A record with dead letters stays alone: its number is the one that their table knows."""
        found: list[Committable] = []
        for has_letters, run in itertools.groupby(records, lambda record: DEAD_LETTERS in record.payload):
            found += list(run) if has_letters else super().join(list(run))
        return found

    def publish(self, committable: Committable, *, expect: int, restored: bool, fence: Callable[[], None]) -> Published:
        found = {}
        for part, mine in self._parts((committable,)):
            self._publish_letters(part, mine, restored=restored, fence=fence)
            found[part["name"]] = self.letters(part["name"])[1].where_is(mine)
        committable = _saying_where(committable, found, self._heads())
        done = super().publish(committable, expect=expect, restored=restored, fence=fence)
        # A batch may find that records are to be published again: what it looked at before is not what its own record follows.
        self._history = History(committable.state, complete=True)
        return done

    def _publish_letters(
        self, part: Mapping[str, Any], mine: Committable, *, restored: bool, fence: Callable[[], None]
    ) -> None:
        fault_point("letters.before_publish")
        self._check_there(part, mine)
        table, committer = self.letters(part["name"])
        if not (restored and self._has_or_is_said_to(part, mine)):
            with self._unless_replaced(part["name"]):
                done = committer.publish(mine, expect=part["previous"], restored=restored, fence=fence)
            self._emit(
                events.TablePublished(
                    table.root,
                    self._options.application,
                    done.checkpoint_id,
                    done.snapshot_id,
                    mine.rows,
                    len(mine.files),
                )
            )
        fault_point("letters.published")
        target = self._table.root.rpartition("/")[2]
        self._emit(
            events.RowsDeadLettered(
                self._table.root, self._options.application, mine.state.checkpoint_id, target, mine.rows
            )
        )

    def _has(self, part: Mapping[str, Any], mine: Committable) -> bool:
        """Whether the table for dead letters has them although its newest snapshot does not name the record: it speaks of a later one, or has
        expired, or was replaced by another writer's rename."""
        _, committer = self.letters(part["name"])
        state = committer.history(part["key"]).state
        # They are published in order; numbers that were given up come again behind what the table had then.
        if state is not None and part["previous"] < mine.state.sequence < state.sequence:
            return True
        return (state is None or state.record_id != mine.state.record_id) and committer.mentions(mine)

    def _has_or_is_said_to(self, part: Mapping[str, Any], mine: Committable) -> bool:
        """As ``_has``. Raises Corrupt when nothing that is retained can tell, until the user does by a token."""
        if self._has(part, mine):
            return True
        table, committer = self.letters(part["name"])
        word = token_of(mine, f"dead letters published in {table.root}")
        if word in words_of(self._options.accept_as_seen):
            return True
        history = committer.history(part["key"])
        is_known = history.state is not None or history.complete or committer.sees_all_since(mine)
        if is_known or word in words_of(self._options.accept_as_new):
            return False
        others = {token_of(mine, question) for question in (IS_PUBLISHED, MAY_OVERWRITE)}
        as_seen, as_new = (
            with_word(given, word, others) for given in (self._options.accept_as_seen, self._options.accept_as_new)
        )
        raise Corrupt(
            f"{table.root}: the {mine.rows} dead letters of record {mine.state.sequence} of application '{self._options.application}', "
            f"{mine.state.checkpoint_name}, which is pending in {self._table.root}, may be in this table: snapshots since the record was made have "
            "expired, so it cannot be told. Nothing of the record was published. Look whether they are there. If they are, set "
            f"accept_as_seen='{as_seen}', which leaves this table as it is. If they are not, set accept_as_new='{as_new}', which publishes them. "
            "The other rows of the record are published in either case",
            kind="dead-letters.undecidable",
        )

    def _is_there(self, part: Mapping[str, Any]) -> bool:
        path = self.path_of(part["name"])
        return is_table(self._table.file_io, path) and self.letters(part["name"])[0].table_id == part["table_id"]

    def _can_take(self, part: Mapping[str, Any]) -> bool:
        """Whether the table for dead letters is there, and has what it had when the record was made."""
        if not self._is_there(part):
            return False
        return not part["previous"] or _has_reached(
            self.letters(part["name"])[1], part["key"], part["previous"], part.get(_HAD_AT)
        )

    def _check_there(self, part: Mapping[str, Any], mine: Committable) -> None:
        if not self._can_take(part):
            raise Misuse(
                f"{self.path_of(part['name'])}: record {mine.state.sequence} of application '{self._options.application}' is pending in "
                f"{self._table.root}, with {mine.rows} dead letters for this table, which was dropped, recreated or rolled back since. Nothing was "
                f"published. Restore the table. {ways.give_up(self._table.root, self._options.application)}",
                kind="dead-letters.gone",
            )

    def is_readable(self, committable: Committable) -> bool:
        """Whether its manifests are as they were recorded, and its dead letters are published or can be."""
        for part, mine in self._parts((committable,)):
            if not self._can_take(part):
                return False
            _, committer = self.letters(part["name"])
            if not self._has(part, mine) and (committer.files_in_place(mine)[2] or not committer.is_readable(mine)):
                return False
        return super().is_readable(committable)

    def places_of(self, committable: Committable) -> list[str]:
        beside = [
            self.path_of(part["name"])
            for part, mine in self._parts((committable,))
            if self._is_there(part) and self.letters(part["name"])[1].mentions(mine)
        ]
        return [*super().places_of(committable), *beside]

    def _parts(self, records: Iterable[Committable]) -> list[tuple[Mapping[str, Any], Committable]]:
        """(what the record says of its dead letters, those as a record of their own table), of the records that have some."""
        found, within = [], self._table.layout.within
        for record in records:
            part = record.payload.get(DEAD_LETTERS)
            if part is not None:
                manifest = {**part["manifest"], "staged": within(part["manifest"]["staged"])}
                files = tuple(
                    StagedFile.from_json({**file, "staged": within(file["staged"])}) for file in part["files"]
                )
                payload = {"kind": APPEND, "manifest": manifest, "base": part["base"]}
                found.append((part, Committable(record.state, part["key"], record.watermark_ms, files, payload)))
        return found

    def sweep(self, published: Sequence[Committable]) -> list[str]:
        removed = super().sweep(published)
        by_name: dict[str, list[Committable]] = {name: [] for name in self._of_letters}
        for part, mine in self._parts(published):
            if self._is_there(part):
                by_name.setdefault(part["name"], []).append(mine)
        return removed + [path for name, mine in by_name.items() for path in self.letters(name)[1].sweep(mine)]


def heads_of(state: AppState) -> Mapping[str, Mapping[str, Any]]:
    """By name, of each table that dead letters of the application went to: its id, the key there, and the number of the last record."""
    return state.carried.get(_HEADS, {})


def _saying_where(
    committable: Committable, found: Mapping[str, Mark | None], before: Mapping[str, Mapping[str, Any]]
) -> Committable:
    """The table's state says where its dead letters are: when their table says nothing any more, it shows whether they went with a rollback.

    found: by name, where those of this record are. before: heads that the table has; the record, which was made while they were published,
    may repeat them without their places.
    """
    heads = dict(heads_of(committable.state))
    for name, head in heads.items():
        if found.get(name) is not None:
            heads[name] = {**head, _AT: found[name].to_json()}
        elif name in before and {**before[name], **head} == before[name]:
            heads[name] = before[name]
    if heads == heads_of(committable.state):
        return committable
    return replace(committable, state=replace(committable.state, carried={**committable.state.carried, _HEADS: heads}))


def _unknown(letters: str, root: str, application: str, found: int) -> Misuse:
    """letters, root: paths of the table for dead letters, and of the one that they are of. found: a record that only the first one has."""
    return Misuse(
        f"{letters}: it has dead letters of record {found} of application '{application}', and the table {root} knows "
        "nothing of that record: it was given up, or the table or its journal was removed, restored or rolled back since. Nothing was "
        "recorded or published. Restore it; or, as the rows of that record come again, and these are dead letters of them by now, set dead_letters to "
        f"another name than '{letters.rpartition('/')[2]}', under which a new table begins",
        kind="dead-letters.unknown-record",
    )


def _has_reached(committer: PaimonCommitter, key: str, sequence: int, at: Mapping[str, Any] | None) -> bool:
    """As ``PaimonCommitter.has_reached``. at: a mark, as JSON has it."""
    return committer.has_reached(key, sequence, Mark.from_json(at) if at is not None else None)


class TableAndLetters:
    """One table and the one for its dead letters, as ``RoutedTables`` wants to see several."""

    def __init__(self, table: Table, committer: TableCommitter, routing: Routing):
        self._committer = committer
        self._table = table
        self._letters = routing.dead_letters
        self._is_checked = False  # whether the table for dead letters has no record that the table does not know
        self.place = Place(table.file_io, routing.root, "", table.table_id)

    def member(self, name: str, path: str) -> Member:
        """An open table. Raises Misuse when there is none."""
        return Member(*self._committer.letters(name)) if name == self._letters else Member(self._table, self._committer)

    def check_there(self, name: str, path: str) -> None:
        """As ``ManyTables.check_there``."""
        self.member(name, path).table.check_identity()

    def had_before(self, checkpoint: Checkpoint, path_of: Callable[[str], str | None]) -> tuple[()]:
        """As ``ManyTables.had_before``; of one table the restore looks what it has of the query's name before."""
        return ()

    def stage(
        self,
        checkpoint: Checkpoint,
        written: Mapping[str, tuple[str, Sequence[WrittenFile]]],
        dead: Mapping[str, int],
        group: FlushGroup,
        *,
        had: Sequence[Any],
    ) -> tuple[tuple[StagedFile, ...], Mapping[str, Any]]:
        """As ``ManyTables.stage``: files and payload of the one record."""
        staging = checkpoint.staging
        promise.see(
            self._table.file_io, self._table.root, staging, [file for _, mine in written.values() for file in mine]
        )
        files = {name: [replace(file, handed_over=False) for file in mine] for name, (_, mine) in written.items()}
        letters = files.pop(self._letters, [])
        if not self._is_checked:
            self._committer.check_known(self._letters)
            self._is_checked = True
        staged, payload = self._committer.stage(
            staging, [file for mine in files.values() for file in mine], group, leads_on=checkpoint.decision.leads_on
        )
        if letters:
            payload = {
                **payload,
                **self._committer.stage_letters(staging, checkpoint.sequence, self._letters, letters, group),
            }
        return staged, payload
