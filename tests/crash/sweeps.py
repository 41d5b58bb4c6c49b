"""Deaths of one run, each state that they leave once: a run is made once, and every death begins with a copy of its
store.

A call that only reads changes nothing, so a death after it leaves what the death before it has left. What a death
leaves is all that the next start can find: names, what is in the files, and folders, as the store in memory keeps them;
Spark's two logs; and how often rows were computed. A killed process leaves everything, so each write and each new name
is another state. A power failure leaves what was flushed and synced, so most calls are not. ``test_sweeps.py`` compares
this with one run for each call.
"""

import copy
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from streamsink import faults
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.memory import MemoryCalls, _File, _folder_of


@dataclass
class Left:
    """What a death leaves. before: numbers of the calls before which it happens, or steps at which it does, by name and
    occurrence.
    """

    before: list[int]
    steps: list[tuple[str, int]]
    what: str
    calls: MemoryCalls
    memory: dict[str, Any]

    def put_back(self, world, power: bool) -> None:
        """Let the world be as the death left it."""
        world.calls = copy.deepcopy(self.calls)
        for name, value in self.memory.items():
            setattr(world, name, copy.deepcopy(value))
        world.die(power)

    def __str__(self) -> str:
        return f"death at {self.what}"


def deaths(
    world, power: bool = False, torn: bool = False, run: Callable[[CrashingCalls], None] | None = None
) -> list[Left]:
    """Let the world run, and return each state that a death at one of its calls leaves, in order.

    power: the machine dies too. torn: it dies in the middle of a write, and at no other call. run: what dies, if not
    ``world.run``.
    """
    watching = _Watching(world, power, torn)
    (run or world.run)(watching)
    return list(watching.left.values())


def deaths_at_steps(world, run: Callable[[CrashingCalls], None] | None = None) -> list[Left]:
    """The same of a process that is killed at each named step, each time that it is reached."""
    watching, seen = _Watching(world, power=False, at_calls=False), Counter[str]()

    def look(step: str) -> None:
        seen[step] += 1
        watching.look(f"{step}, occurrence {seen[step]}").steps.append((step, seen[step]))

    faults.arm(look)
    try:
        (run or world.run)(watching)
    finally:
        faults.arm(None)
    return list(watching.left.values())


def remembered(world) -> dict[str, Any]:
    """What outlives a death beside the store: Spark's logs, the number of the next computation of rows, and the
    oracle's notes.
    """
    return {name: getattr(world, name) for name in ("checkpoint", "_versions", "_screened") if hasattr(world, name)}


def state_of(calls: MemoryCalls, power: bool, torn: tuple[_File, bytes] | None = None) -> Hashable:
    """Equal for equal stores after a death. torn: a file, and what the death leaves in it."""
    names, folders = calls._names, calls._dirs
    if power:
        folders = calls._durable_dirs
        names = {path: file for path, file in calls._durable_names.items() if _folder_of(path) in folders}
    files = frozenset(
        (path, id(file), file.durable if power else torn[1] if torn and file is torn[0] else file.data)
        for path, file in names.items()
    )
    return files, frozenset(folders)


class _Watching(CrashingCalls):
    """Looks, before each call, what a death there would leave. torn: in the middle of each write instead."""

    def __init__(self, world, power: bool, torn: bool = False, at_calls: bool = True):
        super().__init__(world.calls)
        self._world, self._power, self._torn, self._at_calls = world, power, torn, at_calls
        self.left: dict[Hashable, Left] = {}

    def write(self, stream, data):
        half = bytes(data)[: len(data) // 2]
        return self._do("write", lambda: stream.write(data), torn=(stream, half))

    def _call(self, name, action, torn):
        what = f"call {self.count + 1} ({name})"
        if self._at_calls and not self._torn:
            self.look(what).before.append(self.count + 1)
        elif self._at_calls and torn is not None:
            stream, half = torn
            self.look(f"{what}, in the middle", (stream.file, stream.getvalue() + half)).before.append(self.count + 1)
        return super()._call(name, action, torn)

    def look(self, what: str, torn: tuple[_File, bytes] | None = None) -> Left:
        """What a death leaves now. torn: a file, and what this death leaves in it."""
        memory = remembered(self._world)
        key = (state_of(self._inner, self._power, torn), repr(memory))
        if key not in self.left:
            kept: dict[int, Any] = {}
            calls = copy.deepcopy(self._inner, kept)
            if torn is not None and id(torn[0]) in kept:
                kept[id(torn[0])].data = torn[1]
            self.left[key] = Left([], [], what, calls, copy.deepcopy(memory))
        return self.left[key]


# Calls that change nothing, in a store of any kind.
READS = {"read", "size", "entries", "check_link", "open_existing", "unfinished"}


class Changes(CrashingCalls):
    """Notes the calls before which a death leaves something else than before the call ahead of it, or may: in a store
    of any kind.
    """

    def __init__(self, world):
        super().__init__(world.calls)
        self._world, self._memory = world, ""
        self.after: list[int] = []

    def _call(self, name, action, torn):
        memory = repr(remembered(self._world))
        if not self.log or self.log[-1] not in READS or memory != self._memory:
            self.after.append(self.count + 1)
        self._memory = memory
        return super()._call(name, action, torn)
