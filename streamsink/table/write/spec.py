"""What a writer of data files is told, and what it says of a file that it has written. Both go between processes."""

import functools
from dataclasses import dataclass

from streamsink.format.data_file import DataFileMeta
from streamsink.format.schema import TableSchema


@dataclass(frozen=True)
class AtOnce:
    """What a writer needs whose files get their final names at once.

    attempt: id of the record that is to name them. table, since: as of ``InTable``. announced: folders of the table, in
    which files of the attempt may be, that the driver has announced. metadata: what is to be announced together with
    other folders of the table, as ``InTable.places``; nothing where the driver has announced it.
    """

    attempt: str
    table: str
    since: tuple[int, str]
    announced: frozenset[str] = frozenset()
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class WriteSpec:
    """What a writer needs to know. It is sent to executors; paths are absolute.

    staging: folder for the files. target_file_bytes: size at which a file is rolled. max_open, memory_bytes: the bounds
    of open files and buffered bytes. table: the table's path; without it only single names are compared with what the
    store takes, not whole paths. at_once: None where the files are staged.
    """

    staging: str
    schema_json: bytes
    target_file_bytes: int
    max_open: int
    memory_bytes: int
    table: str = ""
    at_once: AtOnce | None = None

    @property
    def beginning(self) -> str:
        """How the names of the data files begin."""
        return beginning_of(self.at_once.attempt if self.at_once else "")

    def schema(self) -> TableSchema:
        """The schema with which the files are written."""
        return _schema(self.schema_json)


def beginning_of(attempt: str) -> str:
    """How the names of the data files of an attempt begin, of which no other files have such names; '' for any."""
    return f"data-{attempt}-" if attempt else "data-"


@functools.lru_cache(maxsize=16)
def _schema(schema_json: bytes) -> TableSchema:
    """The parsed schema. It is cached because every batch brings the same one."""
    return TableSchema.from_json(schema_json, "the writer's schema")


@dataclass(frozen=True)
class WrittenFile:
    """A file that is completely written. It is durable when its group is flushed.

    partition: BinaryRow bytes. staged: its absolute path now. final: its path in the table, relative to the table's
    root.
    handed_over: True if another process says that it has written the file, and the driver has not seen it yet.
    """

    partition: bytes
    staged: str
    final: str
    meta: DataFileMeta
    handed_over: bool = False
