"""How a test follows an error's advice: what it does is read out of the message, by ``Advice``, and ``follows`` sees to
that.

A test that is marked ``@follows("pending.files-gone")`` fails when it ends without having read the advice of that kind.
One that has an argument ``kind`` which the mark names reads the advice of that kind only.
"""

import ast
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from streamsink.errors import StreamsinkError

_READ: set[str] = set()


def follows(*kinds: str) -> Callable:
    """Marks a test that follows, to the letter, what errors of these kinds say. ``tests/advice/kinds.py`` finds it by
    its source."""

    def mark(test: Callable) -> Callable:
        @functools.wraps(test)
        def followed(*args, **given):
            _READ.clear()
            test(*args, **given)
            wanted = {given["kind"]} if given.get("kind") in kinds else set(kinds)
            assert wanted <= _READ, f"the advice of {', '.join(sorted(wanted - _READ))} was not read"

        return followed

    return mark


class Advice:
    """What a message says, as what a user would type. told: an error, or whatever has its ``kind`` and ``message``."""

    def __init__(self, told):
        self.kind: str = told.kind
        self.message = str(told) if isinstance(told, BaseException) else told.message

    def option(self, name: str):
        """The value that the message gives for the option ``name``: ``name=<a Python literal>``."""
        found = re.search(
            rf"(?<![\w.-]){re.escape(name)}=('[^']*'|\"[^\"]*\"|-?\d+|True|False|None|\{{\}}|\([^()]*\))", self.message
        )
        assert found, f"no value for {name} in: {self.message}"
        _READ.add(self.kind)
        return ast.literal_eval(found[1])

    def options(self, *names: str) -> dict:
        """The values of several options."""
        return {name: self.option(name) for name in names}

    def call(self, name: str) -> tuple[tuple, dict]:
        """The arguments, by place and by name, that the message gives for the function ``name``."""
        found = re.search(rf"{re.escape(name)}(\((?:[^()']|'[^']*')*\))", self.message)
        assert found, f"no call of {name} in: {self.message}"
        said = ast.parse(f"f{found[1]}", mode="eval").body
        _READ.add(self.kind)
        return tuple(map(ast.literal_eval, said.args)), {
            given.arg: ast.literal_eval(given.value) for given in said.keywords
        }

    def find(self, pattern: str) -> str:
        """The first group of a pattern in the message, such as the path of a file."""
        found = re.search(pattern, self.message)
        assert found, f"{pattern} is not in: {self.message}"
        _READ.add(self.kind)
        return found[1]

    def says(self, *words: str) -> "Advice":
        """Each of these words is in the message: advice that is prose, which the test then does."""
        for word in words:
            assert word in self.message, f"'{word}' is not in: {self.message}"
        _READ.add(self.kind)
        return self


def advice(told, kind: str) -> Advice:
    """The advice of an error that is of this kind."""
    assert told.kind == kind, told
    assert not isinstance(told, BaseException) or isinstance(told, StreamsinkError)
    return Advice(told)


def told(kind: str, run: Callable[[], object]) -> "Advice":
    """The advice of the error of this kind with which ``run`` must end."""
    with pytest.raises(StreamsinkError) as ended:
        run()
    return advice(ended.value, kind)


@dataclass(frozen=True)
class Told:
    """An error of another process."""

    kind: str
    message: str
