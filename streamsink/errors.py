"""Every error that streamsink raises on purpose, grouped by what the caller shall do.

    StreamsinkError
    |- Retryable            try again from the last durable state; nothing was lost or doubled
    |  `- RestoredThenFailed  the intended failure of ``restore-and-fail``: restart with clean writers
    |- Conflict             another writer changed what this commit relied on; look, then decide
    |- Fenced               a newer writer has taken over this application: stop, do not retry
    |- OutcomeUnknown       the publish may or may not have happened; read back, delete nothing
    |- Corrupt              bytes on disk are not what they must be; names the file and the way out
    `- Misuse               the call, the option, the data or the environment is wrong; mend it

``kind`` is a stable, append-only word for programs; the message is for people. No message carries a row value or
a credential: paths, counts, names and types only.
"""

from collections.abc import Callable


class StreamsinkError(Exception):
    """Base of all errors of this library. ``kind`` is stable, the message is not."""

    def __init__(self, message: str, *, kind: str):
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> "tuple[Callable[..., StreamsinkError], tuple[type[StreamsinkError], str, str]]":
        # Keyword-only arguments need this to survive the trip between executor and driver.
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
    """A file is torn, truncated, altered or missing. The message names it and the way out."""


class Misuse(StreamsinkError):
    """A wrong option, schema, path, or an accident that needs the user's decision."""
