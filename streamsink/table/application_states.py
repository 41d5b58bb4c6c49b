"""What snapshots say of the applications that write here, carried forward in the snapshot's properties."""

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamsink.errors import Corrupt
from streamsink.format.snapshot import Snapshot
from streamsink.table.snapshots import Snapshots

PREFIX = "streamsink.app."
# Whether all of history was known when the states were found. Code before this property left it out.
HISTORY = "streamsink.history"
_COMPLETE, _INCOMPLETE = "complete", "incomplete"

# A state of more characters is compressed: names, ids and offsets of hundreds of Kafka topics. Others can be read in the snapshot.
_MOST_PLAIN = 64_000
_COMPRESSED, _DEFLATED = "zstd:", "deflate:"
# A sixth smaller than at the usual level; some 20 ms for 100,000 characters.
_LEVEL = 19


@dataclass(frozen=True)
class States:
    """by_application: JSON object of each application.

    complete: whether an application that is not among them has never written here. False when a part of history expired before
    anybody had read it: what is not known then stays not known, and each commit carries that forward.
    """

    by_application: Mapping[str, Mapping[str, Any]]
    complete: bool

    def properties(self, application: str | None, state: Mapping[str, Any] | None) -> dict[str, str]:
        """Snapshot properties: these states, with one replaced, or taken out (``state`` None); ``application`` None: as they are."""
        merged = {name: value for name, value in self.by_application.items() if name != application}
        if application is not None and state is not None:
            merged[application] = state
        if not merged and application is None:
            return {}
        texts = {PREFIX + name: _to_text(value) for name, value in sorted(merged.items())}
        return texts | {HISTORY: _COMPLETE if self.complete else _INCOMPLETE}


class StatesReader:
    """Finds the newest snapshot that carries states: nearly always the newest one."""

    def __init__(self, snapshots: Snapshots):
        self._snapshots = snapshots
        self._known: tuple[Snapshot, States] | None = None

    def read(self, newest: Snapshot | None) -> States:
        """States as of ``newest``. A snapshot of a foreign writer has none: walk back to the newest that has.

        Walks only over snapshots that are new since the last call. Raises Corrupt.
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
            if following is None:
                return States({}, before == 0)
            at = following
        return States({}, True)

    def _was_complete(self, snapshot: Snapshot) -> bool:
        """As the snapshot says; one of earlier code proves it only while nothing has ever expired."""
        said = (snapshot.properties or {}).get(HISTORY)
        return said == _COMPLETE if said is not None else self._snapshots.exists(1)


def is_foreign(snapshot: Snapshot) -> bool:
    """Whether another writer than streamsink has made it: it says nothing of the applications that write here."""
    return not any(name == HISTORY or name.startswith(PREFIX) for name in snapshot.properties or {})


def states_in(snapshot: Snapshot, path: str) -> dict[str, Any] | None:
    """State of each application, as this snapshot itself, of the file ``path``, says; None for a foreign writer's. Raises Corrupt."""
    properties = snapshot.properties or {}
    texts = {k[len(PREFIX) :]: v for k, v in properties.items() if k.startswith(PREFIX)}
    if not texts:
        return {} if HISTORY in properties else None  # the last application was retired
    try:
        return {name: dict(_from_text(text)) for name, text in texts.items()}
    except (ValueError, TypeError, OSError, zlib.error) as broken:
        raise Corrupt(
            f"{path}: its property {PREFIX}* is not valid JSON, nor a compressed one; the snapshot was altered. Nothing was written. Restore "
            "the file from a backup, or roll the table back to an older snapshot",
            kind="snapshot.state",
        ) from broken


def _to_text(state: Mapping[str, Any]) -> str:
    """As JSON, or 'zstd:', the CRC-32 of it, a colon and the base85 of its zstd stream."""
    text = json.dumps(state, separators=(",", ":"))
    if len(text) <= _MOST_PLAIN:
        return text
    data = text.encode()
    packed = base64.b85encode(pa.Codec("zstd", _LEVEL).compress(data, asbytes=True)).decode()
    return f"{_COMPRESSED}{zlib.crc32(data)}:{packed}"


def _from_text(text: str) -> Mapping[str, Any]:
    """The inverse of ``_to_text``, and of what wrote 'deflate:' before. Raises ValueError, OSError or zlib.error."""
    if text.startswith(_DEFLATED):
        return json.loads(zlib.decompress(base64.b64decode(text.removeprefix(_DEFLATED), validate=True)))
    if not text.startswith(_COMPRESSED):
        return json.loads(text)
    crc, packed = text.removeprefix(_COMPRESSED).split(":")
    data = pa.input_stream(pa.py_buffer(base64.b85decode(packed)), compression="zstd").read()
    if zlib.crc32(data) != int(crc):
        raise ValueError("the checksum differs")
    return json.loads(data)
