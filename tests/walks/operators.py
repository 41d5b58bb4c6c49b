"""The operator: reads what an error says, looks into the table, and does one of the ways on that the message names.

He knows no code of the library: only the words of the message, the rows that a reader sees, and his own commands. A call that a
message prints is made as it is printed.
"""

import json
import re
from collections import Counter
from dataclasses import replace

from streamsink.commands.give_up import give_up
from streamsink.commands.offsets import Wanted, offsets_of
from streamsink.errors import Misuse, StreamsinkError
from streamsink.options import SinkOptions
from tests.walks.answers import Answers
from tests.walks.judge import last_that_is_there, rows_of
from tests.walks.model import Causes, Wrong
from tests.walks.queries import RENAMED, Query, halves
from tests.walks.sources import flat
from tests.walks.words import SECOND, WORDS, begins_in, call_in, rows_that_are_named, ways_in
from tests.walks.world import JOBS, World

_MOST_ANSWERS = 5
# As often a stateful query whose state is lost may give a result again.
_MOST_TIMES = 20
# Options that answer one question.
_OF_WORDS = ("accept_as_new", "accept_as_seen", "accept_as_same", "new_application", "adopt_from_batch")
# Ways that are gone alike; when each is right is another matter.
_ALIKE = {"give_up_new": "give_up", "without_adopting": "write_all"}


class Operator(Answers):
    """used: how often each way was taken."""

    words = WORDS

    def __init__(self, world: World):
        super().__init__(world)
        self._command = ""  # the message of which a command was called that was refused
        self.used: Counter[str] = Counter()

    def heal(self, query: Query, choice: int) -> None:
        """Do what the last error of this query says. Raises Wrong when it says nothing that can be done."""
        why = query.said
        if why is None:
            return
        if isinstance(why, OSError) or query.said_at != self._world.serial:
            query.said = None  # the store's own words, or words of another time: whoever reads them starts again first
            return
        self._world.stop(query)
        text = str(why) + (query.afterwards if why.kind in query.afterwards else "")
        named = ways_in(query, text, self.words)
        possible = [way for way in named if self._fits(query, way)]
        if not possible:
            raise Wrong(f"no way on {why.kind}", f"of {sorted(named)} in: {text}")
        way = possible[choice % len(possible)]
        self.used[way] += 1
        query.said = None
        before = dict(query.options)
        getattr(self, f"_{_ALIKE.get(way, way)}")(query, named[way], text)
        query.given += [
            (name, value) for name, value in query.options.items() if name in _OF_WORDS and value != before.get(name)
        ]

    # -- the ways ----------------------------------------------------------------------------------------------------

    def _accept_as_new(self, query: Query, token: str, text: str) -> None:
        if query.source is not None and "which publishes them" not in text:
            self._world.model.given_up(missing_before(self._world, query))
            if query.halves:
                self._world.model.unsure(query.source.all_rows(), most=2)
            if query.stateful and "state" in text:
                self._world.model.unsure(query.source.all_rows(), most=_MOST_TIMES)
        query.options["accept_as_new"] = token

    def _accept_as_seen(self, query: Query, token: str, text: str) -> None:
        """Rows of a batch that are not in the table are set aside first, as README says, and put back after it."""
        visible = self._world.visible()
        if (
            query.source is not None and "Look whether the rows of checkpoint" in text
        ):  # records behind those that are asked for are published
            missing = [row for row in rows_of(self._world, query, text) if not visible[row]]
            is_another = not rows_that_are_named(text, self._world.others.rows_in) and query.causes.knows(
                "checkpoint-ever"
            )
            (self._world.model.unsure if is_another else self._world.model.given_up)(
                missing
            )  # the checkpoint that is asked for may be lost
        elif query.source is not None:
            self._world.model.given_up(missing_before(self._world, query))
        owed = self._owed(rows_of(self._world, query, text), visible)
        if (
            not owed
            or query.source is None
            or not query.source.set_aside(lambda row: self._world.is_done(row, visible))
        ):
            query.options["accept_as_seen"] = token
            if "on_rollback='republish' and accept_as_seen=" in text:
                query.options["on_rollback"] = "republish"
        else:
            self._begin_anew(query)

    def _first_ones(self, query: Query, _: str, text: str) -> None:
        word = last_that_is_there(self._world, query, text)
        if "streamsink.give_up again" in text:
            self._give_up_seen(query, word, text)
        else:
            query.options["accept_as_seen"] = word

    def _accept_as_same(self, query: Query, token: str, text: str) -> None:
        if re.search(
            r"was given a copy|left out would be filtered", text
        ):  # what the other program has left out is skipped, as the message says
            self._world.model.unsure(query.taken)
        query.options["accept_as_same"] = token

    def _reset(self, query: Query, token: str, text: str) -> None:
        self._starting_offsets(query, "", text)
        self._world.model.unsure(
            query.taken
        )  # of topics beside it that another program with a copy of the checkpoint has read first
        query.options["accept_as_new"] = token

    def _new_application(self, query: Query, word: str, text: str) -> None:
        """It begins behind its rows that are here, if there are any. One that was renamed keeps its checkpoint, by which its first name's journal
        knows it."""
        visible = self._world.visible()
        query.options["new_application"] = word
        if self._is_known_under_its_first_name(query):
            return
        if query.source is None:
            self._world.jobs = [
                job for job in self._world.jobs if not any(self._world.is_done(row, visible) for row in job.rows)
            ]
        elif any(self._world.is_done(row, visible) for row in query.source.all_rows()):
            if query.halves:  # what is there of a batch has no end behind which to begin
                self._world.model.unsure(query.source.all_rows(), most=2)
            if not query.source.numeric:
                self._move_away(query)
            else:
                self._begin_anew(query, _behind_the_last(self._world, query))
                if query.causes.knows("letters-ever"):  # some of its rows were in a table that was dropped
                    self._world.model.unsure(
                        row for row in query.source.before(query.checkpoint.given) if not visible[row]
                    )

    def _is_known_under_its_first_name(self, query: Query) -> bool:
        first = f"{self._world.root}/streamsink/{query.name.removesuffix(RENAMED)}"
        return query.name.endswith(RENAMED) and query.causes.knows("renamed") and bool(self._world.store.copy_of(first))

    def _under_first(self, query: Query, _: str, text: str) -> None:
        """He knows which of them it was; where it is none of them, he looks into the table."""
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

    def _remove_journal(self, query: Query, path: str | None, text: str) -> None:
        """With a new checkpoint, where the message says so too."""
        self._world.store.remove(path or self._world.journal_of(query))
        self._world.accident("journal", "journal-ever", query=query)
        if path is not None:
            self._begin_anew(query)

    def _remove_left(self, query: Query, path: str, text: str) -> None:
        """Of a table that was dropped on purpose. path: one or several."""
        for each in path.split(" and "):
            self._world.store.remove(each)
        self._world.accident("journal", "journal-ever")

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
        """What is not written yet is what lies behind the first name's end; of what lies before, a table may have lost some."""
        query.options.pop("adopt_from_batch", None)
        query.source.put_back()  # what was set aside was so for the checkpoint before
        visible, given = (
            self._world.visible(),
            re.findall(r"for what was '([^']+)' before with startingOffsets='([^']+)'", text),
        )
        if query.source.numeric:  # he knows which of them it was; where it is none of them, he looks into the table
            said = next((json.loads(offsets) for name, offsets in given if name[0] == query.name[0]), None)
            self._begin_anew(query, said or _behind_the_last(self._world, query))
            before = query.source.before(query.checkpoint.given)
            self._world.model.unsure(row for row in before if not visible[row])
        else:
            self._move_away(query)

    def _move_away(self, query: Query) -> None:
        """Files of which rows are here; what is not here of them is left out. Then a new checkpoint."""
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

    def _give_up_again(self, query: Query, token: str, _: str) -> None:
        self._give_up(query, "", self._command, accept_as_new=token)

    def _give_up_seen(self, query: Query, token: str, text: str) -> None:
        self._give_up(query, "", self._command, accept_as_seen=token)

    def _give_up(self, query: Query, _: str, text: str, **more: str) -> None:
        """What it returns says how to go on, should the query then be refused."""
        options = call_in(text, "give_up")[1] | more
        try:
            said = str(give_up(self._world.others.io, self._world.root, SinkOptions.of(self._world.root, options)))
        except StreamsinkError as refused:
            query.said, self._command = refused, text
            return
        query.afterwards = said
        if "without adopt_from_batch" in said:
            query.options.pop("adopt_from_batch", None)
        self._world.accident("given-up", "given-up-ever", query=query)

    def _roll_back(self, query: Query, path: str, text: str) -> None:
        """The dead letters of a record that can never be published whole: their table goes back, or is dropped; then the command again."""
        before, batch_id = set(self._world.others.letters()), int(re.search(r"\(checkpoint (\d+)\)", text)[1])
        if path == self._world.others.root:  # another writer has put it there
            is_of_now = batch_id < len(query.checkpoint.planned)  # else it is of a checkpoint that is lost
            to = self._world.others.before(query.rows(batch_id)) if is_of_now else None
            if to is None:
                return self._republish(query, "", text)
            self._world.go_back_to(to)
        else:
            self._world.others.take_out(path, query.name, batch_id)
        self._world.model.dropped(before - set(self._world.others.letters()))
        self._world.accident("letters-ever")
        self._give_up(query, "", self._command)

    def _right_snapshot(self, query: Query, number: str, text: str) -> None:
        """The last one before that which was replaced."""
        before = [each for each in self._world.others.snapshot_ids() if each < int(number)]
        if not before:
            raise Wrong("no way on snapshot.replaced-undecidable", text)
        self._world.go_back_to(before[-1])

    def _truncate(self, query: Query, number: str, text: str) -> None:
        """Of the checkpoint's offsets and commits. Spark plans the rest anew."""
        query.checkpoint.truncate(int(number))

    def _own_name(self, query: Query, _: str, text: str) -> None:
        """The second part is written by a sink of its own, which may ask for a token; from the next batch on there is one call again."""
        self._one_call(query, "", text)
        visible = self._world.visible()
        if all(self._world.is_done(row, visible) for row in halves(rows_of(self._world, query, text))[1]):
            return  # an earlier run has written the whole batch
        options = {
            name: value for name, value in query.options.items() if name != "adopt_from_batch"
        }  # it has no earlier name
        second = replace(
            query,
            name=f"{query.name}{SECOND}{self._world.serial}",
            options=options,
            live=None,
            halves=False,
            causes=Causes(),
        )
        second.causes.add("renamed", "expiry-ever", "table", *filter(query.causes.knows, ("topic-ever",)))
        for _ in range(_MOST_ANSWERS):
            if self._world.second_half(second):
                return
            said = str(second.said)
            if getattr(second.said, "kind", "").startswith(
                "positions.newest-below"
            ):  # the topic is another one: so is the query told then
                self._world.model.unsure(rows_of(self._world, query, text))
                return
            token = re.search(WORDS["second_sink"], said)
            if token:
                second.options["accept_as_new"] = token[1]
            if is_new := re.search(WORDS["new_application"], said):
                second.options["new_application"] = is_new[1]
        raise Wrong("advice fails batch.twice", str(second.said))

    def _second_sink(self, query: Query, token: str, text: str) -> None:
        self._world.model.given_up(missing_before(self._world, query))
        query.options["accept_as_new"] = token

    def _letters_name(self, query: Query, _: str, text: str) -> None:
        """The message says which rows may come again."""
        letters = self._world.others.letters()
        self._world.model.may_come_again(row for row in query.source.all_rows() if row in letters)
        query.options["dead_letters"] = f"rejected_{self._world.serial}"

    def _one_each(self, query: Query, _: str, text: str) -> None:
        query.one_each = True
        self._begin_anew(query)

    def _begin_anew(self, query: Query, given: dict | None = None) -> None:
        """A new checkpoint, at the beginning of the source or where the offsets say."""
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
    """Rows that the checkpoint has behind it, and that are not in the table."""
    visible = world.visible()
    return [row for row in query.source.rows_before(query.checkpoint) if not visible[row]]


def _said_offsets(world: World, query: Query, text: str) -> dict | None:
    """startingOffsets of each source as the text says it; from the beginning where it says so, or the table has no record of it. Raises Misuse: the
    query is to be started before."""
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
    """Where it is only hinted at, as starting_offsets(...), the manual says what to give."""
    positional, named = call_in(text, "starting_offsets")
    if positional and positional[0] is not ...:
        return named.pop("application", "streamsink"), Wanted(**named)
    return query.name, Wanted(query.source.partitions())
