"""A destination that may stay behind while the others go on. Driver only.

Its part of each record goes into its own journal as ever, so it is recorded there, with its staged files, and waits.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from streamsink import events
from streamsink.errors import Fenced, OutcomeUnknown, Retryable, StreamsinkError
from streamsink.sinks.fan_out.branch import Branch
from streamsink.sinks.fan_out.parts import Part


class LaggingBranch(Branch):
    """A branch whose errors of publishing do not end the query, as long as it has not too many records pending.

    What it lacks is published before anything newer: with each batch it is tried once, and at each start.
    """

    def __init__(self, *given: Any, most: int):
        """given: as ``Branch``. most: so many records may be pending when the next batch begins."""
        super().__init__(*given)
        self._most = most
        self._failed: Exception | None = None  # why it is behind; None while it is not

    @property
    def counted(self) -> int:
        # The journal may be an older copy, which does not know what the destination had when the start asked it.
        return max(self.published, self._planned, self.journal.last_sequence())

    def may_lack_records(self) -> bool:
        """Yes: what it has not published yet may be missing where its journal is an older copy; it never had that."""
        return True

    def _pending(self) -> int:
        return sum(not self.journal.is_marked(number) for number in self.journal.retained())

    def restore(self) -> None:
        """As ``Branch.restore``. What the user has to decide is raised all the same."""
        if not self.is_running:
            self._try(super().restore, OSError, Retryable, OutcomeUnknown)
            if self._failed is not None:
                newest = self.journal.load(self.journal.last_sequence())
                known = [self._before, newest.state if newest is not None else None]
                states = (state for state in known if state is not None)
                self._last = max(states, key=lambda state: state.sequence, default=None)
                self.is_running = True

    def look(self) -> None:
        """As ``Branch.look``; while it is behind, what is missing is left to ``check_room``. Raises Retryable as that
        does, and in any case what the user has to decide.
        """
        if self._failed is None:
            self._try(super().look, OSError, Retryable, OutcomeUnknown)
        else:
            with contextlib.suppress(OSError, Retryable, OutcomeUnknown):  # it is behind already
                self._compare()
        self.check_room()

    def check_room(self) -> None:
        """Called before a batch. Raises Retryable when too many records are pending, and cannot be published now."""
        if self._failed is None or self._pending() < self._most:
            return
        self._try(self._catch_up, OSError, StreamsinkError)
        if self._failed is not None:
            raise Retryable(
                f"{self.to.path}: the destination '{self.name}' has {self._pending()} records pending, of which "
                f"may_lag allows {self._most} when a batch begins, and they cannot be published now: {self._failed}. "
                "Nothing is lost: they are recorded, and are published in order when that is possible. Mend what is "
                f"named there, and start the query again; or allow more, may_lag={{'{self.name}': ...}}",
                kind="fan-out.too-far-behind",
            ) from self._failed

    def publish_up_to(self, part: Part, checkpoint_id: int) -> None:
        """As ``Branch.publish_up_to``; an error puts the branch behind."""
        if self._failed is not None:
            self._try(self._catch_up, OSError, StreamsinkError)
        else:
            self._try(functools.partial(super().publish_up_to, part, checkpoint_id), OSError, StreamsinkError)

    def _catch_up(self) -> None:
        """Publish what is pending, in order, as a start does: nobody knows what became of the try that failed."""
        self._begin_anew()
        self._reconcile(lambda: None)

    def _try(self, act: Callable[[], None], *passing: type[Exception]) -> None:
        """Do it. One of these errors puts the branch behind, except that another driver has taken over."""
        was_behind = self._failed is not None
        try:
            act()
        except Fenced:
            raise
        except passing as failed:
            self._failed = failed
            self._tell(self._pending(), str(failed))
        else:
            self._failed = None
            if was_behind:
                self._tell(0, "")

    def _tell(self, pending: int, why: str) -> None:
        self._emit(events.DestinationBehind(self.to.path, self._options.application, self.name, pending, why))
