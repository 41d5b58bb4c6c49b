"""Worlds of several tables, and of one table with dead letters, on an S3 and on another distant store in memory."""

from streamsink.clock import IdSource
from streamsink.storage.file_io import DistantFileIO
from streamsink.storage.s3 import S3FileIO
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.memory import MemoryCalls
from streamsink.testing.stepping import Stepping
from tests.crash.letters_world import LETTERS, NAME, LettersWorld
from tests.crash.many_world import BOUNDARIES, ManyWorld, check_complete, check_readable
from tests.storage.memory_s3 import MemoryS3Calls

ROOT, NEAR = "s3://bucket/shop.db", "/lake/shop.db"
MORE = (*BOUNDARIES, 20)


def _s3(over, table=f"{ROOT}/{NAME}"):
    return S3FileIO(over, IdSource().new_id, table)


def _staged(over):
    """A distant store that renames, as HDFS is one."""
    return DistantFileIO(over, IdSource().new_id)


class TablesWorld(ManyWorld):
    """Several tables."""

    journal = f"{ROOT}/streamsink/streamsink"

    def __init__(self, delay=0, staged=False, **settings):
        """delay: of what is left to be done beside the next batch, as ``Stepping`` has it. staged: in a distant store
        in which files are staged.
        """
        make_io = _staged if staged else lambda over: _s3(over, ROOT)
        calls, root = (MemoryCalls(), NEAR) if staged else (MemoryS3Calls(), ROOT)
        super().__init__(calls, root, make_io=make_io, restore="restore-and-continue", **settings)
        self._delay = delay

    def run(self, calls=None, boundaries=BOUNDARIES) -> None:
        calls = calls or CrashingCalls(self.calls)
        self.driver.background = lambda step: Stepping(step, calls, self._delay)
        super().run(calls, boundaries)

    def check_readable(self) -> None:
        check_readable(self.rows())

    def check_complete(self, boundaries=BOUNDARIES) -> None:
        check_complete(self.rows(), boundaries)

    def settle(self) -> None:
        """The start that settles what a death has left, to the end."""
        self.run(boundaries=MORE)


class WithLetters(LettersWorld):
    """One table with dead letters. how: of the start that dies, and of the one that settles what it has left."""

    journal = f"{ROOT}/{NAME}/streamsink/streamsink"

    def __init__(self, how=(LETTERS, LETTERS), calls=None, staged=False, **settings):
        """staged: as of ``TablesWorld``."""
        made, root = (MemoryCalls(), NEAR) if staged else (MemoryS3Calls(), ROOT)
        super().__init__(calls or made, root, make_io=_staged if staged else _s3, **settings)
        self._how = how

    def run(self, calls=None, boundaries=BOUNDARIES, how=None, **options) -> None:
        super().run(calls, boundaries, how or self._how[0], **options)

    def settle(self) -> None:
        self.run(how=self._how[1])
        self.check_complete()
        self.run(boundaries=MORE, how=LETTERS)


def announcements(world) -> list[str]:
    """On S3, paths of the announcements."""
    paths = getattr(world.calls, "_objects", ())
    return [path for path in paths if path.startswith(f"{world.journal}/staging/") and "/at-" in path]


def data_files(world) -> set[str]:
    return {path for path in world.calls._objects if "/data-" in path}


def journal_of(world) -> dict:
    return {path: found for path, found in world.calls._objects.items() if path.startswith(f"{world.journal}/")}
