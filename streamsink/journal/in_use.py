"""The error for a claim on an application that another driver holds. What is right depends on what both of them are."""

import os
import re
from collections.abc import Mapping
from typing import Any

from streamsink.errors import Fenced

# What commands claim an application as, before an id.
_OF_A_COMMAND = re.compile(r"(recover|retire|replay|delete-branch)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|give-up")
_RUN, _REPLAY, _COMMAND, _QUERY = "run", "replay", "command", "query"


def in_use(table: str, application: str, owner: Mapping[str, Any], query: str, run: str = "") -> Fenced:
    """The error for a claim on an application that ``owner`` holds: its query, run, pid and host.

    query, run: of the claim, as ``Journal.claim`` has them.
    """
    by, mine = _what(owner.get("query"), owner.get("run")), _what(query, run)
    is_here = (owner.get("pid"), owner.get("host")) == (os.getpid(), os.uname().nodename)
    end = "end that query or call of this process" if is_here else "end that process"
    whose = {
        _RUN: f"run '{owner.get('query')}' of a bounded job",
        _REPLAY: "a replay of dead letters",
        _COMMAND: "a command",
        _QUERY: f"another start (checkpoint {owner.get('query')})",
    }[by]
    held = (
        f"{table}: application '{application}' is held by {whose}, process {owner.get('pid')} on {owner.get('host')}, "
        "which is not harmed. Nothing was written."
    )
    return _with_way_on(held, mine, by, end, is_same=owner.get("query") == query)


def _what(query: Any, run: Any) -> str:
    """What has claimed an application. Only bounded runs and commands claim it without the id of a start."""
    command = _OF_A_COMMAND.fullmatch(str(query))
    if command is not None:
        return _REPLAY if command[1] == "replay" else _COMMAND
    return _RUN if run == "" else _QUERY


def _with_way_on(held: str, mine: str, by: str, end: str, *, is_same: bool) -> Fenced:
    """held: what the error begins with. end: how the holder is ended. is_same: it writes the same run."""
    if mine == _REPLAY and by in (_RUN, _QUERY):
        return Fenced(
            f"{held} That is no replay, and a replay needs a name that no query and no job has: leave --application "
            "out, or give it another name (--application NEW-NAME)",
            kind="application.in-use",
        )
    if by in (_REPLAY, _COMMAND) or mine in (_REPLAY, _COMMAND):
        return Fenced(
            f"{held} Call this again, as it is, when that has ended; what it has done by then is not done again. If it "
            f"hangs, or is to be stopped anyway, {end} and call this again",
            kind="application.in-use",
        )
    if mine == _RUN and is_same:
        return Fenced(
            f"{held} That is this same run. Call this again, as it is, when that has ended: the run is published then, "
            f"and nothing is written twice. If it hangs, {end} and call this again",
            kind="application.in-use",
        )
    if mine == _RUN and by == _RUN:
        return Fenced(
            f"{held} Runs of one job are written one after the other, under one name. Call this again, with the same "
            "name and run id, when that has ended, as a scheduler's next try does; and let the scheduler start one at "
            f"a time (Airflow: max_active_tis_per_dag=1). If it hangs, {end} and call this again. Give no run a name "
            "of its own: published runs are known under the name that they had, and one that is repeated under another "
            "name is written again. Only a job of which no run is in the table yet may have another name, "
            "application='...', the same for all of its runs",
            kind="application.in-use",
        )
    if _RUN in (mine, by):
        return Fenced(
            f"{held} Queries and bounded jobs need names of their own. If none of this one's rows are in the table, "
            "give it another name, application='...', and leave it so. If some are, written under this name, "
            f"{end} and call this again",
            kind="application.in-use",
        )
    return Fenced(
        f"{held} If that is an earlier start of this same query, which hangs or has lost its checkpoint, or if it is "
        f"to be stopped anyway, {end} and call this again. If a scheduler starts this query again and again, call this "
        "again, with the same name and checkpoint, when that start has ended. Only if this is another query, whose "
        "rows are not in the table, give it a name of its own, application='...', and leave it so: under a new name a "
        "new checkpoint writes its whole source",
        kind="application.in-use",
    )
