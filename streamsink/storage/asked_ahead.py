"""Questions that are asked of a distant store all at once, before the code asks them one after another.

What a batch looks at is known before it looks: whether the newest snapshot is still the newest one, whether somebody
else owns the application, and so on. Each answer of a store behind a network takes a round trip, so these questions
are asked together, and the code that follows finds the answers here.
"""

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

_Answer = TypeVar("_Answer")
_READ, _SIZE = "read", "size"


@dataclass(frozen=True)
class Questions:
    """Files of which the bytes (``read``), or the sizes (``size``, which also tells whether they exist), are needed."""

    read: tuple[str, ...] = ()
    size: tuple[str, ...] = ()

    def __add__(self, other: "Questions") -> "Questions":
        return Questions(self.read + other.read, self.size + other.size)


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


class AskedAhead:
    """The answers of one store to questions that were asked ahead.

    An answer is as old as the block in which it was asked for, is given once, and is given only to the thread that
    asked: whoever asks again wants to know what has changed, and asks the store. What a block around this one has
    asked, and nobody has used yet, is not asked again.
    """

    def __init__(self) -> None:
        self._of_thread = threading.local()

    @contextmanager
    def asking(
        self,
        questions: Questions,
        read: Callable[[str], bytes],
        size: Callable[[str], int | None],
        at_once: Callable[[Sequence[Callable[[], None]]], None],
    ) -> Iterator[None]:
        """Within it, the first question about each of these files has its answer already.

        read, size: ask the store. at_once: runs them in any order.
        """
        answers = self._answers()
        wanted = {(_READ, path): functools.partial(read, path) for path in questions.read} | {
            (_SIZE, path): functools.partial(size, path) for path in questions.size
        }
        asked = {question: _Asked(ask) for question, ask in wanted.items() if question not in answers}
        at_once(list(asked.values()))
        answers.update(asked)
        try:
            yield
        finally:
            for question in asked:
                answers.pop(question, None)

    def read(self, path: str, ask: Callable[[str], bytes]) -> bytes:
        """The answer that is there, or that of the store."""
        asked = self._answers().pop((_READ, path), None)
        return ask(path) if asked is None else asked.answer()

    def size(self, path: str, ask: Callable[[str], int | None]) -> int | None:
        """Likewise."""
        asked = self._answers().pop((_SIZE, path), None)
        return ask(path) if asked is None else asked.answer()

    def _answers(self) -> dict[tuple[str, str], _Asked[Any]]:
        if not hasattr(self._of_thread, "answers"):
            self._of_thread.answers = {}
        found: dict[tuple[str, str], _Asked[Any]] = self._of_thread.answers
        return found
