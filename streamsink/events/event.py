"""What all events have, and the logger that they are written to."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

log = logging.getLogger("streamsink")


def _in_words(line: logging.LogRecord) -> bool:
    """Errors in a log line become their text.

    Who keeps log lines (a test, a collector of errors) would keep the frames of an error with it, and what they hold: a
    connection, whose locks in a database the next start of the query waits for.
    """
    if isinstance(line.args, tuple):
        line.args = tuple(str(each) if isinstance(each, BaseException) else each for each in line.args)
    return True


log.addFilter(_in_words)


@dataclass(frozen=True)
class Event:
    """Base of all events. table: path of the table. application: name of the writing query.

    level: the level of the event's log line. took: the field with the milliseconds of the step that the event ends;
    empty for an event that ends none. unsaid: fields that ``said`` leaves out.
    """

    level: ClassVar[int] = logging.INFO
    took: ClassVar[str] = ""
    unsaid: ClassVar[tuple[str, ...]] = ("table", "application")

    table: str
    application: str

    def said(self) -> dict[str, Any]:
        """The fields of the event for a line of a log, by name: without ``table``, ``application``, and what would make
        the line long.
        """
        return {name: value for name, value in vars(self).items() if name not in self.unsaid}


Listener = Callable[[Event], None]
