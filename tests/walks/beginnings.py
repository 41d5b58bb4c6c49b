"""The ways on that begin a new checkpoint or go on under a name, and where the next checkpoint begins:
as the message says, or as the table shows."""

import json
import re

from streamsink.commands.offsets import Wanted, offsets_of
from streamsink.errors import Misuse
from tests.walks.answers import Answers
from tests.walks.checkpoints import flat
from tests.walks.model import Wrong
from tests.walks.queries import RENAMED, Query
from tests.walks.words import WORDS, begins_in, call_in
from tests.walks.world import JOBS, World


class Beginnings(Answers):
    """Each method takes one way on; see ``operators.py``."""

    def _new_application(self, query: Query, word: str, text: str) -> None:
        """The query begins behind those of its rows that are in the table, if there are any. A query that was renamed
        keeps its checkpoint, by which its first name's journal knows it."""
        visible = self._world.visible()
        query.options["new_application"] = word
        if query.source is not None:
            query.asked_of = query.source.topic_id
        if self._is_known_under_its_first_name(query):
            return
        if query.source is None:
            self._world.jobs = [
                job for job in self._world.jobs if not any(self._world.is_done(row, visible) for row in job.rows)
            ]
        elif any(self._world.is_done(row, visible) for row in query.source.all_rows()):
            if query.halves:  # The part of a batch that is there has no end behind which to begin.
                self._world.model.unsure(query.source.all_rows(), most=2)
            if not query.source.numeric:
                self._move_away(query)
            else:
                self._begin_anew(query, _behind_the_last(self._world, query))
                if query.causes.knows("letters-ever"):  # Some of its rows were in a dead-letter table that was dropped.
                    self._world.model.unsure(
                        row for row in query.source.before(query.checkpoint.given) if not visible[row]
                    )

    def _behind_here(self, query: Query, _: str, text: str) -> None:
        """What another topic holds before the batch that comes is read, too."""
        checkpoint = query.checkpoint
        query.options.pop("adopt_from_batch", None)
        self._new_application(query, re.search(WORDS["new_application"], text)[1], text)
        if query.checkpoint is checkpoint and not self._is_known_under_its_first_name(query):
            self._begin_anew(query)

    def _is_known_under_its_first_name(self, query: Query) -> bool:
        first = f"{self._world.root}/streamsink/{query.name.removesuffix(RENAMED)}"
        return query.name.endswith(RENAMED) and query.causes.knows("renamed") and bool(self._world.store.copy_of(first))

    def _under_first(self, query: Query, _: str, text: str) -> None:
        """The operator knows which of the names it was. If it was none of them, he looks into the table."""
        own = next((name for name in re.findall(WORDS["under_first"], text) if name[0] == query.name[0]), None)
        if own is None:
            self._leave_out(query, "", text)
        else:
            query.options.pop("adopt_from_batch", None)
            self._first_name(query, own, text)

    def _adopt(self, query: Query, batch_id: str, text: str) -> None:
        query.adopts_blindly = "has written here under the name" not in text
        if query.adopts_blindly:
            self._world.model.given_up(missing_before(self._world, query))
        query.options["adopt_from_batch"] = int(batch_id)

    def _starting_offsets(self, query: Query, _: str, text: str) -> None:
        try:
            begin = _said_offsets(self._world, query, text)
        except Misuse as refused:
            query.said = refused
            return
        self._begin_anew(query, begin)

    def _write_all(self, query: Query, _: str, text: str) -> None:
        query.options.pop("adopt_from_batch", None)

    def _leave_out(self, query: Query, _: str, text: str) -> None:
        """What is not written yet lies behind the first name's end.
        Of what lies before it, a table may have lost some."""
        query.options.pop("adopt_from_batch", None)
        query.source.put_back()  # It was set aside for the checkpoint before.
        visible, given = (
            self._world.visible(),
            re.findall(r"for what was '([^']+)' before with startingOffsets='([^']+)'", text),
        )
        # The operator knows which of the names it was. If it was none of them, he looks into the table.
        if query.source.numeric:
            said = next((json.loads(offsets) for name, offsets in given if name[0] == query.name[0]), None)
            self._begin_anew(query, said or _behind_the_last(self._world, query))
            before = query.source.before(query.checkpoint.given)
            self._world.model.unsure(row for row in before if not visible[row])
        else:
            self._move_away(query)

    def _move_away(self, query: Query) -> None:
        """Move away the files of which any row is in the table,
        whose other rows are then left out, and begin a new checkpoint."""
        visible = self._world.visible()
        before = [
            row
            for rows in query.source.files.values()
            if any(self._world.is_done(row, visible) for row in rows)
            for row in rows
        ]
        query.source.behind(lambda row: row in before)
        self._begin_anew(query)
        self._world.model.unsure(row for row in before if not visible[row])

    def _new_checkpoint(self, query: Query, _: str, text: str) -> None:
        self._begin_anew(query)

    def _one_each(self, query: Query, _: str, text: str) -> None:
        query.one_each = True
        self._begin_anew(query)

    def _begin_anew(self, query: Query, given: dict | None = None) -> None:
        """Begin a new checkpoint, at the beginning of the source or where the offsets say."""
        if query.name != JOBS:
            self._world.new_checkpoint(query, given)


def _behind_the_last(world: World, query: Query) -> dict:
    """startingOffsets behind the last message of each partition that is written."""
    visible = world.visible()
    until = {
        row
        for rows in query.source.parts.values()
        for at, row in enumerate(rows)
        if any(world.is_done(each, visible) for each in rows[at:])
    }
    return query.source.behind(lambda row: row in until)


def missing_before(world: World, query: Query) -> list[int]:
    """Rows that the checkpoint has behind it and that are not in the table."""
    visible = world.visible()
    return [row for row in query.source.rows_before(query.checkpoint) if not visible[row]]


def _said_offsets(world: World, query: Query, text: str) -> dict | None:
    """startingOffsets of each source as the text says them. None means the beginning: because the text says so, or
    because the table has no record of the source. Raises Misuse when the query is to be started before."""
    begins, wanted = begins_in(text), query.source.by_source()
    if len(begins) not in (1, len(wanted)):
        raise Wrong("wrong advice", f"not one call for each of {len(wanted)} sources: {text}")
    given: dict = {}
    for begin, partitions in zip(begins, wanted if len(begins) > 1 else [query.source.parts]):
        if "streamsink.starting_offsets(" in begin:
            application, asked = _offsets_call(begin, query)
            try:
                said = json.loads(offsets_of(world.others.io, world.root, application, asked))
            except Misuse as refused:
                if refused.kind == "positions.unsettled":
                    raise
                continue
            if set(flat(said)) != set(partitions):
                raise Wrong(
                    "wrong advice",
                    f"startingOffsets {said}, but Spark wants exactly the partitions {sorted(partitions)}: {text}",
                )
            given |= said
    return given or None


def _offsets_call(text: str, query: Query) -> tuple[str, Wanted]:
    """The application and the arguments of the call that the text prints. Where the text only hints at it, as
    starting_offsets(...), the manual says what to give."""
    positional, named = call_in(text, "starting_offsets")
    if positional and positional[0] is not ...:
        return named.pop("application", "streamsink"), Wanted(**named)
    return query.name, Wanted(query.source.partitions())
