"""Flushes files while another program is still writing them, so that the final flush finds little left to do.

Driver.
"""

import os
import threading

from streamsink.storage.file_io import FileIO

_EVERY_S = 0.25


class FlushAhead:
    """A context in which a thread flushes the files below ``folder`` as they grow.

    It only saves time: whoever relies on a file flushes it again when it is complete. But the system reports a failed
    write to the disk once, to whoever flushes first. So an error in the thread is raised when the block ends, unless
    the block itself raises. Only where ``FileIO.takes_files_of_others``.
    """

    def __init__(self, file_io: FileIO, folder: str):
        self._io = file_io
        self._folder = folder
        self._ended = threading.Event()
        self._sizes: dict[str, int] = {}
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="streamsink-flush-ahead", daemon=True)

    def __enter__(self) -> "FlushAhead":
        self._thread.start()
        return self

    def __exit__(self, kind: object, raised: object, trace: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._error is not None and raised is None:
            raise self._error

    def _run(self) -> None:
        while self._error is None and not self._ended.wait(_EVERY_S):
            try:
                self._flush_below(self._folder)
            except OSError as failed:
                self._error = failed

    def _flush_below(self, folder: str) -> None:
        """Flush files whose size has changed since the last pass, except hidden ones.

        The other program may create, delete and rename files meanwhile.
        """
        for entry in self._io.entries(folder):
            path = os.path.join(folder, entry.name)
            if self._ended.is_set():
                return
            if entry.is_dir:
                self._flush_below(path)
            elif not entry.name.startswith(".") and entry.size != self._sizes.get(path, 0):
                self._sizes[path] = entry.size
                try:
                    self._io.flush_file(path)
                except FileNotFoundError:
                    continue
