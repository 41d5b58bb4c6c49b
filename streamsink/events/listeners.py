"""Who is told of events: the log, and several listeners as one; and who tells of the steps of a batch."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamsink.events.event import Event, Listener, log


@dataclass(frozen=True)
class ListenerFailed(Event):
    """A listener has raised an error at an event; the other listeners are told. error: the name of its class."""

    level = logging.DEBUG

    listener: str
    at: str
    error: str


def to_log(event: Event) -> None:
    """The default listener: write the event as one line to the logger ``streamsink``."""
    if log.isEnabledFor(event.level):
        said = " ".join(f"{key}={value}" for key, value in event.said().items())
        # ``extra``: for who formats lines in another way, as ``streamsink.metrics.JsonFormatter``
        words = (type(event).__name__, event.table, event.application, said)
        log.log(event.level, "%s %s application=%s %s", *words, extra={"event": event})


class Listeners:
    """Several listeners as one, which never raises: no batch fails because of somebody who only looks on.

    The first error of each is logged, with the event at which it came. The others are told of each by ListenerFailed.
    """

    def __init__(self, *listeners: Listener):
        self._listeners: list[Listener] = []
        for each in listeners:
            self._listeners += each._listeners if isinstance(each, Listeners) else [each]
        self._failed: list[Listener] = []

    def __call__(self, event: Event) -> None:
        for each in self._listeners:
            self._tell(each, event)

    def _tell(self, listener: Listener, event: Event) -> None:
        try:
            listener(event)
        except Exception as failed:  # an edge: it is the listener's own, and the batch goes on
            self._say(listener, event, failed)

    def _say(self, listener: Listener, event: Event, failed: Exception) -> None:
        of, error, at = (event.table, event.application), type(failed).__name__, type(event).__name__
        name = getattr(listener, "__qualname__", type(listener).__qualname__)
        if listener not in self._failed:
            self._failed.append(listener)
            log.warning(
                "%s: the listener %s failed at %s (%s: %s). The batch goes on. Further errors of this listener are "
                "counted, and not logged",
                event.table,
                name,
                at,
                error,
                failed,
            )
        for other in self._listeners if not isinstance(event, ListenerFailed) else ():
            if other is not listener:
                self._tell(other, ListenerFailed(*of, name, at, error))


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
