"""Every error that streamsink raises on purpose, grouped by what the caller has to do.

    StreamsinkError
    |- Retryable            try again from the last durable state; nothing was lost or doubled
    |  `- RestoredThenFailed  the intended failure of ``restore-and-fail``: restart with clean writers
    |- Conflict             another writer changed what this commit relied on; look, then decide
    |- Fenced               a newer writer has taken over this application: stop, do not retry
    |- OutcomeUnknown       the publish may or may not have happened; read back, delete nothing
    |- Corrupt              bytes on disk are not what they must be; names the file and what to do
    `- Misuse               the call, the option, the data or the environment is wrong; correct it

``kind`` is a stable word for programs: a kind is never renamed or removed. The message is for people. No message
carries a row value or a credential, only paths, counts, names and types.
"""

from collections.abc import Callable


class StreamsinkError(Exception):
    """Base of all errors of this library. ``kind`` is stable, the message is not."""

    def __init__(self, message: str, *, kind: str):
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> "tuple[Callable[..., StreamsinkError], tuple[type[StreamsinkError], str, str]]":
        # Pickle cannot pass the keyword-only argument by itself when an error travels from executor to driver.
        return _rebuild, (type(self), str(self), self.kind)


def _rebuild(cls: type[StreamsinkError], message: str, kind: str) -> StreamsinkError:
    return cls(message, kind=kind)


class Retryable(StreamsinkError):
    """A passing failure: the same work may be done again from the last durable state."""


class RestoredThenFailed(Retryable):
    """What was pending has been published; the query failed on purpose so that it restarts with clean writers."""


class Conflict(StreamsinkError):
    """Another writer's commit contradicts this one."""


class Fenced(StreamsinkError):
    """This writer has been superseded, or the application's name is in use by another query."""


class OutcomeUnknown(StreamsinkError):
    """Whether the publish happened could not be settled. Nothing may be deleted; the next start reads it back."""


class Corrupt(StreamsinkError):
    """A file is torn, truncated, altered or missing. The message names the file and says what to do."""


class Misuse(StreamsinkError):
    """An option, a schema or a path is wrong, or something has happened that needs the user's decision."""
