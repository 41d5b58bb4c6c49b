"""Errors of a destination advise what leads on for a query that writes to it alone. Within a fan-out some of that does
not: ``streamsink.give_up`` forgets what is pending in the destination's journal, and the fan-out's journal, of which it
knows nothing, gives it to the destination once more. Of the fan-out's own journal it knows nothing either.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from streamsink import shell
from streamsink.errors import Corrupt, Misuse
from streamsink.protocol import ways

_FILES_GONE = "pending.files-gone"


@contextmanager
def way_on(name: str, path: str, application: str, journal: str) -> Iterator[None]:
    """Within it an error of a destination that advises what leads nowhere in a fan-out advises what does instead.

    name: of the destination. path, application: as the error has them. journal: the place of the destination's journal.
    """
    try:
        yield
    except (Corrupt, Misuse) as failed:
        told = str(failed)
        leave = (
            f"leave the destination '{name}' out of the fan-out, and answer what the start asks then: what it lacks is "
            f"not written there. To have it again from then on, remove its journal {journal} when the others have a "
            f"batch more, and name it again {shell.discard(journal)}"
        )
        said = _instead(told, path, application, leave)
        if "streamsink.give_up(" in said:
            said += f". But streamsink.give_up knows nothing of fan-outs: instead of calling it, {leave}"
        elif failed.kind == _FILES_GONE and said == told:
            said += f". If that cannot be mended, {leave}"
        if said == told:
            raise
        raise type(failed)(said, kind=failed.kind) from failed


@contextmanager
def way_on_without_the_journal(path: str, application: str, journal: str) -> Iterator[None]:
    """As ``way_on``, of errors of the fan-out's own journal.

    path, application: as the error has them. journal: its place.
    """
    try:
        yield
    except (Corrupt, Misuse) as failed:
        told = str(failed)
        said = _instead(
            told,
            path,
            application,
            f"remove the folder {journal}: the destinations tell how far they are {shell.discard(journal)}. Where all "
            "are at the same batch, "
            "the query goes on from there; else the start says which of them are behind, and what to do then",
        )
        if said == told:
            raise
        raise type(failed)(said, kind=failed.kind) from failed


def _instead(told: str, path: str, application: str, way: str) -> str:
    """The message with another way in the place of ``streamsink.give_up``, for tables and for other destinations."""
    for is_table in (True, False):
        told = told.replace(ways.give_up_at_once(path, application, is_table), way)
    return told
