"""The operator, who reads what an error says, looks into the table, and takes one of the ways on that the message
names.

He knows no code of the library: only the words of the message, the rows that a reader sees, and his own commands. A
call that a message prints is made as it is printed.
"""

import re
from collections import Counter
from dataclasses import replace

from streamsink.commands.give_up import give_up
from streamsink.errors import StreamsinkError
from streamsink.options import SinkOptions
from tests.walks.beginnings import Beginnings, missing_before
from tests.walks.judge import last_that_is_there, rows_of
from tests.walks.model import Causes, Wrong
from tests.walks.queries import Query, halves
from tests.walks.words import SECOND, WORDS, call_in, rows_that_are_named, ways_in
from tests.walks.world import World

_MOST_ANSWERS = 5
# So often a stateful query whose state is lost may give the same result again.
_MOST_TIMES = 20
# Options that answer one question.
_OF_WORDS = ("accept_as_new", "accept_as_seen", "accept_as_same", "new_application", "adopt_from_batch")
# Ways that are taken in the same manner; when each of them is right is another matter.
_ALIKE = {"give_up_new": "give_up", "without_adopting": "write_all"}


class Operator(Beginnings):
    """used: how often each way was taken."""

    words = WORDS

    def __init__(self, world: World):
        super().__init__(world)
        self._command = ""  # The message that names the command which was called and refused.
        self.used: Counter[str] = Counter()

    def heal(self, query: Query, choice: int) -> None:
        """Do what the last error of this query says. Raises Wrong when it says nothing that can be done."""
        why = query.said
        if why is None:
            return
        if isinstance(why, OSError) or query.said_at != self._world.serial:
            # These are the store's own words, or words of another time: who reads them starts the query again first.
            query.said = None
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
        """Rows of a batch that are not in the table are set aside first, as the README says, and put back after it."""
        visible = self._world.visible()
        # Records behind those that are asked for are published.
        if query.source is not None and "Look whether the rows of checkpoint" in text:
            missing = [row for row in rows_of(self._world, query, text) if not visible[row]]
            is_another = not rows_that_are_named(text, self._world.others.rows_in) and query.causes.knows(
                "checkpoint-ever"
            )
            # The checkpoint that is asked for may be lost.
            (self._world.model.unsure if is_another else self._world.model.given_up)(missing)
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
        # What the other program has left out is skipped, as the message says.
        if re.search(r"was given a copy|left out would be filtered", text):
            self._world.model.unsure(query.taken)
        query.options["accept_as_same"] = token

    def _reset(self, query: Query, token: str, text: str) -> None:
        self._starting_offsets(query, "", text)
        # Rows of topics beside it, which another program with a copy of the checkpoint has read first.
        self._world.model.unsure(query.taken)
        query.options["accept_as_new"] = token

    def _remove_journal(self, query: Query, path: str | None, text: str) -> None:
        """Remove the journal; where the message says so, begin a new checkpoint too."""
        self._world.store.remove(path or self._world.journal_of(query))
        self._world.accident("journal", "journal-ever", query=query)
        if path is not None:
            self._begin_anew(query)

    def _remove_left(self, query: Query, path: str, text: str) -> None:
        """Remove what is left of a table that was dropped on purpose. path: one path or several."""
        for each in path.split(" and "):
            self._world.store.remove(each)
        self._world.accident("journal", "journal-ever")

    def _give_up_again(self, query: Query, token: str, _: str) -> None:
        self._give_up(query, "", self._command, accept_as_new=token)

    def _give_up_seen(self, query: Query, token: str, text: str) -> None:
        self._give_up(query, "", self._command, accept_as_seen=token)

    def _give_up(self, query: Query, _: str, text: str, **more: str) -> None:
        """Call the command. What it returns says how to go on if the query is refused after that."""
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
        """A record's dead letters are published and the record can never be published whole: their table goes back, or
        is dropped; then the command is called again."""
        before, batch_id = set(self._world.others.letters()), int(re.search(r"\(checkpoint (\d+)\)", text)[1])
        if path == self._world.others.root:  # Another writer has put it there.
            is_of_now = batch_id < len(query.checkpoint.planned)  # Otherwise it is of a checkpoint that is lost.
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
        """Roll back to the last snapshot before the one that was replaced."""
        before = [each for each in self._world.others.snapshot_ids() if each < int(number)]
        if not before:
            raise Wrong("no way on snapshot.replaced-undecidable", text)
        self._world.go_back_to(before[-1])

    def _truncate(self, query: Query, number: str, text: str) -> None:
        """Delete the newest offsets and commits of the checkpoint. Spark plans the rest anew."""
        query.checkpoint.truncate(int(number))

    def _own_name(self, query: Query, _: str, text: str) -> None:
        """A sink with a name of its own writes the second part, and may ask for a token.
        From the next batch on there is one call again."""
        self._one_call(query, "", text)
        visible = self._world.visible()
        if all(self._world.is_done(row, visible) for row in halves(rows_of(self._world, query, text))[1]):
            return  # An earlier run has written the whole batch.
        # It has no earlier name.
        options = {name: value for name, value in query.options.items() if name != "adopt_from_batch"}
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
            # The topic is another one, and the query will be told so.
            if getattr(second.said, "kind", "").startswith("positions.newest-below"):
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
        """Name another dead-letter table. The message says which rows may come again."""
        letters = self._world.others.letters()
        self._world.model.may_come_again(row for row in query.source.all_rows() if row in letters)
        query.options["dead_letters"] = f"rejected_{self._world.serial}"
