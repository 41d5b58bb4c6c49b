"""How much a run reads and writes, beside how often it asks."""

from streamsink.storage.calls import Calls
from streamsink.testing.crashing import CrashingCalls


class MeteredCalls(CrashingCalls):
    """Counts calls and bytes, and never dies."""

    def __init__(self, inner: Calls):
        super().__init__(inner)
        self.bytes_read = self.bytes_written = 0

    def read(self, path: str) -> bytes:
        data = super().read(path)
        self.bytes_read += len(data)
        return data

    def write(self, stream, data):
        self.bytes_written += memoryview(data).nbytes
        return super().write(stream, data)
