"""The tables for dead letters beside one table: what they have, and what they can take. Driver only."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from streamsink.clock import Clock
from streamsink.errors import Corrupt, Misuse, Retryable, StreamsinkError
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
from streamsink.protocol.sink import History
from streamsink.sinks.paimon.committer import PaimonCommitter
from streamsink.sinks.paimon.past.records import from_staging, named_in, staged_in
from streamsink.storage.flush_group import FlushGroup
from streamsink.storage.reading import KEPT_MS, Questions
from streamsink.table.table import Table, is_table, open_table
from streamsink.table.write.spec import WrittenFile

# In what the table's state carries: by name of a table for dead letters, that table's id, the key below which it knows
# this table, the number of the last record that it has, and where that was published.
_HEADS = "dead_letters"
# An id of a table is a digest; so much of it tells tables of one name apart.
_ID_LETTERS = 12
# _AT: in a head, as a mark, where the record's dead letters were published. _HAD_AT: in a record's part, where those
# before it were.
_AT, _HAD_AT = "at", "had_at"


class _Opened:
    """The tables for dead letters of one table, each opened once, and looked at ahead where the store is distant."""

    def __init__(self, table: Table, options: SinkOptions):
        """table: the one whose rows the dead letters could not become. options: of its query."""
        self._table = table
        self._options = options
        self._opened: dict[str, tuple[Table, PaimonCommitter]] = {}
        self._history = History(None, complete=False)
        self._clock = Clock()
        # Names of the tables that get dead letters of the record that is made, or that the last one had some for.
        self._used: list[str] = []
        # What these say, in a distant store, and when they were asked.
        self._looked: tuple[Mapping[str, History], float] = ({}, 0)

    def see(self, history: History) -> None:
        """history: what the table says now; nothing is known of it before the first call."""
        self._history = history
        self._looked = {}, 0  # dead letters may have been published since

    def questions(self) -> Questions:
        """What ``look`` asks."""
        return sum((self._opened[name][1].questions() for name in self._used), Questions())

    def look(self) -> None:
        """In a distant store, ask the tables to which the last dead letters went, as it is asked of others anyway.

        The answers count in ``stage``, if that follows within a few seconds. One that has an error to tell tells it
        then.
        """
        found = {}
        for name in self._used if self._table.file_io.is_distant else ():
            with suppress(StreamsinkError, OSError):
                found[name] = self._opened[name][1].history(self._key)
        self._looked = found, self._clock.monotonic_ms()

    def next_snapshots(self) -> list[str]:
        """Paths of the snapshots that the record's dead letters will be in, if nobody else is first."""
        return [path for name in self._used for path in self._opened[name][0].snapshots.questions().size]

    def begin(self) -> None:
        """A record is made; ``stage`` is called if it has dead letters."""
        self._used = []

    def _history_of(self, name: str) -> History:
        """What the table for dead letters, which is open, says now, or has said a moment ago."""
        found, at_ms = self._looked
        if name in found and self._clock.monotonic_ms() - at_ms < KEPT_MS:
            return found[name]
        committer = self._opened[name][1]
        with self._table.file_io.asking_to_keep(committer.questions(), more=True):
            return committer.history(self._key)

    def path_of(self, name: str) -> str:
        """Path of the table for dead letters with this name: it lies beside the table."""
        return f"{self._table.root.rpartition('/')[0]}/{name}"

    def open(self, name: str, created: Table | None = None) -> tuple[Table, PaimonCommitter]:
        """The table for dead letters with this name, and its committer. created: as of ``ManyTables.member``.

        Raises Misuse when there is none.
        """
        if name not in self._opened:
            # What the query asks for its own table does not hold for this one.
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
            table = created or open_table(self._table.file_io, self.path_of(name), for_writing=True)
            committer = PaimonCommitter(table, options, journal_of=self._table.root, is_undone=lambda sequence: False)
            self._opened[name] = (table, committer)
        return self._opened[name]

    def is_open(self, name: str) -> bool:
        """Whether ``open`` has this table already."""
        return name in self._opened

    def look_after(self, name: str) -> None:
        """Open this table for dead letters if it exists, so that a restore sweeps what dead processes left in it."""
        if name not in self._opened and is_table(self._table.file_io, self.path_of(name)):
            self.open(name)

    @contextmanager
    def unless_replaced(self, name: str) -> Iterator[None]:
        """Within it the table for dead letters is read or written.

        Raises Retryable when it was dropped, or dropped and recreated. What is said of a table that the query itself
        writes, when that is dropped under the query, would be wrong for this one.
        """
        try:
            yield
        except Misuse as gone:
            if gone.kind not in ("table.gone", "table.recreated"):
                raise
            raise Retryable(
                f"{self.path_of(name)}: this table for dead letters was dropped, or dropped and created again, under "
                "the running query. The next start of the query looks what it has, and says what to do where dead "
                "letters are missing",
                kind="dead-letters.replaced",
            ) from gone

    @property
    def _key(self) -> str:
        """The name under which tables for dead letters know this application of this table. No query can have it."""
        return f"{self._options.application}@{self._table.root.rpartition('/')[2]}@{self._table.table_id[:_ID_LETTERS]}"


class LetterTables(_Opened):
    """What the tables for dead letters of one table have, and what they can take.

    A *part* is what a record of the table says of its dead letters; they are also a record of their own table
    (``parts``).
    """

    # -- pre-commit ------------------------------------------------------------------------------------------------

    def stage(
        self,
        checkpoint: Checkpoint,
        name: str,
        written: Sequence[WrittenFile],
        group: FlushGroup,
        *,
        at_once: tuple[str, int] | None,
    ) -> Mapping[str, Any]:
        """What the payload of the checkpoint's record is to say of these dead letters.

        Durable when ``group`` is flushed. at_once: as of ``PaimonCommitter.stage``. Raises Misuse when their table is
        not as the last record has left it: then nothing is recorded.
        """
        (table, committer), key = self.open(name), self._key
        staging, sequence = checkpoint.staging, checkpoint.sequence
        self._used = [name]
        with self.unless_replaced(name):
            previous, had = self._previous(name, sequence), self.heads().get(name, {})
            files, payload = committer.stage(staging, written, group, at_once=at_once)
        folder, manifest = self._table.layout.relative(staging), payload["manifest"]
        part = {
            "name": name,
            "table_id": table.table_id,
            "key": key,
            "previous": previous,
            "base": payload["base"],
            "manifest": staged_in(folder, manifest),
            "files": [staged_in(folder, file.to_json()) for file in files],
            **named_in(payload),
            **({_HAD_AT: had[_AT]} if previous and _AT in had else {}),
        }
        heads = {**self.heads(), name: {"table_id": table.table_id, "key": key, "sequence": sequence}}
        return {DEAD_LETTERS: part, "carried": {_HEADS: heads}}

    def check_known(self, name: str) -> History | None:
        """Raises Misuse when the table for dead letters, if there is one, has a record that this table does not know.

        Called when nothing is pending, because the dead letters of a pending record may be published without the rest
        of it. Returns what the table says of this one, None when there is no table.
        """
        self.look_after(name)
        head = self.heads().get(name)
        with self.unless_replaced(name):
            history = self._history_of(name) if name in self._opened else None
        found = history.state.sequence if history and history.state else 0
        known = head["sequence"] if head and head["key"] == self._key else 0
        if found > known and (self._history.state is not None or self._history.complete):
            raise _unknown(self.path_of(name), self._table.root, self._options.application, found)
        return history

    def heads(self) -> Mapping[str, Mapping[str, Any]]:
        """What the table says now of each of its tables for dead letters; see ``heads_of``."""
        return heads_of(self._history.state) if self._history.state else {}

    def _previous(self, name: str, sequence: int) -> int:
        """The number of the last record that the table for dead letters has, 0 for none.

        sequence: of the record that is about to name some; the table takes only numbers above the last one that it has.
        Raises Misuse unless that is the last record that has put dead letters there.
        """
        history = self.check_known(name) or self._history_of(name)
        table, committer = self.open(name)
        head = self.heads().get(name)
        found = history.state.sequence if history.state else 0
        if found >= sequence:
            raise _unknown(self.path_of(name), self._table.root, self._options.application, found)
        if head is None or head["key"] != self._key:
            return found
        last: int = head["sequence"]
        is_told = history.state is not None or history.complete
        if head["table_id"] == table.table_id and (
            found >= last if is_told else _has_reached(committer, self._key, last, head.get(_AT))
        ):
            return last
        raise Misuse(
            f"{table.root}: record {last} of application '{self._options.application}' of {self._table.root} has dead "
            "letters in it, and the table does not say so: it was dropped, recreated, rolled back or restored since. "
            f"Nothing was recorded or published. Restore the table; or set dead_letters to another name than '{name}', "
            "under which a new table begins",
            kind="dead-letters.changed",
        )

    # -- parts of records ------------------------------------------------------------------------------------------

    def parts(self, records: Iterable[Committable]) -> list[tuple[Mapping[str, Any], Committable]]:
        """(the part, its dead letters as a record of their own table) of each of these records that has some."""
        found, layout = [], self._table.layout
        for record in records:
            part = record.payload.get(DEAD_LETTERS)
            if part is not None:
                manifest = from_staging(layout, part["manifest"])
                files = tuple(StagedFile.from_json(from_staging(layout, file)) for file in part["files"])
                payload = {"kind": APPEND, "manifest": manifest, "base": part["base"], **named_in(part)}
                found.append((part, Committable(record.state, part["key"], record.watermark_ms, files, payload)))
        return found

    def has(self, part: Mapping[str, Any], mine: Committable) -> bool:
        """Whether the table for dead letters has them although its newest snapshot does not name the record.

        The snapshot may name a later record; the one that named this record may have expired, or was replaced by
        another writer's rename.
        """
        _, committer = self.open(part["name"])
        state = committer.history(part["key"]).state
        # They are published in order. Numbers that were given up are used again, above what the table had then.
        if state is not None and part["previous"] < mine.state.sequence < state.sequence:
            return True
        return (state is None or state.record_id != mine.state.record_id) and committer.mentions(mine)

    def has_or_is_said_to(self, part: Mapping[str, Any], mine: Committable) -> bool:
        """As ``has``, or as the user has said.

        Raises Corrupt when nothing that is retained can tell, until the user does by a token.
        """
        if self.has(part, mine):
            return True
        table, committer = self.open(part["name"])
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
            f"{table.root}: the {mine.rows} dead letters of record {mine.state.sequence} of application "
            f"'{self._options.application}', {mine.state.checkpoint_name}, which is pending in {self._table.root}, may "
            "be in this table: snapshots since the record was made have expired, so it cannot be told. Nothing of the "
            f"record was published. Look whether they are there. If they are, set accept_as_seen='{as_seen}', which "
            f"leaves this table as it is. If they are not, set accept_as_new='{as_new}', which publishes them. The "
            "other rows of the record are published in either case. "
            f"{ways.answer_in_a_shell(self._table.root, self._options.application, 'accept_as_seen')}",
            kind="dead-letters.undecidable",
        )

    def is_there(self, part: Mapping[str, Any]) -> bool:
        """Whether the table for dead letters exists and is the one that the part was made for."""
        path = self.path_of(part["name"])
        return is_table(self._table.file_io, path) and self.open(part["name"])[0].table_id == part["table_id"]

    def can_take(self, part: Mapping[str, Any]) -> bool:
        """Whether the table for dead letters is there, and has what it had when the record was made."""
        if not self.is_there(part):
            return False
        return not part["previous"] or _has_reached(
            self.open(part["name"])[1], part["key"], part["previous"], part.get(_HAD_AT)
        )

    def check_there(self, part: Mapping[str, Any], mine: Committable) -> None:
        """Raises Misuse unless the table ``can_take`` the dead letters of this pending record."""
        if not self.can_take(part):
            raise Misuse(
                f"{self.path_of(part['name'])}: record {mine.state.sequence} of application "
                f"'{self._options.application}' is pending in {self._table.root}, with {mine.rows} dead letters for "
                "this table, which was dropped, recreated or rolled back since. Nothing was published. Restore the "
                f"table. {ways.give_up(self._table.root, self._options.application)}",
                kind="dead-letters.gone",
            )

    def is_readable(self, part: Mapping[str, Any], mine: Committable) -> bool:
        """Whether the dead letters of this record are published or can be."""
        if not self.can_take(part):
            return False
        _, committer = self.open(part["name"])
        return self.has(part, mine) or not committer.files_in_place(mine)[2] and committer.is_readable(mine)

    def sweep(self, published: Sequence[Committable]) -> list[str]:
        """As ``Committer.sweep``, for the parts of these records, in every table that was opened or is there."""
        by_name: dict[str, list[Committable]] = {name: [] for name in self._opened}
        for part, mine in self.parts(published):
            if self.is_there(part):
                by_name.setdefault(part["name"], []).append(mine)
        return [path for name, mine in by_name.items() for path in self.open(name)[1].sweep(mine)]


def heads_of(state: AppState) -> Mapping[str, Mapping[str, Any]]:
    """For each table that got dead letters of the application, by name: its id, the key there, its last record."""
    heads: Mapping[str, Mapping[str, Any]] = state.carried.get(_HEADS, {})
    return heads


def saying_where(
    committable: Committable, found: Mapping[str, Mark | None], before: Mapping[str, Mapping[str, Any]]
) -> Committable:
    """The record whose state says where its dead letters are.

    So the table shows whether they were lost by a rollback, when their own table says nothing any more. found: by name,
    where those of this record are. before: heads that the table has. The record was made while records before it were
    published, so it may repeat their heads without their places.
    """
    given = heads_of(committable.state)
    heads = dict(given)
    for name, head in given.items():
        mark = found.get(name)
        if mark is not None:
            heads[name] = {**head, _AT: mark.to_json()}
        elif name in before and {**before[name], **head} == before[name]:
            heads[name] = before[name]
    if heads == given:
        return committable
    carried = {**committable.state.carried, _HEADS: heads}
    return replace(committable, state=replace(committable.state, carried=carried))


def _unknown(letters: str, root: str, application: str, found: int) -> Misuse:
    """The error for a table for dead letters that has a record which its table does not know.

    letters: path of the former. root: path of the table. found: number of the record.
    """
    return Misuse(
        f"{letters}: it has dead letters of record {found} of application '{application}', and the table {root} knows "
        "nothing of that record: it was given up, or the table or its journal was removed, restored or rolled back "
        "since. Nothing was recorded or published. Restore it; or, as the rows of that record come again, and these "
        f"are dead letters of them by now, set dead_letters to another name than '{letters.rpartition('/')[2]}', under "
        "which a new table begins",
        kind="dead-letters.unknown-record",
    )


def _has_reached(committer: PaimonCommitter, key: str, sequence: int, at: Mapping[str, Any] | None) -> bool:
    """As ``PaimonCommitter.has_reached``. at: a mark as JSON."""
    return committer.has_reached(key, sequence, Mark.from_json(at) if at is not None else None)
