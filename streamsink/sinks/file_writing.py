"""How rows become files of a format that the sink chooses: one file for each writer. EXECUTOR and driver."""

import json
from abc import abstractmethod
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.errors import StreamsinkError
from streamsink.events import log
from streamsink.protocol.sink import Writing
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup


@dataclass(frozen=True)
class DataFile:
    """A file with rows in the staging folder of a checkpoint.

    name: without its folder. size: in bytes. rows: their number. handed_over: a task has written it, so it is flushed,
    and the driver looks whether it is there; the driver's own files are not flushed before their record.
    """

    name: str
    size: int
    rows: int
    handed_over: bool = False


@dataclass(frozen=True)
class FileWriting(Writing):
    """Each writer collects its rows and writes one file with all of them; without rows, none.

    A subclass says the format: ``suffix``, with which names of files end, and ``to_bytes``. What ``OpenSink.stage`` is
    given are ``DataFile``s.

    staging: ``Checkpoint.staging``. The rows of a task, and its file, are in memory until the task ends. A sink whose
    tasks are larger than that, or that writes several files in a task, implements ``Writing`` itself.
    """

    suffix: ClassVar[str] = ""

    staging: str

    @abstractmethod
    def to_bytes(self, rows: pa.Table) -> bytes:
        """The whole file. rows: one or more, with the columns of the batch."""

    def open(self, file_io: FileIO) -> "FileWriter":
        return FileWriter(file_io, self)

    def encode(self, written: DataFile) -> str:
        return json.dumps(asdict(written))

    def decode(self, text: str) -> DataFile:
        return replace(DataFile(**json.loads(text)), handed_over=True)


class FileWriter:
    """The writer of one task attempt, or of the driver; see ``Writing.open``."""

    def __init__(self, file_io: FileIO, writing: FileWriting):
        self._io = file_io
        self._writing = writing
        self._pieces: list[pa.RecordBatch] = []
        self._name = f"part-{IdSource().new_id()}{writing.suffix}"
        self._begun = False

    def write(self, rows: pa.RecordBatch) -> None:
        """Keep these rows until the end."""
        if rows.num_rows:
            self._pieces.append(rows)

    def close(self, group: FlushGroup) -> list[DataFile]:
        """Write the file; it is durable when ``group`` is flushed. Returns the file, or nothing without rows."""
        if not self._pieces:
            return []
        rows, staging = pa.Table.from_batches(self._pieces), self._writing.staging
        data = self._writing.to_bytes(rows)
        self._begun = True
        group.write(f"{staging}/{self._name}", data)
        group.sync_dir(staging)
        return [DataFile(self._name, len(data), rows.num_rows)]

    def abort(self) -> None:
        """Delete what was written. Idempotent.

        An error of the store is logged, so that it does not hide the one that has ended the writing. What stays is
        swept with the staging folder.
        """
        self._pieces.clear()
        if self._begun:
            try:
                self._io.delete(f"{self._writing.staging}/{self._name}")
            except (OSError, StreamsinkError) as failed:
                log.warning("a staged file could not be deleted, and stays until its folder is swept: %s", failed)
