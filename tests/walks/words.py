"""The words of messages that say what a user can do, by the name of the way on."""

import ast
import contextlib
import re
from collections.abc import Callable

from tests.walks.model import Wrong
from tests.walks.queries import Query

# Part of the name of a second sink of one batch function.
SECOND = "-part-"
# What is looked for in a message, by the name of the way on. Where a pattern matches several times its first match
# counts.
WORDS = {
    "reset": r"with startingOffsets=(?:streamsink\.starting_offsets\(|'earliest').*? and set accept_as_new='([^']+)'",
    "file_column": r"option file_column, and set accept_as_same='(\w+)'",
    "accept_as_new": r"accept_as_new='([^']+)'",
    "accept_as_seen": r"accept_as_seen='([^']+)'",
    "first_ones": r"(only those of the first ones are there)",
    "accept_as_same": r"accept_as_same='([^']+)'",
    "new_application": r"set new_application='(\w+)'",
    "once_under_first": r"[Ss]tart the query once under application='([^']+)' with on_rollback='republish'",
    "republish": r"(on_rollback='republish')",
    "position_columns": r"option (position_columns)",
    "second_sink": r"as a second sink in the same batch function, set accept_as_new='([^']+)'",
    "first_name": r"Set application='([^']+)' to go on",
    "own_first_name": r"(Set application to the one of these names that this sink had) to go on",
    "adopt": r"set adopt_from_batch=(\d+)",
    "remove_journal": r"remove (?:the journal (\S+)|this one)",
    "starting_offsets": (
        r"[Ss]tart a new checkpoint (?:at |with " r"startingOffsets=)(streamsink\.starting_offsets|'earliest')"
    ),
    "new_checkpoint": (
        r"start a (new checkpoint)(?! at| with startingOffsets=s|, for what was| behind what| whose "
        r"(?:source|batches))"
    ),
    "behind_here": r"(leave that option out) and start a new checkpoint behind what is here",
    "leave_out": r"(leave adopt_from_batch out) and start a new checkpoint",
    "without_adopting": r"(leave adopt_from_batch out): this checkpoint begins behind",
    "under_first": r"before set application='([^']+)' and leave adopt_from_batch out",
    "write_all": r"to write all that the source has, (leave adopt_from_batch out)",
    "give_up": r"call (streamsink\.give_up)\(",
    "give_up_new": r"call streamsink\.give_up\([^()]*accept_as_new='([^']+)'\)",
    "give_up_again": r"call streamsink\.give_up again with accept_as_new='([^']+)'",
    "give_up_seen": r"call streamsink\.give_up again with accept_as_seen='([^']+)'",
    "truncate": r"the files numbered (\d+) and higher",
    "one_each": r"([Ss]tart a new checkpoint whose batches read one file each)",
    "restart": r"(restart the query|The next start|the next start|Restart the query)",
    "remove_left": r"remove (.+?) as well, when no query writes here",
    "own_run": r"give them a (run id of their own)",
    "one_call": r"(Call it once in the batch function)",
    "letters_name": r"set dead_letters to (another name) than",
    "roll_back": r"or roll back (\S+)(?: and \S+)* to the snapshot before the one that names them",
    "right_snapshot": r"has replaced snapshot (\d+), .* roll the table back to the snapshot that is right",
    "stop_other": r"(is held by (?:another start|run '))",
    "own_name": r"Use a sink of its own name \(application='\.\.\.'\) for the (second part)",
    "stop": (
        r"(this driver writes nothing more|It publishes nothing more|this one has been superseded|restart this "
        r"one or stop it|was taken back)"
    ),
}


def ways_in(query: Query, text: str, words: dict[str, str]) -> dict[str, str]:
    """The ways on that a message names, with what it gives for each. Of ways that belong together only one is left."""
    named = {way: found[1] for way, said in words.items() if (found := re.search(said, text))}
    if query.afterwards and len(named) > 1:
        named.pop("restart", None)  # The operator has restarted the query, as the command's words said first.
    if "give_up_new" in named:  # The word is given to the command.
        for way in ("give_up", "accept_as_new"):
            named.pop(way)
    if "give_up_seen" in named:
        named.pop("accept_as_seen")
    if "once_under_first" in named or "on_rollback='republish' and accept_as_seen=" in text:
        named.pop("republish")  # Both are one way.
    if "file_column" in named:
        named.pop("accept_as_same")
    if "remove_journal" in named:
        named.pop("new_checkpoint", None)  # Both are one way.
    if "second_sink" in named:
        named.pop("accept_as_new")
        if "own_first_name" in named and not re.search(r"now its name is '[^']*" + SECOND, text):
            named = {"own_first_name": named["own_first_name"]}
        if SECOND in named.get("first_name", "") or "own_first_name" in named and len(named) > 1:
            named = {"second_sink": named["second_sink"]}  # The second sink has the other name.
    if "reset" in named:
        named = {"reset": named["reset"]}  # All that the new topic holds is to be written.
    if (
        {"write_all", "under_first"} & named.keys()
        or "leave_out" in named
        and ("first_name" not in named or query.went_back)
    ):
        more = ("accept_as_new",) if "when it comes once more" in text else ()
        return {
            way: words
            for way, words in named.items()
            if way in ("leave_out", "under_first", "write_all", "without_adopting", "behind", *more)
        }
    named.pop("leave_out", None)
    return named


def call_in(text: str, function: str) -> tuple[list, dict]:
    """The positional and the named arguments of the first call of this function that the text prints."""
    start = text.index(f"streamsink.{function}(")
    for end in range(start, len(text)):
        with contextlib.suppress(SyntaxError):
            if text[end] == ")":
                call = ast.parse(text[start : end + 1], mode="eval").body
                positional = [ast.literal_eval(argument) for argument in call.args]
                return positional, {each.arg: ast.literal_eval(each.value) for each in call.keywords}
    raise Wrong("wrong advice", f"a call that cannot be made: {text}")


def begins_in(text: str) -> list[str]:
    """What the text says of each source, each as a text with that call alone;
    if it does not speak of several sources, the whole text."""
    return re.findall(r"(streamsink\.starting_offsets\([^()]*\)|'earliest') for source", text) or [text]


def rows_that_are_named(text: str, rows_in: Callable[[str], list[int] | None]) -> dict[str, list[int]]:
    """For each checkpoint of which the text names a file with its rows, the rows in that file: the checkpoint's own
    rows may be others by now. Files are left out that went to their final names when the query was stopped."""
    named = re.findall(r"those of checkpoint (\d+) are in (\S+\.parquet)", text)
    return {batch: rows for batch, path in named if (rows := rows_in(path)) is not None}
