"""What commands ask of a destination while no query writes to it: a part of the sink contract. Driver only."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from streamsink.errors import Misuse, StreamsinkError
from streamsink.events import CheckpointPublished, Event, log
from streamsink.protocol.committable import Committable

# Of what is gone so many are named, so that a look at a large destination takes no more memory than at a small one.
MOST_NAMED = 100


@dataclass
class Named:
    """Paths: the first ones, and how many more there are."""

    first: list[str] = field(default_factory=list)
    more: int = 0

    def add(self, paths: Sequence[str]) -> None:
        """Name these, as long as there is room."""
        room = MOST_NAMED - len(self.first)
        self.first += paths[:room]
        self.more += len(paths[room:])


@dataclass(frozen=True)
class Visible:
    """The data files that a destination names to its readers, whoever has written them.

    files, rows: how many; rows are 0 where nothing tells them. gone: paths of those that are not there, or have another
    size. removed: folders of a record that are not there, with all of its files, as where somebody has removed old
    rows. more_gone, more_removed: how many there are besides, which are not named.
    """

    files: int
    rows: int
    gone: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    more_gone: int = 0
    more_removed: int = 0


def begun(action: Callable[[], None], name: str) -> threading.Thread | None:
    """A thread of this name that does it, beside the query and ending with the program.

    None where there is no thread to be had, or where the interpreter ends: whoever asks for one tries again later.
    """
    thread = threading.Thread(target=action, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as failed:
        log.warning("%s could not begin, and is tried again later: %s", name, failed)
        return None
    return thread


class Care:
    """What a destination does for itself beside the batches of a query, in a thread of its own: by default nothing.

    No batch waits for it. One for each start of a query; nothing is done before the first publishing.
    """

    def published(self) -> None:
        """Something was published. Called by whoever published it; returns at once."""

    def check(self) -> None:
        """Raises the error with which it has ended, each time that it is asked."""

    def stop(self) -> None:
        """No batch will come: end what is being done, and raise an error that nobody has been told. Idempotent."""

    def hearing(self, emit: Callable[[Event], None]) -> Callable[[Event], None]:
        """The same listener; this is told as well when something is published."""

        def heard(event: Event) -> None:
            emit(event)
            if isinstance(event, CheckpointPublished):
                self.published()

        return heard

    @contextmanager
    def stopping(self) -> Iterator[None]:
        """Within it the last is published; then this stops. An error of publishing is the one to be seen."""
        try:
            yield
        except BaseException:
            with suppress(StreamsinkError, OSError):
                self.stop()
            raise
        self.stop()


class CareOfAll(Care):
    """What several destinations do for themselves."""

    def __init__(self, cares: Sequence[Care]):
        self._cares = cares

    def published(self) -> None:
        for each in self._cares:
            each.published()

    def check(self) -> None:
        for each in self._cares:
            each.check()

    def stop(self) -> None:
        for each in self._cares[:1]:
            with CareOfAll(self._cares[1:]).stopping():
                each.stop()


class Upkeep:
    """What a ``Committer`` says and does for ``streamsink.give_up``, ``retire`` and ``verify``.

    A command opens the sink as a start of the query does, and calls these methods when it has claimed the application.
    """

    tells_apart: bool = False
    """Whether ``history`` is kept apart from the rows, so that it may be lost while they stay."""

    def is_readable(self, committable: Committable) -> bool:
        """Whether what else it takes to publish a pending record, beside its files, is whole. By default it is."""
        return True

    def visible(self) -> Visible | None:
        """What readers are to read, each file looked for once; None for a destination without files, or not told so.

        Changes nothing. Raises Corrupt where what names the files is damaged.
        """
        return None

    def check_parts(self) -> None:
        """Of a destination that is made of others: compare what these have with what it has given them.

        Changes nothing. Raises Misuse as a start would. The journal's names are read.
        """

    def give_up(self, application: str, sequence: int) -> None:
        """Remove what tries to publish this record have left: its number is given again. By default nothing."""

    def forget(self, application: str) -> None:
        """Remove all that the destination remembers of an application; its rows stay.

        Nothing of the application is pending, and its journal is removed behind this. Idempotent: after a crash it is
        called again. By default it raises Misuse; see ``Sink.never_forgets``.
        """
        raise Misuse(
            f"the destination of application '{application}' cannot forget it: its author has not said how "
            "(Committer.forget). Nothing was changed",
            kind="retire.keeps-names",
        )
