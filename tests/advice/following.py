"""How a test follows an error's advice: ``Advice`` reads out of the message what is to be done, and ``follows`` checks
that the test has read it.

A test that is marked ``@follows("pending.files-gone")`` fails when it ends without having read the advice of that kind.
If the mark names several kinds and the test has an argument ``kind``, it must read the advice of that kind only.
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
    """Mark a test that follows, to the letter, what errors of these kinds say.
    ``tests/advice/kinds.py`` finds the marks in the source."""

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
    """What a message says, in the form in which a user would type it.
    told: an error, or anything that has ``kind`` and ``message``."""

    def __init__(self, told):
        self.kind: str = told.kind
        self.message = str(told) if isinstance(told, BaseException) else told.message

    def option(self, name: str):
        """The value that the message gives for the option ``name``, as ``name=<a Python literal>``."""
        found = re.search(
            rf"(?<![\w.-]){re.escape(name)}=('[^']*'|\"[^\"]*\"|-?\d+|True|False|None|\{{\}}|\([^()]*\))", self.message
        )
        assert found, f"no value for {name} in: {self.message}"
        _READ.add(self.kind)
        return ast.literal_eval(found[1])

    def options(self, *names: str) -> dict:
        """The values that the message gives for several options, by name."""
        return {name: self.option(name) for name in names}

    def call(self, name: str) -> tuple[tuple, dict]:
        """The positional and the named arguments that the message gives for the function ``name``."""
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
        """Assert that each of these words is in the message.
        This is for advice in prose, which the test then follows."""
        for word in words:
            assert word in self.message, f"'{word}' is not in: {self.message}"
        _READ.add(self.kind)
        return self


def advice(told, kind: str) -> Advice:
    """The advice of an error, which must be of this kind."""
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
    """An error that was raised in another process."""

    kind: str
    message: str
