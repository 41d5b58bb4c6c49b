"""What an operator does whose destination is no table, about each way on that a message names."""

import json
import re

from streamsink.commands.sinks_given_up import give_up_of_sink
from streamsink.errors import StreamsinkError
from streamsink.options import SinkOptions
from tests.walks.beginnings import _behind_the_last
from tests.walks.model import Wrong
from tests.walks.operators import Operator
from tests.walks.words import WORDS

_OFFSETS = r"startingOffsets=((?:'[^']*' for source [^,()]*(?:, )?)+|'[^']*')"


class ElsewhereOperator(Operator):
    words = WORDS | {
        "starting_offsets": r"[Ss]tart a new checkpoint with startingOffsets=('\{)",
        "give_up": r"call (streamsink\.give_up)\(sink, ",
        "restart": WORDS["restart"].replace("(", "(start the query again|leave create=False out|", 1),
        "new_checkpoint": WORDS["new_checkpoint"].replace("startingOffsets=s|", "startingOffsets=|"),
        "remove_journal": "(?<!of the application, )" + WORDS["remove_journal"],
        "start_over": r"remove what it remembers of the application, remove the journal (\S+), and start the query",
        "restore_id": r"(its text is what the state of any manifest or record)",
        "remove_journals": r"remove the folder (\S+) instead",
        "remove_left_over": r"remove the folders of this application from number (\d+) on",
        "move_away_files": r"or (move them away)",
        "write_manifest": r"Without a backup (create it with the text) ",
        "restore_notes": r"Restore the folder (\S+), which notes what was committed",
        "write_note": r"If there is no backup of the folder, write the (second line) of the file",
        "remove_all": r"remove (\S+/_streamsink) and start a new checkpoint",
        "restore_version": r"(Restore the table to a version that has what was published)",
        "make_current": r"(Make the snapshot current again) that the table had",
        "reset": r"with startingOffsets='.*? and set accept_as_new='([^']+)'",
    }

    def _fits(self, query, way):
        visible = self._world.visible()
        is_there = any(
            self._world.is_done(row, visible) for each in self._world.queries.values() for row in each.source.all_rows()
        )
        if way == "restore_id":
            return is_there
        if way == "remove_journals":
            return not is_there
        if way == "restore_notes":
            return False  # There is no backup of the very moment.
        if way == "start_over":
            return not any(self._world.is_done(row, visible) for row in query.source.all_rows())
        if way == "new_checkpoint" and "/_streamsink and start a new" in str(query.said):
            return False  # That alone is not the way.
        if way == "make_current":
            return self._world.lost_version(query) is not None
        said = str(query.said)
        if way == "republish" and ("set before that happens" in said or "leave that option out" in said):
            return False
        if way in ("republish", "restore_version") and "to a version that has what was published" in said:
            # The journal does not remember as much.
            needs_version = query.options.get("on_rollback") == "republish" and query.said.kind.endswith("-too-far")
            if needs_version and self._world.fuller_version(query) is not None:
                return way == "restore_version"
            return way == "republish"
        return super()._fits(query, way)

    def _remove_all(self, query, path, text):
        """The table was dropped on purpose."""
        self._world.store.remove(path)
        self._world.accident("journal", "journal-ever")
        self._begin_anew(query)

    def _make_current(self, query, _, text):
        self._world.roll_back(*self._world.lost_version(query))

    def _restore_version(self, query, _, text):
        self._world.roll_back(*self._world.fuller_version(query))

    def _restore_id(self, query, _, text):
        """As the text says, without a backup: by any manifest or record."""
        path = re.match(r"(\S+): the file 'id' is gone", text)[1]
        state = self._world.place.any_state()
        if state is None:
            raise Wrong("no way on destination.no-id", text)
        io = self._world.others.io
        io.create_if_absent(f"{path}/id", state["table_id"].partition("/")[0].encode())

    def _start_over(self, query, journal, text):
        """The destination was emptied on purpose."""
        self._world.place.forget(query.name)
        super()._remove_journal(query, journal, text)

    def _remove_journals(self, query, path, text):
        self._world.store.remove(path)
        self._world.accident("journal", "journal-ever")

    def _remove_journal(self, query, path, text):
        """Where rows of the query are there, it begins behind them, as the text says."""
        super()._remove_journal(query, path, text)
        if "what the destination remembers of the application" in text:
            self._world.place.forget(query.name)
        visible = self._world.visible()
        if path is None or not any(self._world.is_done(row, visible) for row in query.source.all_rows()):
            return
        if "behind those of its rows that are here already" not in text:
            raise Wrong("wrong advice", text)
        if query.source.numeric:
            self._begin_anew(query, _behind_the_last(self._world, query))
            self._world.model.unsure(r for r in query.source.before(query.checkpoint.given) if not visible[r])
        else:
            self._move_away(query)

    def _write_manifest(self, query, _, text):
        root, manifest = re.match(r"(\S+): the manifest (\S+) is missing", text).groups()
        folder = re.search(r"that are in the folder (\S+),", text)[1]
        io = self._world.others.io
        names = [f"{folder}/{name}" for name in io.names(f"{root}/{folder}") if name.startswith("part-")]
        before, was = self._world.visible(), self._world.model.fate
        io.create_if_absent(f"{root}/{manifest}", json.dumps({"files": names}).encode())
        if not names:  # The folder is gone as well, so its rows are given up.
            visible = self._world.visible()
            behind = query.source.rows_before(query.checkpoint)
            self._world.model.unsure([row for row in behind if not visible[row]])
        for row in self._world.visible() - before:
            was.pop(row, None)

    def _remove_left_over(self, query, number, text):
        self._world.place.remove_folders(query.name, int(number))

    def _move_away_files(self, query, _, text):
        self._world.place.drop()

    def _write_note(self, query, _, text):
        record, note = re.search(
            r"of the file (\S+)-<number>\.json, .*? into a file (\S+)/<number>\.json", text
        ).groups()
        number = re.search(r"but record (\d+) was published|Up to record (\d+) all were published", text)
        number = int(number[1] or number[2])
        visible = self._world.visible()
        # Its rows are gone as well, which nobody is asked.
        self._world.model.unsure([row for row in query.source.all_rows() if not visible[row]])
        io = self._world.others.io
        line = io.read(f"{record}-{number}.json").split(b"\n")[1]
        io.delete(f"{note}/{number:010}.json")
        io.create_if_absent(f"{note}/{number:010}.json", line)

    def _give_up(self, query, _, text, **more):
        """Call the command with the sink, as the text says. What it returns says how to go on."""
        if "streamsink.give_up(sink, " not in text:
            raise Wrong("wrong advice", text)
        name = re.search(r"streamsink\.give_up\(sink, application='([^']+)'\)", text)[1]
        options = {"application": name, "journal_retain": query.options.get("journal_retain", 100)}
        place = self._world.place
        try:
            said = str(give_up_of_sink(place.io, place.sink(None), SinkOptions.of(self._world.root, options)))
        except StreamsinkError as refused:
            query.said = refused
            return
        query.afterwards = said
        if "without adopt_from_batch" in said:
            query.options.pop("adopt_from_batch", None)
        self._world.accident("given-up", "given-up-ever", query=query)

    def _starting_offsets(self, query, _, text):
        """The text has them, for each source in the order in which the query reads them."""
        said = re.search(_OFFSETS, text)
        if said is None:
            raise Wrong("wrong advice", text)
        begin = {}
        for each in re.findall(r"'([^']*)'", re.sub(r" for source '[^']*'", "", said[1])):
            begin |= json.loads(each) if each != "earliest" else {}
        self._begin_anew(query, begin or None)
