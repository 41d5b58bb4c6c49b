"""How rows become staged files of one table or several: what travels to writers and back. EXECUTOR and driver."""

import json
from dataclasses import dataclass

from streamsink.format.data_file import DataFileMeta
from streamsink.protocol.sink import Writing
from streamsink.storage.file_io import FileIO
from streamsink.table.routed.routed_writer import RoutedFiles, RoutedSpec, RoutedWriter
from streamsink.table.write.spec import WriteSpec, WrittenFile
from streamsink.table.write.writer import TableWriter


def encode(file: WrittenFile) -> str:
    """A written file as text, for the way from the executor to the driver."""
    return json.dumps(
        {"partition": file.partition.hex(), "staged": file.staged, "final": file.final, "meta": file.meta.to_wire()}
    )


def decode(text: str) -> WrittenFile:
    """The inverse of ``encode``. The text comes from a task: the driver has to check whether what it says is true."""
    value = json.loads(text)
    meta = DataFileMeta.from_wire(value["meta"])
    return WrittenFile(bytes.fromhex(value["partition"]), value["staged"], value["final"], meta, handed_over=True)


@dataclass(frozen=True)
class TableWriting(Writing):
    """How rows are written into one table: each task returns a list of files."""

    spec: WriteSpec

    def open(self, file_io: FileIO) -> TableWriter:
        return TableWriter(file_io, self.spec)

    def encode(self, written: WrittenFile) -> str:
        return encode(written)

    def decode(self, text: str) -> WrittenFile:
        return decode(text)


@dataclass(frozen=True)
class RoutedWriting(Writing):
    """How rows are written into several tables: each task returns one item, with its files and the counts of rows."""

    spec: RoutedSpec

    def open(self, file_io: FileIO) -> RoutedWriter:
        return RoutedWriter(file_io, self.spec)

    def encode(self, written: RoutedFiles) -> str:
        files = [(name, encode(file)) for name, file in written.files]
        return json.dumps({"files": files, "rows_in": written.rows_in, "dead": written.dead})

    def decode(self, text: str) -> RoutedFiles:
        value = json.loads(text)
        files = tuple((name, decode(file)) for name, file in value["files"])
        return RoutedFiles(files, value["rows_in"], value["dead"])
