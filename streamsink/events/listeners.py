"""Who is told of events: the log, and several listeners as one; and who tells of the steps of a batch."""

from collections.abc import Callable
from typing import Any

from streamsink.events.event import Event, Listener, log


def to_log(event: Event) -> None:
    """The default listener: write the event as one line to the logger ``streamsink``."""
    if log.isEnabledFor(event.level):
        said = " ".join(f"{key}={value}" for key, value in event.said().items())
        log.log(event.level, "%s %s application=%s %s", type(event).__name__, event.table, event.application, said)


class Listeners:
    """Several listeners as one, which never raises: no batch fails because of somebody who only looks on.

    The first error of each is logged, with the event at which it came; ``failures`` counts them all.
    """

    def __init__(self, *listeners: Listener):
        self.failures = 0
        self._listeners: list[Listener] = []
        for each in listeners:
            self._listeners += each._listeners if isinstance(each, Listeners) else [each]
        self._failed: list[Listener] = []

    def __call__(self, event: Event) -> None:
        for each in self._listeners:
            try:
                each(event)
            except Exception as failed:  # an edge: it is the listener's own, and the batch goes on
                self.failures += 1
                if each not in self._failed:
                    self._failed.append(each)
                    log.warning(
                        "%s: the listener %r failed at %s (%s: %s). The batch goes on. Further errors of this listener "
                        "are counted, and not logged",
                        event.table,
                        each,
                        type(event).__name__,
                        type(failed).__name__,
                        failed,
                    )


class Steps:
    """Tells of the steps of one batch that follow each other, each with the time since the one before it ended."""

    def __init__(self, emit: Callable[..., None], monotonic_ms: Callable[[], float], checkpoint_id: int):
        """emit: called with the kind of the event and its fields by name."""
        self._emit, self._now, self._checkpoint_id = emit, monotonic_ms, checkpoint_id
        self._ended_ms = monotonic_ms()

    def __call__(self, kind: type[Event], **fields: Any) -> None:
        """A step has ended. kind: of its event; fields: of the event, but for ``checkpoint_id`` and what it took."""
        ended_ms = self._now()
        took = {kind.took: ended_ms - self._ended_ms}
        self._ended_ms = ended_ms
        self._emit(kind, checkpoint_id=self._checkpoint_id, **took, **fields)


def error_of(failed: BaseException) -> tuple[str, str]:
    """The name of an error's class, and its kind; '' where it is not of this library."""
    return type(failed).__name__, getattr(failed, "kind", "")
