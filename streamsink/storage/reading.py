"""The part of a store's contract that changes nothing; see ``file_io.py``.

What a batch looks at is known before it looks: whether the newest snapshot is still the newest one, whether somebody
else owns the application, and so on. Each answer of a store behind a network takes a round trip, so these questions are
asked together (``AskedAhead``), and the code that follows finds the answers.
"""

import functools
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, BinaryIO, Generic, TypeVar

from streamsink.clock import Clock
from streamsink.storage.calls import NameLimits, PosixLikeCalls

_Answer = TypeVar("_Answer")
_READ, _SIZE, _NAMES = "read", "size", "names"
# So long an answer counts that was kept for a later block. Nobody stops a query and restores its table within less.
KEPT_MS = 5_000


@dataclass(frozen=True)
class Questions:
    """Files of which the bytes (``read``), or the sizes (``size``, which also tells whether they exist), are needed;
    and folders of which the names are."""

    read: tuple[str, ...] = ()
    size: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def __add__(self, other: "Questions") -> "Questions":
        return Questions(self.read + other.read, self.size + other.size, self.names + other.names)


@dataclass(frozen=True)
class FileStatus:
    """One entry of a folder: ``name`` without its folder, ``size`` in bytes (0 for a folder)."""

    name: str
    size: int
    is_dir: bool


class Reading:
    """Reads files and lists folders.

    lists_sizes: whether the listing of a folder also tells the sizes of its files. is_distant: whether an answer takes
    a round trip through a network, so that few questions are asked, and several at once.
    """

    lists_sizes = False
    is_distant = False

    def __init__(self, calls: PosixLikeCalls):
        self._calls = calls

    def read(self, path: str) -> bytes:
        """Return all bytes of a file. Raises: FileNotFoundError, OSError."""
        return self._calls.read(path)

    def exists(self, path: str) -> bool:
        """Whether a file or folder has this name."""
        return self._calls.size(path) is not None

    def size(self, path: str) -> int | None:
        """The size of the file in bytes, or None when there is no such file."""
        return self._calls.size(path)

    def asking(self, questions: Questions) -> AbstractContextManager[None]:
        """Within it, the first answer about each of these files is as of its beginning; the second one is as of now.

        A distant store is asked all of them at once, so that they take one round trip. It is only faster: whoever needs
        another order of two answers does not ask both ahead. A store that is near is asked nothing ahead.
        """
        return nullcontext()

    def asking_to_keep(self, questions: Questions, *, more: bool = False) -> AbstractContextManager[None]:
        """As ``asking``. The thread may use the answers once more, in a block of ``asked_recently``.

        more: those of the block before this one count as well, as this one looks at something else.
        """
        return self.asking(questions)

    def proving(self) -> AbstractContextManager[None]:
        """Entered by who is about to write. A distant store that must be tried out first is tried out beside the next
        questions that this thread asks ahead, also behind the block. What is left of that is removed when the block
        ends with an error.
        """
        return nullcontext()

    def is_own(self, path: str) -> bool:
        """Whether this object has made the file for such a try, and removes it."""
        return False

    def together(self, actions: Sequence[Callable[[], Any]], *, soon: bool = False) -> None:
        """Run the actions: one after another, or at once in a distant store, where each takes a round trip.

        Raises the first error, after all that were begun have ended. soon: each of them as ``soon`` does; those that
        wait have ended when a later call without it returns.
        """
        for action in actions:
            action()

    def soon(self, action: Callable[[], None]) -> None:
        """Run the action; in a distant store together with the next questions that this thread asks ahead.

        It has ended when these are answered, and before this thread creates anything under a condition. Its error is
        raised there. For what nobody waits for: when this process dies before, it is as if it had died a moment ago.
        """
        action()

    def do_waiting(self) -> None:
        """Run now what ``soon`` has left to the next questions of this thread."""

    def ask_beside(self, action: Callable[[], None], questions: Questions, *, shared: Questions = Questions()) -> None:
        """Run the action. A distant store is asked this at the same time, for ``asked_recently``.

        shared: questions whose answers count in each of several such blocks that follow.
        """
        action()

    def asked_recently(self, questions: Questions) -> AbstractContextManager[int | None]:
        """As ``asking``, with the answers that this thread has kept, if it asked for them within a few seconds.

        Enters with a time in ms before the first of the answers; None where nothing is asked ahead.
        """
        return nullcontext()

    def asking_beside(self, action: Callable[[], None], questions: Questions) -> AbstractContextManager[None]:
        """Run the action, then the block, as within ``asking``. A distant store is asked while the action runs: these
        answers and what the action does may come in any order.
        """
        action()
        return self.asking(questions)

    def known_still(self, questions: Questions, made: tuple[str, bytes], following: str) -> None:
        """The answers to these questions that this thread has used last in ``asked_recently`` count once more there,
        for as long as they would have. So does what this process knows because it has just made a file under a number
        that was free: path and bytes of that, and that there is no file with the following number.
        """

    def entries(self, path: str) -> list[FileStatus]:
        """The entries of a folder, sorted by name; empty when there is no such folder."""
        return [FileStatus(*entry) for entry in sorted(self._calls.entries(path))]

    def names(self, path: str) -> list[str]:
        """The names of the entries of a folder, sorted.

        This is cheaper than ``entries`` where a store has to ask for the size of each file separately.
        """
        return sorted(self._calls.names(path))

    def files_below(self, path: str) -> list[str]:
        """The paths of all files in this folder and in the folders below it."""
        found: list[str] = []
        for entry in self.entries(path):
            child = os.path.join(path, entry.name)
            found += self.files_below(child) if entry.is_dir else [child]
        return found

    def names_beginning(self, path: str, beginning: str) -> list[str]:
        """Those of ``names`` that begin with this text, at the cost of these alone where the store can tell them."""
        return [name for name in self.names(path) if name.startswith(beginning)]

    def sizes_beginning(self, path: str, beginning: str) -> dict[str, int]:
        """The sizes in bytes of the same, by name, at the cost of these alone where the store can tell them."""
        return {entry.name: entry.size for entry in self.entries(path) if entry.name.startswith(beginning)}

    def listed(self, path: str) -> Mapping[str, int | None]:
        """The names in a folder, each with its size if the listing itself tells sizes, and with None otherwise."""
        if not self.lists_sizes:
            return dict.fromkeys(self._calls.names(path))
        return {name: size for name, size, _ in self._calls.entries(path)}

    def open_input(self, path: str) -> BinaryIO:
        """Open a file to read parts of it; the caller closes it. Only where ``takes_files_of_others``.

        Raises: FileNotFoundError, OSError.
        """
        return self._calls.open_existing(path)

    def name_limits(self, path: str) -> NameLimits:
        """How long names below this folder may be. Used by the driver and by executors.

        At most the operating system is asked, never a remote store.
        """
        return self._calls.name_limits(path)


class _Asked(Generic[_Answer]):
    """One question: its answer, or the error with which the store answered."""

    def __init__(self, ask: Callable[[], _Answer]):
        self._ask = ask
        self._error: OSError | None = None
        self._found: list[_Answer] = []

    def __call__(self) -> None:
        try:
            self._found = [self._ask()]
        except OSError as failed:
            self._error = failed

    def answer(self) -> _Answer:
        if self._error is not None:
            raise self._error
        return self._found[0]

    @property
    def has_failed(self) -> bool:
        """Whether the answer is an error; one of a file that is not there is an error too."""
        return self._error is not None

    @property
    def is_nothing(self) -> bool:
        """Whether the store says that there is no such file."""
        return self._found == [None] or isinstance(self._error, FileNotFoundError)


class _Answers(threading.local):
    """What one thread has asked ahead and not used yet. kept_ms: a time before the first of ``kept`` was asked.

    waiting: what is done with its next questions. shared: those of ``kept`` that are used more than once. used: what
    the last block of ``recent`` has used, asked from used_ms on.
    """

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.now: dict[tuple[str, str], _Asked[Any]] = {}
        self.kept: dict[tuple[str, str], _Asked[Any]] = {}
        self.kept_ms = 0
        self.used: dict[tuple[str, str], _Asked[Any]] = {}
        self.used_ms = 0
        self.shared: Collection[tuple[str, str]] = ()


class AskedAhead:
    """The answers of one store to questions that were asked ahead.

    An answer is as old as the block in which it was asked for, is given once, and is given only to the thread that
    asked: whoever asks again wants to know what has changed, and asks the store. What a block around this one has
    asked, and nobody has used yet, is not asked again.
    """

    def __init__(
        self,
        read: Callable[[str], bytes],
        size: Callable[[str], int | None],
        entries: Callable[[str], list[tuple[str, int, bool]]],
        at_once: Callable[[Sequence[Callable[[], None]]], None],
    ) -> None:
        """read, size, entries: ask the store. at_once: runs actions in any order."""
        self._read = read
        self._size = size
        self._entries = entries
        self._run_at_once = at_once
        self._clock = Clock()
        self._of = _Answers()

    @contextmanager
    def asking(self, questions: Questions) -> Iterator[None]:
        """Within it, the first question about each of these files has its answer already."""
        with self._within({}, questions):
            yield

    @contextmanager
    def keeping(self, questions: Questions, *, more: bool = False) -> Iterator[None]:
        """As ``asking``; ``recent`` may use the answers again, unless the block ends with an error.

        What was kept before is forgotten: this look may find that it is true no more. more: it counts still, if it was
        asked a moment ago.
        """
        begun_ms = self._clock.now_ms()
        before, before_ms = (self._of.kept, self._of.kept_ms) if more and self._are_recent(begun_ms) else ({}, begun_ms)
        self._of.kept = {}
        with self._within({}, questions) as asked:
            yield
        kept = {question: ask for question, ask in asked.items() if ask.is_nothing or not ask.has_failed}
        self._of.kept, self._of.kept_ms = before | kept, before_ms if before else begun_ms

    def beside(self, action: Callable[[], None], questions: Questions, *, shared: Questions = Questions()) -> None:
        """Run the action, and ask at the same time; ``recent`` may use the answers.

        When something is there by now, or cannot be told, others have been here, and nothing is kept. Raises what the
        action raises. shared: of these the answers are used in each of the blocks that follow.
        """
        self.do_waiting()
        self._of.shared = self._asks(shared).keys()
        kept, self._of.kept = self._of.kept, {}
        asked = self._asks(questions)
        self._at_once([action, *asked.values()])
        self._of.kept = kept | asked if all(ask.is_nothing for ask in asked.values()) else {}

    @contextmanager
    def within_beside(self, action: Callable[[], None], questions: Questions) -> Iterator[None]:
        """See ``Reading.asking_beside``. Raises what the action raises, before the block."""
        self.do_waiting()
        asked = self._asks(questions)
        self._at_once([action, *asked.values()])
        with self._within(asked, Questions()):
            yield

    @contextmanager
    def recent(self, questions: Questions) -> Iterator[int]:
        """As ``asking``, with the answers that were kept a moment ago. Those that are not shared are forgotten then.

        Where they do not answer all of these questions, all are asked: answers from before and after a change would
        together tell of a table that never was. Yields a time in ms before the first of the answers.
        """
        now_ms, every, asks = self._clock.now_ms(), self._of.kept, self._asks(questions).keys()
        count = self._are_recent(now_ms) and every.keys() >= asks
        kept = {question: ask for question, ask in every.items() if question in asks} if count else {}
        self._of.kept = {
            question: ask for question, ask in every.items() if question not in asks or question in self._of.shared
        }
        since_ms = self._of.kept_ms if kept else now_ms
        with self._within(kept, questions) as asked:
            yield since_ms
        self._of.used, self._of.used_ms = asked, since_ms

    def known_still(self, questions: Questions, made: tuple[str, bytes], following: str) -> None:
        """See ``Reading.known_still``."""
        used, (path, data) = self._of.used, made
        kept = {
            q: used[q] for q in self._asks(questions) if q in used and (used[q].is_nothing or not used[q].has_failed)
        }
        known: dict[tuple[str, str], _Asked[Any]] = {
            (_READ, path): _Asked(lambda: data),
            (_SIZE, following): _Asked(lambda: None),
        }
        for ask in known.values():
            ask()
        self._of.kept, self._of.kept_ms = kept | known, self._of.used_ms

    def _are_recent(self, now_ms: int) -> bool:
        """Whether what is kept was asked a moment ago."""
        return 0 <= now_ms - self._of.kept_ms < KEPT_MS

    @contextmanager
    def _within(
        self, kept: dict[tuple[str, str], _Asked[Any]], questions: Questions
    ) -> Iterator[dict[tuple[str, str], _Asked[Any]]]:
        known = self._of.now | kept
        fresh = {question: ask for question, ask in self._asks(questions).items() if question not in known}
        if fresh:
            self._at_once(list(fresh.values()))
        asked = kept | fresh
        self._of.now.update(asked)
        try:
            yield asked
        finally:
            for question in asked:
                self._of.now.pop(question, None)

    def soon(self, action: Callable[[], None]) -> None:
        """Run the action together with the next questions of this thread."""
        self._of.waiting.append(action)

    def together(self, actions: Sequence[Callable[[], Any]], *, soon: bool) -> None:
        """See ``Reading.together``."""
        self._of.waiting += actions if soon else ()
        if actions and not soon:
            self._at_once(actions)

    def do_waiting(self) -> None:
        """Run now what waits for the next questions of this thread."""
        if self._of.waiting:
            self._at_once([])

    def _at_once(self, actions: Sequence[Callable[[], None]]) -> None:
        waiting, self._of.waiting = self._of.waiting, []
        self._run_at_once([*waiting, *actions])

    def read(self, path: str) -> bytes:
        """The answer that is there, or that of the store."""
        asked = self._of.now.pop((_READ, path), None)
        return self._read(path) if asked is None else asked.answer()

    def size(self, path: str) -> int | None:
        """Likewise."""
        asked = self._of.now.pop((_SIZE, path), None)
        return self._size(path) if asked is None else asked.answer()

    def entries(self, path: str) -> list[tuple[str, int, bool]]:
        """Likewise: (name, size, whether it is a folder) of each entry of a folder."""
        asked = self._of.now.pop((_NAMES, path), None)
        return self._entries(path) if asked is None else asked.answer()

    def _asks(self, questions: Questions) -> dict[tuple[str, str], _Asked[Any]]:
        asks: dict[tuple[str, str], _Asked[Any]] = {
            (_READ, path): _Asked(functools.partial(self._read, path)) for path in questions.read
        }
        asks |= {(_SIZE, path): _Asked(functools.partial(self._size, path)) for path in questions.size}
        return asks | {(_NAMES, path): _Asked(functools.partial(self._entries, path)) for path in questions.names}
