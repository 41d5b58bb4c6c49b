"""A lock that is held while events are told, which a listener cannot take: it would wait for itself."""

import threading
from types import TracebackType

from streamsink.errors import Misuse


class NoCallback:
    """As ``threading.Lock`` in a ``with`` statement, but for the thread that holds it, which gets an error at once.

    A listener runs in the thread that tells it. What it calls in this library may need the lock that is held while it
    is told, and then the query, and each other one that waits for the lock, would stand still for ever.
    """

    def __init__(self, path: str = "streamsink"):
        """path: the table in the text of the error, or the name of this library."""
        self._path = path
        self._lock = threading.Lock()
        self._holder: int | None = None

    def __enter__(self) -> None:
        """Raises Misuse in a thread that holds it."""
        if self._holder == threading.get_ident():
            raise Misuse(
                f"{self._path}: a listener has called the sink, or started a query, within an event of a query that "
                "starts or publishes. It would wait for itself, so nothing was written by this call. Let the listener "
                "hand what it is told to a thread of its own, for instance with queue.SimpleQueue.put",
                kind="listener.calls-back",
            )
        self._lock.acquire()
        self._holder = threading.get_ident()

    def locked(self) -> bool:
        """Whether a thread holds it."""
        return self._lock.locked()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._holder = None
        self._lock.release()
