"""The state of each application that writes to a table.

Every commit carries all states forward in its snapshot's properties.
"""

import array
import base64
import functools
import json
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamsink import shell
from streamsink.errors import Corrupt
from streamsink.format.snapshot import Snapshot
from streamsink.table.snapshots import Snapshots

if TYPE_CHECKING:
    import pyarrow as pa  # a look at a table whose states are short needs none of it

PREFIX = "streamsink.app."
# Says whether all of history was known when the states were found. Earlier versions did not write this property.
HISTORY = "streamsink.history"
_COMPLETE, _INCOMPLETE = "complete", "incomplete"

# A state of more characters is compressed (it holds names, ids and offsets of hundreds of Kafka topics). A shorter one
# stays readable in the snapshot's file.
_MOST_PLAIN = 64_000
_BASE85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_COMPRESSED, _DEFLATED = "zstd:", "deflate:"
# The levels of zstd, of which the first one counts whose text has at most so many characters, else the last one. The
# last one takes twenty times as long as the first one, and its text is up to a fourth shorter.
_LEVELS, _ENOUGH = (1, 15, 19), 99_000


class Said(dict[str, Any]):
    """The JSON object of one application's state, which knows from which snapshot's file it was read."""

    def __init__(self, value: Any, application: str, path: str):
        super().__init__(value)
        self._application = application
        self._path = path

    def altered(self, broken: Exception) -> Corrupt:
        """The error when this turns out to be no state. broken: what reading it has ended with."""
        what = f"{PREFIX}{self._application} is not the state of an application ({type(broken).__name__}: {broken})"
        return _altered(self._path, what)


def _altered(path: str, what: str) -> Corrupt:
    """The error of a state that cannot be read. path: of the snapshot. what: which property, and what is wrong."""
    return Corrupt(
        f"{path}: its property {what}; the snapshot was altered. Nothing was written. Restore the file "
        f"{shell.restore(path)}, or let Paimon's procedure rollback_to take the table back to an older snapshot "
        "('streamsink rollback' carries the states on)",
        kind="snapshot.state",
    )


@dataclass(frozen=True)
class States:
    """The states of all applications as of one snapshot.

    by_application: the JSON object of each application, by its name.
    complete: whether an application that is missing in it has certainly never written to this table. It is False when a
    part of history expired before anybody had read it. Nothing can make it complete again, so each commit carries False
    forward.
    """

    by_application: Mapping[str, Mapping[str, Any]]
    complete: bool

    def with_state(self, application: str | None, state: Mapping[str, Any] | None) -> "States":
        """These states with that of ``application`` replaced. The arguments are those of ``properties``."""
        merged = {name: value for name, value in self.by_application.items() if name != application}
        if application is not None and state is not None:
            merged[application] = state
        return replace(self, by_application=merged)

    def properties(self, application: str | None, state: Mapping[str, Any] | None) -> dict[str, str]:
        """These states as snapshot properties, with the state of ``application`` replaced by ``state``.

        A ``state`` of None takes the application's state out. With ``application`` None all states stay as they are.
        """
        merged = self.with_state(application, state).by_application
        if not merged and application is None:
            return {}
        texts = {PREFIX + name: text_of_state(value) for name, value in sorted(merged.items())}
        return texts | {HISTORY: _COMPLETE if self.complete else _INCOMPLETE}


class StatesReader:
    """Finds the newest snapshot that carries states, which is nearly always the newest snapshot itself."""

    def __init__(self, snapshots: Snapshots, of_main: Snapshots | None = None):
        """of_main: of the table, where these are those of a branch, which begins with one of them."""
        self._snapshots = snapshots
        self._of_main = of_main
        self._known: tuple[Snapshot, States] | None = None
        # Others of the same table, for other threads, that are told what this one publishes.
        self.told: tuple[StatesReader, ...] = ()

    def published(self, snapshot: Snapshot, states: States) -> None:
        """Remember the states of a snapshot that this process has just created."""
        for each in (self, *self.told):
            each._known = (snapshot, states)

    def read(self, newest: Snapshot | None) -> States:
        """The states as of ``newest``; those of a table without a snapshot (None) are empty and complete.

        A foreign writer's snapshot carries no states, so the search goes back to the newest snapshot that has some. It
        visits only snapshots that are new since the last call. Raises Corrupt.
        """
        if newest is None:
            return States({}, True)
        states = self._search(newest)
        self._known = (newest, states)
        return states

    def _search(self, newest: Snapshot) -> States:
        at, known = newest, self._known
        for before in range(newest.id - 1, -1, -1):
            if known is not None and at == known[0]:
                return known[1]
            found = states_in(at, self._snapshots.path(at.id))
            if found is not None:
                return States(found, self._was_complete(at))
            following = self._snapshots.load(before) if before else None
            if following is None and self._of_main is not None and self._of_main.load(at.id) == at:
                following = self._of_main.load(before)
            if following is None:
                return States({}, before == 0)
            at = following
        return States({}, True)

    def _was_complete(self, snapshot: Snapshot) -> bool:
        """What the snapshot says.

        One of an earlier version says nothing and is complete only if nothing has ever expired.
        """
        said = (snapshot.properties or {}).get(HISTORY)
        return said == _COMPLETE if said is not None else self._snapshots.exists(1)


def is_foreign(snapshot: Snapshot) -> bool:
    """Whether another writer than streamsink made the snapshot. Such a snapshot carries no states of applications."""
    return not any(name == HISTORY or name.startswith(PREFIX) for name in snapshot.properties or {})


def states_in(snapshot: Snapshot, path: str) -> dict[str, Any] | None:
    """The state of each application that this snapshot itself carries; None for a foreign writer's snapshot.

    path: the snapshot's file, for messages. Raises Corrupt.
    """
    properties = snapshot.properties or {}
    texts = {k[len(PREFIX) :]: v for k, v in properties.items() if k.startswith(PREFIX)}
    if not texts:
        return {} if HISTORY in properties else None  # the last application was retired
    try:
        return {name: Said(state_of_text(text), name, path) for name, text in texts.items()}
    except (ValueError, TypeError, OSError, zlib.error) as broken:
        raise _altered(path, f"{PREFIX}* is not valid JSON, nor a compressed one") from broken


def text_of_state(state: Mapping[str, Any]) -> str:
    """The state as JSON text; a long one as 'zstd:', the CRC-32 of the JSON, a colon, and its zstd stream in base85."""
    text = json.dumps(state, separators=(",", ":"))
    if len(text) <= _MOST_PLAIN:
        return text
    import pyarrow as pa

    data = text.encode()
    for level in _LEVELS:
        packed = pa.Codec("zstd", level).compress(data, asbytes=True)
        if len(packed) * 5 <= _ENOUGH * 4:  # in base85
            break
    return f"{_COMPRESSED}{zlib.crc32(data)}:{base85(packed)}"


def base85(data: bytes) -> str:
    """What ``base64.b85encode`` returns, as text, in a quarter of the time: each word is a row of Arrow's columns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    missing = -len(data) % 4
    words = array.array("I", data + b"\0" * missing)
    if sys.byteorder == "little":
        words.byteswap()
    rows = pa.Array.from_buffers(pa.uint32(), len(words), [None, pa.py_buffer(words)])
    one, two, three = (pa.scalar(85**digits, pa.uint32()) for digits in (1, 2, 3))
    first, rest = pc.divide(rows, three), pc.divide(rows, one)
    second, last = pc.subtract(rest, pc.multiply(first, two)), pc.subtract(rows, pc.multiply(rest, one))
    digits, pairs = _digits()
    texts = pc.binary_join_element_wise(pairs.take(first), pairs.take(second), digits.take(last), "")
    text = texts.buffers()[2].to_pybytes()[: 5 * len(words)].decode() if words else ""
    return text[: len(text) - missing]


@functools.cache
def _digits() -> "tuple[pa.Array, pa.Array]":
    """The digits, and all pairs of them."""
    import pyarrow as pa

    return pa.array(_BASE85), pa.array([first + second for first in _BASE85 for second in _BASE85])


def state_of_text(text: str) -> Mapping[str, Any]:
    """The inverse of ``text_of_state``. It also reads the 'deflate:' form, which earlier versions wrote.

    Raises ValueError, OSError or zlib.error.
    """
    if text.startswith(_DEFLATED):
        return json.loads(zlib.decompress(base64.b64decode(text.removeprefix(_DEFLATED), validate=True)))
    if not text.startswith(_COMPRESSED):
        return json.loads(text)
    import pyarrow as pa

    crc, packed = text.removeprefix(_COMPRESSED).split(":")
    data = pa.input_stream(pa.py_buffer(base64.b85decode(packed)), compression="zstd").read()
    if zlib.crc32(data) != int(crc):
        raise ValueError("the checksum differs")
    return json.loads(data)
