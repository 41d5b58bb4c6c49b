"""The machine's store as an S3 in memory: requests that are made at once reach it in any order."""

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO

from streamsink.clock import IdSource
from streamsink.storage.calls import Calls
from streamsink.storage.file_io import FileIO
from streamsink.storage.s3 import S3FileIO
from tests.storage.memory_s3 import MemoryS3Calls
from tests.walks.store import Copy, Store


class DistantStore(MemoryS3Calls):
    """What ``Store`` is, for a machine whose tables are on S3.
    order: decides in which order requests come that are made at once."""

    beginning = "s3:/"
    forgets = False

    def __init__(self, writes_few: bool = False, order: int = 0):
        super().__init__()
        self.said: list | None = None
        self.writes_few = writes_few
        self._order = order

    def io(self, calls: Calls, root: str) -> FileIO:
        made = S3FileIO(calls, IdSource().new_id, root)
        if calls is self:  # Others know their store, and do not try it out.
            made.atomic_create = True
        return made

    def in_any_order(self, actions: Sequence[Callable[[], None]], count: int) -> None:
        """As threads do it: all are made, and then the first error is raised."""
        actions = list(actions)
        random.Random(self._order + count).shuffle(actions)
        failed = []
        for action in actions:
            try:
                action()
            except Exception as error:
                failed.append(error)
        if failed:
            raise failed[0]

    @contextlib.contextmanager
    def beside(self, io: S3FileIO) -> Iterator[None]:
        """What a thread has asked ahead is its own."""
        mine, asked = io._ahead, io._ahead._of
        mine._of = type(asked)()
        try:
            yield
        finally:
            mine._of = asked

    def put_over(self, path: str, data: bytes, unique: str) -> None:
        self.put(path, data)

    def open_existing(self, path: str) -> BytesIO:
        """For those who look into the table, which tasks of Spark do with readers of their own."""
        return BytesIO(self.read(path))

    def end_process(self, process: object) -> None:
        """Nothing in the store ends with a process."""

    def power_failure(self) -> None:
        """The store has power of its own."""

    # -- an operator's commands --------------------------------------------------------------------------------------

    records_in = Store.records_in
    _is_below = staticmethod(Store._is_below)

    def copy_of(self, folder: str) -> Copy:
        return {path: data for path, (data, _) in self._objects.items() if self._is_below(path, folder)}

    def remove(self, folder: str, keep: str = "") -> None:
        for path in [path for path in self._objects if self._is_below(path, folder)]:
            if not keep or not self._is_below(path, keep):
                self.unlink(path)

    def remove_files(self, folder: str, begin: str) -> None:
        for path in [path for path in self._objects if path.startswith(f"{folder}/{begin}")]:
            self.unlink(path)

    def put_back(self, folder: str, copy: Copy, keep: str = "") -> None:
        self.remove(folder, keep)
        for path, data in copy.items():
            if not keep or not self._is_below(path, keep):
                self.put(path, data)
