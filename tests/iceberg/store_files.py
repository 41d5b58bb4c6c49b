"""pyiceberg's files in a store of this library, such as one in memory, by the calls of whoever uses the catalog."""

import io
from abc import abstractmethod

from pyiceberg.io import FileIO as IcebergFileIO
from pyiceberg.io import InputFile

from streamsink.sinks.iceberg.file_io import DurableOutput
from streamsink.storage.file_io import FileIO


class StoreFileIO(IcebergFileIO):
    """A catalog finds a subclass of it by its property ``py-io-impl``."""

    @abstractmethod
    def _io(self) -> FileIO:
        """The store of whoever uses the catalog."""

    def _kind(self) -> type[DurableOutput]:
        """What is written."""
        return DurableOutput

    def new_input(self, location):
        return _Input(location, self._io())

    def new_output(self, location):
        return self._kind()(location, location, self._io(), lambda: self.new_input(location))

    def delete(self, location):
        self._io().delete(location if isinstance(location, str) else location.location)


class _Input(InputFile):
    def __init__(self, location: str, file_io: FileIO):
        super().__init__(location)
        self._io = file_io

    def __len__(self) -> int:
        return self._io.size(self.location) or 0

    def exists(self) -> bool:
        return self._io.exists(self.location)

    def open(self, seekable: bool = True):
        return io.BytesIO(self._io.read(self.location))
