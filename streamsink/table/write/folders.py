"""The folders of a table's partitions. They are named by values of rows, and a store does not take every name.

Executor and driver.
"""

import os
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.format.paths import bucket_dir, escape, partition_path
from streamsink.format.schema import TableSchema
from streamsink.format.types import AtomicType, DataField
from streamsink.journal.announced import Announcement, InTable, announce
from streamsink.storage.calls import NameLimits, size_of
from streamsink.storage.file_io import FileIO
from streamsink.table.write.spec import WriteSpec
from streamsink.table.write.split import WHY_NOT_UTF8, PartitionKey, not_utf8, split_with_places

UNAWARE_BUCKET = 0
# Length of a data file's name, with the most digits that a count may have: ``data-<uuid>-<count>.parquet``. A file that
# has its final name at once has another part in it, of ``TOKEN`` digits, for its writer.
TOKEN = 16
_FILE_NAME_BYTES = len("data-") + 36 + len("-") + 10 + len(".parquet")
# A slash becomes ``%2F``; no character has a longer escape.
_ESCAPE_BYTES = 3


class Folders:
    """The folders of one table's partitions.

    root: the table's absolute path; "" if it is not known, so that only single names are checked, not whole paths.
    limits: what the store takes.
    """

    def __init__(self, schema: TableSchema, root: str, limits: NameLimits, *, names_at_once: bool = False):
        """names_at_once: the files get their final names when they are written."""
        self._schema = schema
        self._root = root
        self._limits = limits
        self._file_bytes = _FILE_NAME_BYTES + (TOKEN + 1 if names_at_once else 0)
        options = schema.options
        self._default = options.get("partition.default-name", "__DEFAULT_PARTITION__")
        self._legacy = options.get("partition.legacy-name", "true").strip().lower() == "true"
        self._known: dict[bytes, str] = {}
        self._announced: set[str] = set()

    def of(self, key: PartitionKey) -> str:
        """The folder of a partition's files, relative to the table.

        Raises Misuse ``partition.name-too-long``; the message does not contain the value.
        """
        folder = self._known.get(key.row)
        if folder is None:
            folder = self._folder(key)
            refused = self._refused(folder)
            if refused is not None:
                raise Misuse(
                    f"{self._root + ': ' if self._root else ''}{refused[1]}. Nothing was recorded. Filter such rows in "
                    "the query, partition by something shorter (such as a prefix or a hash of it), or name a table for "
                    "them with dead_letters",
                    kind=_KIND,
                )
            self._known[key.row] = folder
        return folder

    def announce(self, file_io: FileIO, spec: WriteSpec, keys: Iterable[PartitionKey]) -> None:
        """Say where files of these partitions come to be, before they are there, unless that was said."""
        unsaid = self.unsaid(spec, {self.of(key) for key in keys})
        announce_places(file_io, spec.staging, spec.at_once.attempt if spec.at_once else "", unsaid)

    def unsaid(self, spec: WriteSpec, folders: Collection[str] | None = None) -> list[InTable]:
        """Where files come to be, unless that was said of all of them. The caller says it.

        Only for files that get their final names at once, in a store where a file is not there before it is finished.
        folders: None for all that ``of`` has given.
        """
        at, given = spec.at_once, self._known.values() if folders is None else folders
        new = set(given) - at.announced - self._announced if at else set()
        if at is None or not new:
            return []
        self._announced |= new
        places = tuple((folder, spec.beginning) for folder in sorted(new))
        return [InTable(at.table, (*places, *at.metadata), at.since)]

    def unfit_rows(self, rows: pa.RecordBatch) -> list[tuple[int, str, str]]:
        """(index, reason, column) of each row for which no folder can be named. The batch has the table's columns."""
        unreadable: dict[int, str] = {}
        for name in self._schema.partition_keys:
            for index in not_utf8(rows.column(rows.schema.get_field_index(name))):
                unreadable.setdefault(index, name)
        if not unreadable:
            return self._without_folder(rows)
        places = [index for index in range(rows.num_rows) if index not in unreadable]
        others = self._without_folder(rows.take(pa.array(places, pa.int64())))
        bad = [(index, f"{_NOT_UTF8}: {WHY_NOT_UTF8.format(name)}", name) for index, name in unreadable.items()]
        return sorted([*bad, *((places[index], reason, column) for index, reason, column in others)])

    # -- parts -----------------------------------------------------------------------------------------------------

    def _without_folder(self, rows: pa.RecordBatch) -> list[tuple[int, str, str]]:
        if not self._may_refuse(rows):
            return []
        found = []
        for key, places in split_with_places(rows, self._schema):
            refused = self._unnamed(key)
            if refused is None and (too_long := self._refused(self._folder(key))) is not None:
                refused = too_long[0], f"{_KIND}: {too_long[1]}"
            if refused is not None:
                found += [(index, refused[1], refused[0]) for index in places.to_pylist()]
        return sorted(found)

    def _folder(self, key: PartitionKey) -> str:
        return bucket_dir(self._path(key.values, self._schema.partition_fields), UNAWARE_BUCKET)

    def _path(self, values: Sequence[Any], fields: Sequence[DataField]) -> str:
        return partition_path(values, fields, default_name=self._default, legacy=self._legacy)

    def _unnamed(self, key: PartitionKey) -> tuple[str, str] | None:
        """(column, reason) of the first value that cannot name a folder, whatever its length; None if all can."""
        for value, field in zip(key.values, self._schema.partition_fields):
            try:
                self._path([value], [field])
            except Misuse as refused:
                if refused.kind != _NO_NAME:
                    raise  # this is an error of the column, not of the value
                return field.name, f"{refused.kind}: {refused}"
        return None

    def _refused(self, folder: str) -> tuple[str, str] | None:
        """(column to blame, explanation) when the store does not take this folder, or the files in it."""
        file = os.path.join(self._root, folder, "f" * self._file_bytes)
        exceeded = self._limits.exceeded_by(file)
        if exceeded is None or not self._schema.partition_keys:
            return None  # without partitions the table's own path is too long, which no row has caused
        found, most = exceeded
        number, longest = max(enumerate(folder.split("/")[:-1]), key=lambda part: size_of(part[1]))
        column = self._schema.partition_keys[number]
        name_is_long = self._limits.name is not None and size_of(longest) > self._limits.name
        what = "the name of its partition's folder" if name_is_long else "the path of its partition's files"
        return (
            column,
            f"column '{column}': with a value of it, escaped, {what} has {found} bytes, and the store takes {most}",
        )

    def _may_refuse(self, rows: pa.RecordBatch) -> bool:
        """A cheap upper bound: whether a folder's name or a path might be refused.

        It takes the longest text of each partition column, as if every character were escaped. Dates and timestamps
        might be refused because of their year where folders do not have the legacy names.
        """
        sizes = [
            self._most_bytes(name, rows.column(rows.schema.get_field_index(name)))
            for name in self._schema.partition_keys
        ]
        limits = self._limits
        path = size_of(self._root) + sum(sizes) + len(sizes) + len("/bucket-0/") + self._file_bytes
        dates = not self._legacy and any(
            isinstance(field.type, AtomicType) and field.type.root in ("DATE", "TIMESTAMP")
            for field in self._schema.partition_fields
        )
        long = (
            limits.name is not None
            and max(sizes, default=0) > limits.name
            or limits.path is not None
            and path > limits.path
        )
        return bool(sizes) and (dates or long)

    def _most_bytes(self, name: str, column: pa.Array) -> int:
        """The most bytes that the path component of one partition column can have."""
        values = _LONGEST_PLAIN_TEXT
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            values = (pc.max(pc.binary_length(column)).as_py() or 0) * _ESCAPE_BYTES
        return size_of(escape(name)) + len("=") + max(values, size_of(escape(self._default)))


def announce_places(file_io: FileIO, staging: str, attempt: str, places: Sequence[InTable]) -> None:
    """Say where files of the attempt come to be, before they are there, with one object; nothing without places."""
    if places:
        announce(file_io, staging, Announcement(attempt, tuple(places)), IdSource().new_id())


_KIND, _NO_NAME, _NOT_UTF8 = "partition.name-too-long", "path.unsupported-value", "partition.encoding"
# The most bytes of a number, date or time, with room to spare: a decimal has 38 digits, a timestamp 30 characters, some
# of which are escaped.
_LONGEST_PLAIN_TEXT = 100
