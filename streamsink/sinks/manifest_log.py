"""Numbered manifests, each of which makes one record visible by its name. Driver only."""

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamsink import shell
from streamsink.errors import Corrupt, Fenced, Retryable
from streamsink.protocol.committable import AppState, Committable
from streamsink.storage.file_io import FileIO

_SUFFIX = ".json"
# Manifests that are read at once, and in memory, when all of them are.
_AT_ONCE = 32


def is_last(path: str, newest: AppState | None, record: Committable, expect: int) -> bool:
    """Whether the record is the last published one of its application; else it is the next one.

    path: of the destination. newest: the state of the last published record, None when there is none. expect: as in
    ``Committer.publish``. Raises Retryable when that is another record than number ``expect``.
    """
    if newest is not None and newest.record_id == record.state.record_id:
        return True
    found = newest.sequence if newest is not None else 0
    if found != expect:
        raise Retryable(
            f"{path}: the last record of application '{record.application}' has changed while "
            f"{record.state.checkpoint_name} was being published: it is record {found}, expected {expect}. Nothing of "
            "this record was published; it is safe in the journal. The restart of the query finds out what has "
            "happened",
            kind="destination.history-changed",
        )
    return False


class ManifestLog:
    """The manifests of a destination: ``<folder>/<application>/<number of the record, ten digits>.json``.

    A manifest is a JSON object: what the sink says of the record, and ``state``, the record's ``AppState``. It is
    created under its name whole and durable, and never changed. Who creates a name first has published the record:
    nobody else can create the name too.

    folder: absolute path; folders that are missing are made. retain: how many manifests of an application are kept; 0
    for all, and then a start, which lists its folder, takes longer with each record. All methods but ``create`` and
    ``sweep`` change nothing.
    """

    def __init__(self, file_io: FileIO, folder: str, retain: int = 0):
        self._io = file_io
        self._folder = folder
        self._retain = retain
        self._last: dict[str, int] = {}  # by application, the number that ``newest`` has found

    def applications(self) -> list[str]:
        """The applications that have published here. It costs one listing."""
        return [entry.name for entry in self._io.entries(self._folder) if entry.is_dir]

    def newest(self, application: str) -> AppState | None:
        """The state of the application's last published record; None when there is none.

        It costs a listing and a read, and later two looks and a read. Raises Corrupt when the manifest is damaged, and
        Misuse when a newer streamsink has written it.
        """
        last = self._last.get(application)
        if last is not None and not self._io.exists(self._name(application, last + 1)):
            path = self._name(application, last)
            if self._io.exists(path):
                return self._state(path)
        newest = max(self._names(application), default="")
        if newest:
            self._last[application] = int(newest.removesuffix(_SUFFIX))
        return self._state(f"{self._folder}/{application}/{newest}") if newest else None

    def content(self, application: str, number: int) -> Mapping[str, Any]:
        """What the manifest of a record says. Raises Corrupt when it is damaged; FileNotFoundError without one."""
        return self._read(self._name(application, number))[0]

    def contents(self, application: str) -> Iterator[Sequence[Mapping[str, Any]]]:
        """What the manifests of the application say, in order, some at a time. Raises as ``content``.

        It costs a read each; those of a distant store are made at once.
        """
        names = sorted(self._names(application))
        for start in range(0, len(names), _AT_ONCE):
            found: dict[str, Mapping[str, Any]] = {}

            def read(name: str, found: dict[str, Mapping[str, Any]] = found) -> None:
                found[name] = self._read(f"{self._folder}/{application}/{name}")[0]

            some = names[start : start + _AT_ONCE]
            self._io.together([functools.partial(read, name) for name in some])
            yield [found[name] for name in some]

    def first_missing(self, application: str) -> int:
        """The number of the first manifest that is missing before the last one, of a log that keeps all; 0 for none.

        It costs a listing.
        """
        there = {int(name.removesuffix(_SUFFIX)) for name in self._names(application)}
        return next((number for number in range(1, max(there, default=0)) if number not in there), 0)

    def has(self, record: Committable) -> bool:
        """Whether the record is published and its manifest is kept. Raises as ``newest``."""
        path = self._path(record)
        return self._io.exists(path) and self._state(path).record_id == record.state.record_id

    def sees_all_since(self, record: Committable) -> bool:
        """Whether ``has`` is true of the record if it was ever published. It costs one listing."""
        numbers = sorted(int(name.removesuffix(_SUFFIX)) for name in self._names(record.application))
        if not self._retain or not numbers:
            return True
        oldest = next((n for n in range(numbers[-1], 0, -1) if n - 1 not in numbers), numbers[-1])
        return oldest <= max(1, record.state.sequence)

    def is_published(self, record: Committable, expect: int) -> bool:
        """Whether the record is the last published one; called before ``create``, which must follow when it is not.

        expect: as in ``Committer.publish``. Raises as ``is_last`` and ``newest``.
        """
        return is_last(self._folder, self.newest(record.application), record, expect)

    def create(self, record: Committable, content: Mapping[str, Any]) -> None:
        """Create the record's manifest, and so publish it. Idempotent.

        content: what readers need, such as the names of files: a JSON object without the key 'state'. All that it names
        must be durable. Raises Fenced when another driver has published a record of this number; OutcomeUnknown and
        OSError as ``FileIO.create_if_absent``.
        """
        data = json.dumps({**content, "state": record.state.to_json()}).encode()
        if not self._io.create_if_absent(self._path(record), data) and not self.has(record):
            raise Fenced(
                f"{self._folder}: record {record.state.sequence} of application '{record.application}' is published, "
                "but by another driver: this one has been superseded; nothing is lost or doubled",
                kind="writer.fenced",
            )
        if 0 < self._retain < record.state.sequence:
            self._io.delete(self._name(record.application, record.state.sequence - self._retain))

    def forget(self, application: str) -> None:
        """Delete the manifests of the application, the oldest first, so that the newest counts to the end. Durable."""
        names = sorted(self._names(application))
        for name in names:
            self._io.delete(f"{self._folder}/{application}/{name}")
        self._last.pop(application, None)
        if names:
            self._io.sync_dir(f"{self._folder}/{application}")

    def sweep(self, published: Sequence[Committable]) -> list[str]:
        """Delete what tries that died in ``create`` have left, and make the names of manifests durable.

        As ``Committer.sweep``; one listing and one sync an application.
        """
        folders = sorted({f"{self._folder}/{record.application}" for record in published})
        left = [f"{folder}/{name}" for folder in folders for name in self._io.names(folder) if name.startswith(".")]
        for path in left:
            self._io.delete(path)
        for folder in folders:
            # Found published: whoever created the manifest may have died before its name was durable.
            self._io.sync_dir(folder)
        return left

    def _path(self, record: Committable) -> str:
        return self._name(record.application, record.state.sequence)

    def _name(self, application: str, number: int) -> str:
        return f"{self._folder}/{application}/{number:010}{_SUFFIX}"

    def _names(self, application: str) -> list[str]:
        names = self._io.names(f"{self._folder}/{application}")
        return [name for name in names if name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX).isdigit()]

    def _state(self, path: str) -> AppState:
        return self._read(path)[1]

    def _read(self, path: str) -> tuple[dict[str, Any], AppState]:
        try:
            content = json.loads(self._io.read(path))
            return content, AppState.from_json(content["state"])
        except (ValueError, KeyError, TypeError, AttributeError) as broken:
            raise Corrupt(
                f"{path} is damaged: expected a manifest, a JSON object with the state of a record. Nothing was "
                f"published. Restore the file {shell.restore(path)}",
                kind="destination.manifest-corrupt",
            ) from broken
