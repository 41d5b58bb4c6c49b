"""The table's options ``metadata.iceberg.*``: whether Iceberg's metadata is made, where, and how."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from streamsink import shell
from streamsink.errors import Misuse
from streamsink.format.iceberg_types import check_types
from streamsink.format.schema import TableSchema

STORAGE = "metadata.iceberg.storage"
_LOCATION = "metadata.iceberg.storage-location"
_VERSION = "metadata.iceberg.format-version"
_CODEC = "metadata.iceberg.manifest-compression"
_LEGACY = "metadata.iceberg.manifest-legacy-version"
_LEAST_MERGED, _MOST_APART = "metadata.iceberg.compaction.min.file-num", "metadata.iceberg.compaction.max.file-num"
_DELETES, _KEPT = "metadata.iceberg.delete-after-commit.enabled", "metadata.iceberg.previous-versions-max"
_AT_TABLE, _OF_CATALOG = "table-location", "catalog-location"
_DATABASE = ".db"
#: What ``metadata.iceberg.manifest-compression`` may be -> Avro's name of the codec, as ``iceberg_avro`` writes it.
CODECS = {
    "snappy": "snappy",
    "zstd": "zstandard",
    "zstandard": "zstandard",
    "deflate": "deflate",
    "null": "null",
    "none": "null",
}


def makes_iceberg(options: Mapping[str, str]) -> bool:
    """Whether the table's options ask for Iceberg's metadata."""
    return options.get(STORAGE, "disabled").strip().lower() != "disabled"


def check_iceberg(schema: TableSchema) -> None:
    """Raises Misuse ``table.unsupported-option`` for options that are not honoured.

    A table without these options passes.
    """
    if makes_iceberg(schema.options):
        IcebergOptions.of("", schema.options)


def check_iceberg_types(schema: TableSchema) -> None:
    """Before a schema of ours is written: raises Misuse ``table.unsupported-column`` for what cannot be described.

    What another program has put into a table ends no query: the metadata of such a table is not made.
    """
    if makes_iceberg(schema.options):
        check_types(schema)


@dataclass(frozen=True)
class IcebergOptions:
    """How the metadata of one table is made.

    folder: where, as an absolute path. is_in_table: whether that is within the table's own folder. codec: of manifests
    and lists, by Avro's name. legacy: whether lists have the names that Iceberg 1.4 knew. least_merged, most_apart: of
    how many small manifests one is made when they have the target size together, and in any case. versions_kept: how
    many old metadata files stay; None for all of them.
    """

    folder: str
    is_in_table: bool
    codec: str
    legacy: bool
    least_merged: int
    most_apart: int
    versions_kept: int | None

    @classmethod
    def of(cls, root: str, options: Mapping[str, str]) -> "IcebergOptions":
        """root: path of the table; '' where only the options are checked. Raises Misuse, naming the option."""
        codec = options.get(_CODEC, "snappy").strip().lower()
        if codec not in CODECS:
            raise _refused(_CODEC, options[_CODEC], f"the codecs {', '.join(CODECS)} are written")
        if options.get(_VERSION, "2").strip() != "2":
            raise _refused(_VERSION, options[_VERSION], "version 2 is written, and row ids of version 3 are not")
        folder = _folder(root, options) if root else ""
        return cls(
            folder,
            folder.startswith(f"{root}/"),
            CODECS[codec],
            _is_true(_LEGACY, options, "false"),
            _number(_LEAST_MERGED, options, 10),
            _number(_MOST_APART, options, 50),
            _number(_KEPT, options, 0) if _is_true(_DELETES, options, "true") else None,
        )


def check_place(root: str, options: Mapping[str, str]) -> None:
    """Raises Misuse ``table.unsupported-option`` where the folder of the metadata does not follow from the table's."""
    if makes_iceberg(options):
        IcebergOptions.of(root, options)


def _folder(root: str, options: Mapping[str, str]) -> str:
    storage = options[STORAGE].strip().lower()
    default = _AT_TABLE if storage == _AT_TABLE else _OF_CATALOG
    location = options.get(_LOCATION, default).strip().lower()
    if location == _AT_TABLE:
        return os.path.join(root, "metadata")
    database, name = os.path.split(root)
    warehouse, folder = os.path.split(database)
    is_database = folder.endswith(_DATABASE) and folder != _DATABASE
    if location != _OF_CATALOG or not is_database:
        raise Misuse(
            f"{root}: {STORAGE}={options[STORAGE]!r} puts the metadata into <warehouse>/iceberg/<database>/<table>, "
            "expected a table at <warehouse>/<database>.db/<table>. Nothing was written. Choose such a path, or set "
            f"the table's option {_LOCATION}={_AT_TABLE} {shell.set_option(root, _LOCATION)}",
            kind="table.unsupported-option",
        )
    return os.path.join(warehouse, "iceberg", folder.removesuffix(_DATABASE), name, "metadata")


def _is_true(option: str, options: Mapping[str, str], default: str) -> bool:
    text = options.get(option, default).strip().lower()
    if text not in ("true", "false"):
        raise _refused(option, options[option], "expected true or false")
    return text == "true"


def _number(option: str, options: Mapping[str, str], default: int) -> int:
    text = options.get(option, str(default)).strip()
    if not text.isdecimal():
        raise _refused(option, options[option], "expected a whole number")
    return int(text)


def _refused(option: str, found: str, why: str) -> Misuse:
    return Misuse(f"cannot write to a table with option {option}={found!r}: {why}", kind="table.unsupported-option")
