"""The operator's judgement:
which of the ways on that a message names is right, as somebody sees who looks into the table."""

import re
from collections import Counter

from tests.walks.model import ONCE
from tests.walks.queries import Query, is_bad
from tests.walks.words import SECOND, rows_that_are_named
from tests.walks.world import World

# Errors that ask whether recorded rows are those of another program.
_IS_IT_ANOTHER = ("query.other", "query.not-comparable", "checkpoint.copied")


class Judge:
    """Says whether a way on that a message names is the right one, as somebody would who looks into the table."""

    def __init__(self, world: World):
        self._world = world

    def _fits(self, query: Query, way: str) -> bool:
        """Whether this way is right now. For most ways that depends on whether the batch's rows are in the table."""
        rows, visible = rows_of(self._world, query, str(query.said)), self._world.visible()
        there = sum(1 for row in rows if self._world.is_done(row, visible))
        is_stream = query.source is not None
        if way in ("give_up_again", "give_up_new", "own_run"):
            return there == 0
        if way == "give_up_seen":
            return self._fits(query, "accept_as_seen")
        if way == "accept_as_new" and query.stateful and "state" in str(query.said):
            return True  # Rows are lost and doubled by it, as the message says.
        if way == "accept_as_new" and "from before the topic was created again" in str(query.said):
            return False  # No topic of a walk loses messages at its end.
        if way == "accept_as_new":
            later = (
                set(query.source.all_rows()) - set(query.source.rows_before(query.checkpoint))
                if "batches after it" in str(query.said)
                else ()
            )
            # What is there of a batch that was written in two calls is not the whole of any batch: who goes on has to
            # accept that some rows come twice.
            is_free = there == 0 and (query.halves or not any(self._world.is_done(row, visible) for row in later))
            return is_free and "streamsink.give_up again" not in str(query.said)
        if way == "first_ones":
            return 0 < there < len(rows) and last_that_is_there(self._world, query, str(query.said)) is not None
        if way == "accept_as_seen" and "only those of the first ones" in str(query.said) and there < len(rows):
            return not self._fits(query, "first_ones") and there > 0 and not (is_stream and query.source.numeric)
        # The rows of a bounded run are there all at once; what is missing of them was replaced since.
        if way == "accept_as_seen":
            return not self._owed(rows, visible) or there > 0 and not (is_stream and query.source.numeric)
        if way == "starting_offsets" and "may have left out rows of this one" in str(query.said):
            return is_stream and query.source.numeric and self._is_all_of_its_own(query, visible)
        if way in ("starting_offsets", "position_columns", "reset"):
            return is_stream and query.source.numeric
        if way == "adopt" and query.said.kind == "application.renamed":
            return True  # It is known what the first name has written.
        # A new checkpoint would double rows of which some are here, so those that are not here are given up.
        if way == "adopt":
            return is_stream and _is_here(self._world, query)
        if way == "new_checkpoint" and "if rows are missing, start" in str(query.said):
            return is_stream and not _is_here(self._world, query)
        if way in ("new_application", "behind_here") and "leave that option out" in str(query.said):
            return self._misses_adopted(query, visible) == (way == "behind_here")
        if way in ("new_checkpoint", "truncate"):
            return is_stream
        if way == "leave_out" and "when it comes once more" in str(query.said):
            return not self._fits(query, "accept_as_new")
        if way == "write_all":
            return not any(self._world.is_done(row, visible) for row in query.source.all_rows())
        if way == "accept_as_same" and query.said.kind.endswith(".may-combine"):
            return not query.combines  # The operator knows the query's function.
        if (
            way == "accept_as_same"
            and query.said.kind in _IS_IT_ANOTHER
            and not self._is_all_of_its_own(query, visible)
        ):
            return not self._fits(query, "accept_as_new")
        if way == "second_sink":
            return SECOND in str(query.said)
        return True

    def _owed(self, rows: list[int], visible: Counter) -> list[int]:
        """Those of the rows that the operator misses: not what he has dropped himself or does not look for any more."""
        return [
            row
            for row in rows
            if not self._world.is_done(row, visible) and 0 not in self._world.model.lasting.get(row, ONCE)
        ]

    def _misses_adopted(self, query: Query, visible: Counter) -> bool:
        """Whether rows before the batch that comes, which its user has said to be elsewhere, are not in the table,
        or may come to be there, in a topic that was created again."""
        names_it = query.options.get("adopt_from_batch") == query.checkpoint.committed
        is_another = query.topic_id not in ("", query.source.topic_id)
        return names_it and (is_another or bool(self._owed(query.source.rows_before(query.checkpoint), visible)))

    def _is_all_of_its_own(self, query: Query, visible: Counter) -> bool:
        """Whether nothing is missing of batches that another program has written with a copy of the checkpoint. The
        operator knows which rows are that program's."""
        return all(self._world.is_done(row, visible) for row in query.taken)


def rows_of(world: World, query: Query, said: str) -> list[int]:
    """The rows of the batch that was under way, or of the batches that the message asks for."""
    if (
        query.source is not None
        and "Look whether the rows of checkpoint" in said
        and (named := rows_that_are_named(said, world.others.rows_in))
    ):
        return [row for rows in named.values() for row in rows]  # Whatever the query does with such rows by now.
    rows = world.of_message(_rows_of_batches(world, query, said), said, bool(query.letters))
    return (
        [row for row in rows if is_bad(row)]
        if "Look whether they are there" in said and "dead letters of record" in said
        else rows
    )


def _rows_of_batches(world: World, query: Query, said: str) -> list[int]:
    if query.source is None:
        named = re.search(r"(?:rows|overwrite) of run '([^']+)'(?: to run '([^']+)')?", said)
        jobs = [job for job in world.jobs if named and job.name in named.groups()]
        jobs = jobs if jobs and "whether run" not in said else [query.rows_of_job]
        return [row for job in jobs for row in job.rows]
    checkpoint, asked = (
        query.checkpoint,
        re.search(r"Look whether the rows of checkpoint (\d+)(?: to checkpoint (\d+))?", said),
    )
    if asked:
        batches = checkpoint.planned[int(asked[1]) : int(asked[2] or asked[1]) + 1]
        return [row for batch in range(len(batches)) for row in query.rows(int(asked[1]) + batch)]
    return query.rows(checkpoint.committed) if len(checkpoint.planned) > checkpoint.committed else []


def _is_here(world: World, query: Query) -> bool:
    """Whether any of the rows that the checkpoint has behind it is in the table, or there are no such rows."""
    before, visible = query.source.rows_before(query.checkpoint), world.visible()
    return not before or any(world.is_done(row, visible) for row in before)


def last_that_is_there(world: World, query: Query, text: str) -> str | None:
    """Of several records: the word of the last one that is there whole and before which all are."""
    visible, last, named = world.visible(), None, rows_that_are_named(text, world.others.rows_in)
    for word, batch, run in re.findall(r"'(\w+)' for (?:checkpoint (\d+)|run '([^']+)')", text):
        if batch and batch not in named and int(batch) >= len(query.checkpoint.planned):
            return None  # The record is of another checkpoint.
        rows = (
            named[batch]
            if batch in named
            else query.rows(int(batch))
            if batch
            else [row for job in world.jobs if job.name == run for row in job.rows]
        )
        if not all(world.is_done(row, visible) for row in rows):
            break
        last = word
    return last
