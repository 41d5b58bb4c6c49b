"""As ``tasks.py``, into several tables: what a routed writer hands back, on its way from executor to driver. EXECUTOR."""

import json
from dataclasses import dataclass

from streamsink.spark.tasks import decode, encode
from streamsink.storage.file_io import FileIO
from streamsink.table.routed_write import RoutedFiles, RoutedSpec, RoutedWriter


@dataclass(frozen=True)
class RoutedWriting:
    """Into several tables: one item, with the counts of the rows."""

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
