"""What somebody reads who wants to understand one micro-batch: measured from a traced one.

The spine of a batch is every function that is on the stack when a step of the protocol is passed (a fault point) or a
file that others look for is created. Whoever reads the files of the spine has read how a batch goes through; what else
runs (codecs, checks, look-ups) is called from there and can be believed. Left out are the fault points themselves, and
what lies below the contract of a store.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import streamsink

LIBRARY = Path(streamsink.__file__).parent
_LEFT_OUT = ("faults.py", "storage/")


@dataclass
class Reading:
    """stacks: by step or created file, (file below ``streamsink/``, function) of the stack, from the outermost."""

    stacks: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    @property
    def files(self) -> set[str]:
        """Files of the spine."""
        return {file for stack in self.stacks.values() for file, _ in stack if not file.startswith(_LEFT_OUT)}

    @property
    def lines(self) -> int:
        """Lines of the spine's files."""
        return sum(len((LIBRARY / file).read_text().splitlines()) for file in self.files)

    def between(self, outer: str, created: str) -> list[str]:
        """Functions between this one and the creation of the file, without these two."""
        names = [name for _, name in self.stacks[created]]
        return names[names.index(outer) + 1 : -1]

    @contextmanager
    def traced(self) -> Iterator[None]:
        """What runs in this thread meanwhile is looked at."""
        sys.setprofile(self._look)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        name = frame.f_code.co_name
        if name == "fault_point":
            self.stacks[str(frame.f_locals["step"])] = _stack(frame)
        elif name == "create_if_absent":
            self.stacks[Path(frame.f_locals["path"]).name] = _stack(frame)


def _stack(frame: FrameType | None) -> list[tuple[str, str]]:
    """The library's functions on the stack, from the outermost."""
    found = []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(LIBRARY):
            owner = frame.f_locals.get("self", frame.f_locals.get("cls"))
            kind = f"{type(owner).__name__}." if owner is not None else ""
            found.append((str(path.relative_to(LIBRARY)), f"{kind}{frame.f_code.co_name}"))
        frame = frame.f_back
    return found[::-1]


def read_batch(number: int, sink: Callable[..., None]) -> tuple[Reading, Callable[..., None]]:
    """A batch function that calls the sink and looks at the batch of this number."""
    reading = Reading()

    def publish(df: Any, batch_id: int) -> None:
        if batch_id != number:
            return sink(df, batch_id)
        with reading.traced():
            return sink(df, batch_id)

    return reading, publish
