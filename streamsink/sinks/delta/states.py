"""The whole state of the last records of each application, in files beside the log. Driver only.

A ``txn`` action holds a number, and nothing in a Delta table that RESTORE puts back and other writers leave alone holds
more. So the state of a record (positions, fingerprint of the query; some KB) is in a file of its own, which is durable
before the record is committed. Whether it was is what the log says.

<table>/_streamsink/states/<id of the table>/<application>/
    <number of the record, ten digits>-<fingerprint, 16 hexadecimal digits>.json
"""

import json
from collections.abc import Callable

from streamsink import shell
from streamsink.clock import IdSource
from streamsink.errors import Corrupt
from streamsink.protocol.committable import AppState, Committable
from streamsink.sinks.delta.lineage import Last, fingerprint
from streamsink.storage.file_io import FileIO

# How many of an application are kept at least: the table may be put back to an earlier state.
_KEPT = 100
# The most files that a state names.
_MOST_NAMES = 1_000
_FILES = "files"


class States:
    """The files of one table. folder: with those of all applications. retain: of records, as the journal keeps them.

    journal: a record by its application and number, which has its state as well; None where its journal has it not.
    """

    def __init__(self, file_io: FileIO, folder: str, retain: int, journal: Callable[[str, int], Committable | None]):
        self._io, self._folder, self._retain, self._journal = file_io, folder, max(retain, _KEPT), journal
        self._written: dict[str, list[str]] = {}

    def applications(self) -> list[str]:
        """Those that have written, or were about to."""
        return [entry.name for entry in self._io.entries(self._folder) if entry.is_dir]

    def write(self, record: Committable) -> None:
        """Keep the state of a record that is about to be committed, durably. Idempotent."""
        path = self._path(record.application, record.state.sequence, fingerprint(record.state.record_id))
        names = [file.final for file in record.files[:_MOST_NAMES]]
        data = json.dumps({"state": record.state.to_json(), _FILES: names}).encode()
        if not self._io.create_if_absent(path, data) and self._io.read(path) != data:
            self._io.replace(path, data, IdSource().new_id())  # by a driver before, whose epoch is another
        self._written.setdefault(record.application, []).append(path)

    def read(self, application: str, last: Last) -> tuple[AppState, list[str]]:
        """The state of a record, and names of its files. Raises Corrupt when it is lost, and Misuse for a newer one."""
        path = self._path(application, last.number, last.fingerprint)
        try:
            value = json.loads(self._io.read(path))
            return AppState.from_json(value["state"]), list(value[_FILES])
        except FileNotFoundError:
            record = self._journal(application, last.number)
            if record is not None and fingerprint(record.state.record_id) == last.fingerprint:
                return record.state, [file.final for file in record.files]
            found = "is gone, and no record of the journal has what it said"
        except (ValueError, KeyError, TypeError, AttributeError) as broken:
            found = f"is damaged ({type(broken).__name__})"
        raise Corrupt(
            f"{path} {found}: the table has record {last.number} of application '{application}', and how far that came "
            f"is not known. Nothing was written. If the table was put back (the last {self._retain} states are kept), "
            "restore it to a version that has a later record (RESTORE). Else restore the file, or the folder "
            f"{self._folder}, {shell.restore(path)}. Where there is none, look which rows of the application are in "
            "the table, "
            f"remove the folder {self._folder}/{application}, and go on behind these rows with a new checkpoint and "
            "another name (application='...'), whose first start asks whether it wrote here before",
            kind="delta.state-gone",
        )

    def of(self, application: str, number: int) -> list[tuple[AppState, list[str]]]:
        """All states of a number, with names of their files: it comes again when a table was put back.

        Empty where none is kept. Raises as ``read``.
        """
        folder = f"{self._folder}/{application}"
        marks = [name[11:27] for name in self._io.names(folder) if name.startswith(f"{number:010}-")]
        return [self.read(application, Last(number, int(mark, 16))) for mark in marks]

    def keep_last(self, application: str) -> None:
        """Delete what is older than those that are kept, of what this process has written."""
        written = self._written.get(application, [])
        while len(written) > self._retain:
            self._io.delete(written.pop(0))

    def prune(self, application: str, last: int) -> list[str]:
        """Delete what earlier starts have left: states of records long ago, and tries that died.

        last: number of the last record in the table.

        Returns the paths.
        """
        folder = f"{self._folder}/{application}"
        names = self._io.names(folder)
        old = [name for name in names if name[:10].isdigit() and int(name[:10]) <= last - self._retain]
        paths = [f"{folder}/{name}" for name in (*old, *(name for name in names if name.startswith(".")))]
        self._io.delete_all(paths)
        return paths

    def _path(self, application: str, number: int, mark: int) -> str:
        return f"{self._folder}/{application}/{number:010}-{mark:016x}.json"
