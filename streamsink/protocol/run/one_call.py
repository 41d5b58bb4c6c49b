"""Which call of a sink is under way in one run: one at a time, and none beside another that is given the same batch.

Driver only.
"""

import threading

from streamsink.errors import Misuse
from streamsink.protocol import ways


class OneCall:
    """A second call for the batch that is under way ends both, as long as nothing of the batch is recorded.

    Both calls may have a part of the batch each, and a restart would take the part that is recorded for all of it. From
    the record on it is too late for that: the second call waits for the first, and is judged as one that came after it.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._batch_id: int | None = None  # of the call that is under way
        self._thread = 0
        self._is_disturbed = False
        self._is_decided = False

    def begin(self, batch_id: int) -> bool:
        """Whether this call may go on. It must end with ``end`` then."""
        with self._changed:
            if self._batch_id is not None and not self._may_wait(batch_id):
                # Two calls of one batch disturb each other. A call of a later batch disturbs nothing: Spark takes the
                # first batch for done then, and nobody would give its rows again.
                self._is_disturbed |= batch_id == self._batch_id
                return False
            self._changed.wait_for(lambda: self._batch_id is None)
            self._batch_id, self._thread = batch_id, threading.get_ident()
            self._is_disturbed = self._is_decided = False
            return True

    def _may_wait(self, batch_id: int) -> bool:
        return batch_id == self._batch_id and self._is_decided and threading.get_ident() != self._thread

    def decide(self) -> bool:
        """Whether the batch may be recorded. From now on other calls for it wait."""
        with self._changed:
            self._is_decided = not self._is_disturbed
            return self._is_decided

    def end(self) -> None:
        """The call has returned, or raised."""
        with self._changed:
            self._batch_id = None
            self._changed.notify_all()


def given_twice(path: str, batch_id: int, found: str) -> Misuse:
    """The error for a batch that a run is given a second time. path: of the destination. found: what it had before."""
    return _refused(
        path,
        batch_id,
        f"it was given to this sink before in this run of the query ({found}), and Spark repeats a batch only in a "
        "new run. So these rows are a second part of the batch, which this call will not skip in silence. "
        f"{ways.second_part(f'batch {batch_id}')}",
        kind="batch.twice",
    )


def given_at_one_time(path: str, batch_id: int) -> Misuse:
    """The error for a call beside another one."""
    return _refused(
        path,
        batch_id,
        "two calls of this sink were under way at one time: a sink takes one batch after another. Call it once in "
        "the batch function, and not from a pool of threads",
        kind="batch.concurrent",
    )


def _refused(path: str, batch_id: int, why: str, *, kind: str) -> Misuse:
    return Misuse(f"{path}: batch {batch_id}: {why}. Nothing of it was written", kind=kind)
