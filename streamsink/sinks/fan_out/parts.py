"""What the record of a fan-out says of each destination: the destination's own record, but for what they share. Pure.

A destination is known by its identity. Its name, its place in the order and its path are for messages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamsink.protocol import ways
from streamsink.protocol.committable import OF_FAN_OUT, Committable, StagedFile

# Key in the payload of a record.
_DESTINATIONS = "destinations"
_TEXTS = ("name", "path", "identity", "application", "record_id", "journal_id", "staging")
_NUMBERS = ("number", "epoch", "files_from")


@dataclass(frozen=True)
class Part:
    """What a record gives to one destination.

    identity: ``Destination.table_id``. number, epoch, record_id, journal_id, carried, files_from, behind: of the state
    that the destination then has (``AppState``); its journal counts by itself. files, payload: as ``OpenSink.stage``
    has returned them. staging: absolute path of the folder in which files are staged. tells_files: whether the
    destination has a record of every file that the query has read.
    """

    name: str
    path: str
    identity: str
    application: str
    number: int
    record_id: str
    epoch: int
    journal_id: str
    staging: str
    files_from: int
    behind: tuple[str, int] | tuple[()]
    carried: Mapping[str, Any]
    files: tuple[StagedFile, ...]
    payload: Mapping[str, Any]
    tells_files: bool

    def record_of(self, whole: Committable) -> Committable:
        """The destination's own record. whole: the record of the fan-out. The same whoever asks, and when."""
        state = replace(
            whole.state,
            epoch=self.epoch,
            sequence=self.number,
            record_id=self.record_id,
            table_id=self.identity,
            journal_id=self.journal_id,
            files_from=self.files_from,
            carried=self.carried,
            behind=self.behind,
        )
        read = whole.source_files if self.tells_files else None
        payload = {**self.payload, OF_FAN_OUT: {"id": whole.state.table_id, "name": self.name}}
        return Committable(state, self.application, whole.watermark_ms, self.files, payload, read)

    def to_json(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in (*_TEXTS, *_NUMBERS, "carried", "payload", "tells_files")}
        return plain | {"behind": list(self.behind), "files": [file.to_json() for file in self.files]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Part":
        known = {name: value[name] for name in (*_TEXTS, *_NUMBERS, "carried", "payload", "tells_files")}
        files = tuple(StagedFile.from_json(file) for file in value["files"])
        return cls(**known, behind=tuple(value["behind"]), files=files)


def payload_of(parts: Sequence[Part]) -> dict[str, Any]:
    """The payload of the record that has these parts."""
    return {_DESTINATIONS: [part.to_json() for part in parts]}


def is_of_fan_out(record: Committable) -> bool:
    """Whether the record is one of a fan-out itself, and not of one of its destinations."""
    return _DESTINATIONS in record.payload


def parts_of(record: Committable) -> dict[str, Part]:
    """The parts of a record, by the identity of the destination."""
    parts = [Part.from_json(value) for value in record.payload[_DESTINATIONS]]
    return {part.identity: part for part in parts}


def word_of_leaving(record: Committable, identity: str) -> str:
    """The word for giving up a destination that may lack rows of this record of the fan-out."""
    return ways.word(f"{record.state.table_id}|{identity}|{record.state.record_id}|is given up")


def named(parts: Sequence[Part]) -> tuple[StagedFile, ...]:
    """The parts as files of the record: one for each destination that is given files.

    All of them are given the same rows, which count once.
    """
    given = [part for part in parts if part.files]
    rows = max((sum(file.rows for file in part.files) for part in given), default=0)
    return tuple(
        StagedFile(f"{part.staging}/*", part.name, sum(file.size for file in part.files), rows if not number else 0)
        for number, part in enumerate(given)
    )
