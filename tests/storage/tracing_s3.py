"""The S3 in memory with a logical clock: which requests are made, and how many round trips they take.

A request takes one tick. Requests that are made at once begin at the same tick, and the next one begins when all of
them have ended; so the ticks of a thread are the round trips that it has waited for.
"""

import threading
from collections import Counter
from dataclasses import dataclass, field

from tests.storage.memory_s3 import MemoryS3Calls

# What Amazon prices like a PUT.
DEAR = {"PUT", "COPY", "LIST"}
_KINDS = {
    "read": ("GET",),
    "size": ("HEAD",),
    "entries": ("LIST",),
    "below": ("LIST",),
    "unlink": ("DELETE",),
    "put": ("PUT",),
    "put_new": ("PUT",),
    "try_new": ("PUT",),
    "copy": ("COPY",),
    "remove_tree": ("LIST", "DELETE"),
    "remove_all": ("DELETE",),
    "unfinished": ("LIST",),
    "begin": ("PUT",),
    "part": ("PUT",),
    "complete": ("PUT",),
    "abort": ("DELETE",),
}


@dataclass(frozen=True)
class Request:
    """kind: as S3 names it. tick: at which it ended, on the clock of its thread."""

    kind: str
    path: str
    tick: int
    thread: int


@dataclass
class Made:
    """The requests of a part of a run."""

    requests: list[Request] = field(default_factory=list)

    @property
    def kinds(self) -> Counter:
        return Counter(request.kind for request in self.requests)

    @property
    def dear(self) -> int:
        return sum(self.kinds[kind] for kind in DEAR)

    def round_trips(self) -> list[list[str]]:
        """What this thread has waited for, one round trip after another: kinds of requests, and what they are about."""
        mine = [request for request in self.requests if request.thread == threading.get_ident()]
        ticks = sorted({request.tick for request in mine})
        return [sorted(f"{r.kind} {_about(r.path)}" for r in mine if r.tick == tick) for tick in ticks]


def _about(path: str) -> str:
    """The kind of file: its name up to the first part that differs from file to file."""
    name = path.rpartition("/")[2]
    return next((kind for kind in ("manifest-list", "manifest") if name.startswith(kind)), name.partition("-")[0])


class _Clock(threading.local):
    tick = 0
    within = 0


class TracingS3Calls(MemoryS3Calls):
    """Remembers each request of each thread."""

    def __init__(self):
        super().__init__()
        self._clock = _Clock()
        self._made = Made()

    def take(self) -> Made:
        """The requests since the last call."""
        made, self._made = self._made, Made()
        return made

    def at_once(self, actions):
        begun, ends, errors = self._clock.tick, [self._clock.tick], []
        for action in actions:
            self._clock.tick = begun
            try:
                action()
            except Exception as failed:
                errors.append(failed)
            ends.append(self._clock.tick)
        self._clock.tick = max(ends)
        if errors:
            raise errors[0]

    def names(self, path):
        return [name for name, _, _ in self.entries(path)]


def _traced(name, kinds):
    plain = getattr(MemoryS3Calls, name)

    def call(self, path, *arguments):
        clock = self._clock
        clock.within += 1
        found = None
        try:
            found = plain(self, path, *arguments)
            return found
        finally:
            clock.within -= 1
            if not clock.within:  # a call of this model that makes others is one request
                # who is refused looks whether the object is his own, of which he has not had the reply
                looks = ("GET",) if name == "put_new" and found is False else ()
                for kind in (*kinds, *looks):
                    clock.tick += 1
                    about = arguments[0] if name == "copy" else path[0] if name == "remove_all" else path
                    made = Request(kind, about, clock.tick, threading.get_ident())
                    self._made.requests.append(made)

    return call


for _name, _its in _KINDS.items():
    setattr(TracingS3Calls, _name, _traced(_name, _its))
