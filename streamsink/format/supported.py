"""Decides which tables this library writes and reads: bucket-unaware append tables in Parquet, without side effects.

A table with a feature that the writer does not honour must never be half-written, so each such feature is refused by
name. Options that change nothing for such a writer are accepted.
"""

from collections.abc import Callable, Mapping
from typing import Any

from streamsink.errors import Misuse
from streamsink.format.iceberg_options import check_iceberg
from streamsink.format.paths import check_partition_field
from streamsink.format.schema import TableSchema, nested_parts
from streamsink.format.types import FOREIGN_ROOTS, AtomicType, DataType, MultisetType, RowType, VectorType

Check = Callable[[str], bool]


def _off(value: str) -> bool:
    return value.strip().lower() in ("false", "")


def _equals(*allowed: str) -> Check:
    return lambda value: value.strip().lower() in allowed


def _is_number(value: str) -> bool:
    return value.strip().lstrip("-").isdigit()


def _never(_: str) -> bool:
    return False


#: option -> (whether a value is supported, why other values are not)
_READ_CHECKS: dict[str, tuple[Check, str]] = {
    "type": (_equals("table"), "only ordinary tables have this format"),
    "branch": (_equals("main"), "only the main branch is supported"),
    "file.format": (_equals("parquet"), "only parquet files are read and written"),
    "manifest.format": (_equals("avro"), "only avro manifests are read and written"),
    "data-file.path-directory": (_equals(""), "data files are expected directly below the table"),
    "deletion-vectors.enabled": (_off, "deletion vectors are not applied"),
    "data-evolution.enabled": (_off, "files would hold subsets of the columns"),
    "query-auth.enabled": (_off, "the catalog must authorise every access"),
    "scan.fallback-branch": (_never, "reads would have to look into another branch"),
    "scan.primary-branch": (_never, "reads would have to look into another branch"),
    "chain-table.enabled": (_off, "reads would have to chain branches"),
}
_WRITE_CHECKS: dict[str, tuple[Check, str]] = {
    **_READ_CHECKS,
    "bucket": (_equals("-1"), "only bucket-unaware tables (bucket=-1) are written"),
    "bucket-key": (_never, "only bucket-unaware tables are written"),
    "row-tracking.enabled": (_off, "row ids are not assigned"),
    "deletion-vectors.bitmap64": (_off, "deletion vectors are not written"),
    "file.format.per.level": (_never, "only one file format is written"),
    "file.compression": (
        _equals("zstd", "snappy", "gzip", "brotli", "lz4", "none", "uncompressed"),
        "Arrow writes zstd, snappy, gzip, brotli, lz4 or none",
    ),
    "file.compression.zstd-level": (_is_number, "the level of zstd is a number, such as 1"),
    "file.compression.per.level": (_never, "only one compression is written"),
    "vector.file.format": (_never, "vector files are not written"),
    "data-file.external-paths": (_never, "files outside of the table are not written"),
    "data-file.external-paths.strategy": (_equals("none"), "files outside of the table are not written"),
    "file.suffix.include.compression": (_off, "data files are named <name>.parquet"),
    "commit.callbacks": (_never, "callbacks need the JVM"),
    "commit.force-compact": (_off, "this writer does not compact"),
    "tag.callbacks": (_never, "callbacks need the JVM"),
    "tag.automatic-creation": (_equals("none", "process-time", "watermark"), "such tags are not made here"),
    "metastore.partitioned-table": (_off, "partitions are not registered in a metastore"),
    "metastore.tag-to-partition": (_never, "partitions are not registered in a metastore"),
    "metastore.tag-to-partition.preview": (_equals("none"), "partitions are not registered in a metastore"),
    "metadata.iceberg.storage": (
        _equals("disabled", "table-location", "hadoop-catalog"),
        "Iceberg metadata is written into table-location or hadoop-catalog, and registered in no catalog",
    ),
    "changelog-producer": (_equals("none"), "changelogs are not written"),
    "merge-engine": (_equals("deduplicate"), "rows are appended, not merged"),
    "sequence.field": (_never, "rows are appended, not merged"),
    "rowkind.field": (_never, "every row is an insert"),
    "sequence.snapshot-ordering": (_off, "sequence numbers are per file"),
    "write.sequence-number-init-mode": (_equals("scan"), "sequence numbers are per file"),
    "pk-clustering-override": (_off, "files are not clustered"),
    "clustering.incremental": (_off, "files are not clustered"),
    "append.force-rewrite-all-files": (_off, "this writer does not compact"),
    "avro.codec": (_equals("zstandard", "null", "deflate"), "released Java readers fail on it"),
}
#: (prefix, why) for all options that start so and are not in the table above.
_WRITE_PREFIXES: tuple[tuple[str, str], ...] = (
    ("blob-", "BLOB files are not written"),
    ("blob.", "BLOB files are not written"),
    ("global-index.", "global indexes are not maintained"),
    ("pk-", "primary-key tables are not written"),
    ("metastore.", "a metastore is not kept up to date"),
    ("sequence.", "rows are appended, not merged"),
)
#: Options that start like those above, and are harmless.
_HARMLESS: frozenset[Any] = frozenset(("global-index.enabled",))
_UNSUPPORTED_ATOMS = FOREIGN_ROOTS


def check_writable(schema: TableSchema) -> None:
    """Refuse a table with a feature that the bucket-unaware append writer does not honour.

    Raises: Misuse ``table.unsupported-option``, ``table.unsupported-column``, ``table.default-value``,
    ``table.primary-key`` or ``path.unsupported-type`` for the first such feature, which it names.
    """
    _check_keys(schema)
    _check_columns(schema)
    _check_defaults(schema)
    _check_options(schema.options, _WRITE_CHECKS, "write to")
    check_iceberg(schema)
    legacy = schema.options.get("partition.legacy-name", "true").strip().lower() == "true"
    for field in schema.partition_fields:
        check_partition_field(field, legacy)
    for option, value in schema.options.items():
        for prefix, why in _WRITE_PREFIXES:
            if (
                option.startswith(prefix)
                and option not in _WRITE_CHECKS
                and option not in _HARMLESS
                and not _off(value)
            ):
                raise _refusal(option, value, why, "write to")


def check_readable(schema: TableSchema) -> None:
    """Refuse a table that a plain scan of the live files would read wrongly. Raises: Misuse, as ``check_writable``."""
    _check_keys(schema)
    _check_columns(schema)
    _check_options(schema.options, _READ_CHECKS, "read")


def _check_keys(schema: TableSchema) -> None:
    if schema.primary_keys:
        raise Misuse(
            f"the table has a primary key ({', '.join(schema.primary_keys)}); only append tables are supported",
            kind="table.primary-key",
        )


def _check_columns(schema: TableSchema) -> None:
    for field in schema.fields:
        found = _unsupported(field.type)
        if found is not None:
            raise Misuse(
                f"column {field.name!r} has a part of type {found}, which is not supported",
                kind="table.unsupported-column",
            )


def _check_defaults(schema: TableSchema) -> None:
    for field in schema.fields:
        if field.default_value is not None:
            raise Misuse(
                f"column {field.name!r} has a default value, which Paimon's writers write in place of a null, and this "
                "library does not. Nothing was written. Take the default off the column (ALTER TABLE ... ALTER COLUMN "
                f"{field.name} DROP DEFAULT), and fill its nulls in the query (coalesce)",
                kind="table.default-value",
            )


def _unsupported(t: DataType) -> DataType | None:
    for part in nested_parts(t):
        if isinstance(part, (MultisetType, VectorType)):
            return part
        if isinstance(part, AtomicType) and part.root in _UNSUPPORTED_ATOMS:
            return part
        if isinstance(part, RowType):
            for field in part.fields:
                found = _unsupported(field.type)
                if found is not None:
                    return found
    return None


def _check_options(options: Mapping[str, str], checks: Mapping[str, tuple[Check, str]], verb: str) -> None:
    for option, value in options.items():
        if option in checks and not checks[option][0](value):
            raise _refusal(option, value, checks[option][1], verb)


def _refusal(option: str, value: str, why: str, verb: str) -> Misuse:
    return Misuse(f"cannot {verb} a table with option {option}={value!r}: {why}", kind="table.unsupported-option")
