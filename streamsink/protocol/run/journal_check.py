"""Whether the journal that a start finds is the one that the destination's last record is of. Driver only."""

import contextlib
from collections.abc import Callable

from streamsink import shell
from streamsink.errors import Corrupt, Misuse, StreamsinkError
from streamsink.protocol.committable import AppState, Committable
from streamsink.protocol.ids import Writer
from streamsink.protocol.journal import Journal, JournalIdentity, readable

# Kinds of the errors that find records lost: by those that the destination names, or by those of the journal.
_OF_LOST_RECORDS = ("table.rolled-back", "table.rolled-back-too-far", "journal.missing-record")


class JournalCheck:
    """The identity of one application's journal, compared with what the destination's last record says of it."""

    def __init__(self, path: str, application: str, journal: Journal, new_id: Callable[[], str]):
        """path: of the destination, for messages."""
        self._path = path
        self._application = application
        self._journal = journal
        self._new_id = new_id

    def identify(self, published: AppState | None) -> None:
        """Give the journal an identity, or learn it. Called at a start, after the claim. Raises Misuse as ``check``."""
        self._journal.identify(published.sequence if published else 0, self._new_id)
        identity, last = self._journal.identity(), self._journal.last_sequence()
        if published is not None:
            self.check(published)
        elif (
            identity.began < last
            and (own := readable(self._journal, last))
            and own.state.journal_id not in ("", identity.id)
        ):
            self._journal.identify(last, self._new_id, anew=True)  # its identity was lost, as in ``check``

    def check(self, published: AppState) -> None:
        """Raises Misuse when this is another journal than the one that the destination's last record names.

        Asked again where a running query finds another record in the destination than its own last one.
        """
        identity = self._journal.identity()
        is_named = published.journal_id in ("", identity.id)
        if not is_named and identity.began >= published.sequence:
            return
        own = readable(self._journal, published.sequence) if is_named else self._journal.load(published.sequence)
        if own is not None and own.state.record_id == published.record_id:
            if not is_named:
                # The right journal, whose identity was lost or deleted: what that said of its completeness is not
                # known any more.
                self._journal.identify(published.sequence, self._new_id, anew=True)
        elif own is not None or not is_named:
            raise Misuse(
                f"{self._path}: the last record of application '{self._application}', number {published.sequence}, "
                f"{_other_journal(published, own, identity, self._journal.last_sequence())}. Nothing was written. "
                "Restore "
                f"the right journal; or remove this one, the folder {self._journal.place}, with what is pending in it "
                f"{shell.discard(self._journal.place)}, and restart the query",
                kind="journal.other",
            )


def _other_journal(published: AppState, own: Committable | None, there: JournalIdentity, last: int) -> str:
    """How a journal differs from the one that the last published record is of. own: its record of the same number."""
    if own is not None and published.journal_id in ("", there.id):
        return (
            f"has the id {published.record_id}, but in the journal that is there the record of this number has the id "
            f"{own.state.record_id}: table and journal have one past and went on in different ways, as when one of "
            "them was restored from a backup"
        )
    return (
        f"is of journal {published.journal_id}, but the journal that is there has the id {there.id}, and records of "
        f"its own up to number {last}: it was put in the place of the right one"
    )


def check_not_superseded(journal: Journal, writer: Writer, failed: BaseException | None) -> None:
    """Raises Fenced when another driver has taken over, and this one ends with an error that advises something.

    What it finds wrong with its tables is then what that one has published, and the advice would be wrong. An error
    that is none of this library's, such as a file that is gone, and one that finds records lost may have come of what
    was done to the journal meanwhile, as by ``retire``: of several questions of one look some may be answered before
    that, and others after it. Of these, Corrupt is raised as well, when the journal was removed. Any other error about
    the destination stays then: one that was dropped takes its journal along.
    """
    finds_lost = isinstance(failed, StreamsinkError) and failed.kind in _OF_LOST_RECORDS
    if finds_lost or isinstance(failed, Exception) and not isinstance(failed, StreamsinkError):
        with contextlib.suppress(OSError):
            journal.check_owner(writer)
    elif isinstance(failed, Misuse):
        with contextlib.suppress(OSError, Corrupt):
            journal.check_owner(writer)
