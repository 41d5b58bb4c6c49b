"""What the journals of other applications below the same folder say. Nothing is claimed. Driver only.

A journal that cannot be read is no error here, because it is not the journal of this application.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from streamsink.errors import Corrupt, Misuse
from streamsink.events import log
from streamsink.journal.file_journal import JOURNAL_DIR, FileJournal
from streamsink.protocol.committable import AppState, Committable, LastOfOther
from streamsink.protocol.journal import comes_again
from streamsink.storage.file_io import FileIO


def last_of_others(
    file_io: FileIO, path: str, application: str, names: Iterable[str], published: Callable[[str], AppState | None]
) -> dict[str, LastOfOther]:
    """Return what ``Committer.others`` is to return for a destination at this path whose journals lie below it.

    names: the applications that the destination knows. Applications that have a journal are found in addition to these.
    published: returns what the destination says of one application; None when it says nothing.

    A journal that cannot be read raises nothing here, because it is not the journal of this application.
    """
    journals = (entry.name for entry in file_io.entries(os.path.join(path, JOURNAL_DIR)) if entry.is_dir)
    found = {}
    for name in sorted({*names, *journals} - {application}):
        state = published(name)
        said = LastOfOther(state, True, said=state) if state is not None else None
        last = newest_in(FileJournal(file_io, path, name, 2), said, lambda record: False)
        if last is not None:
            found[name] = last
    return found


def newest_in(
    journal: FileJournal, said: LastOfOther | None, may_be_forgotten: Callable[[Committable], bool]
) -> LastOfOther | None:
    """The newer one of what a table says of an application and the last record of the application's journal.

    said: None where the table says nothing. may_be_forgotten: whether the table may have had the record and say nothing
    of it only because snapshots have expired; then a mark proves that the record is published. Where the table says
    less than the journal, or has all of its history, or is another table, what it had is gone.
    """
    newest = None
    with of_no_matter(journal.place, "its newest record"):
        newest = journal.newest()
    if newest is None or said is not None and said.state.sequence >= newest.state.sequence:
        return said
    journal.read_listing()
    is_published = said is None and is_certain(journal, newest.state.sequence) and may_be_forgotten(newest)
    return LastOfOther(newest.state, is_published, said=said.said if said is not None else None)


def is_certain(journal: FileJournal, sequence: int) -> bool:
    """Whether a mark says that the record is published, and not that it was about to be published once more."""
    return journal.is_marked(sequence) and not comes_again(journal.mark_of(sequence))


@contextmanager
def of_no_matter(place: str, name: str) -> Iterator[None]:
    """Within it, an unreadable state or record of another application is logged and left out.

    What is damaged, or of a newer streamsink, stops its own application and no other one of the table.
    """
    try:
        yield
    except (Corrupt, Misuse) as unreadable:
        log.warning(
            "%s: %s of another application cannot be read, and is left out of account here: %s", place, name, unreadable
        )
