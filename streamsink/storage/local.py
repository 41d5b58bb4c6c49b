"""The local file system back end: ``FileIO`` over the real calls."""

from streamsink.clock import IdSource
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO


def local_file_io(flush: bool = True) -> FileIO:
    """FileIO of this machine's file system."""
    return FileIO(PosixCalls(), IdSource().new_id, flush)
