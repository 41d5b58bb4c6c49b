"""What a Delta table asks of its writers, and whether this one does it. Driver only.

deltalake commits files to tables whose rules it does not apply to them, as the rules are the business of whoever has
written the files. So they are looked at here, before anything is written.
"""

import importlib
import re
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.sinks.delta.columns import Column, has_times_without_zone

# Features that ask nothing of a writer that only adds files, or only what is looked at below.
_FEATURES = frozenset(
    "appendOnly invariants checkConstraints changeDataFeed generatedColumns columnMapping deletionVectors timestampNtz "
    "v2Checkpoint".split()
)
# Up to this version of the writers' protocol, which is a list of features from 7 on. In 6 are identity columns.
_MOST_WRITER, _MOST_READER = 5, 3
# What a column's metadata says of rules for its values.
_RULES = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "a generated column",
    "delta.identity.start": "an identity column",
    "delta.identity.step": "an identity column",
    "CURRENT_DEFAULT": "a column with a default",
}
_EXPIRY = "delta.setTransactionRetentionDuration"
_MAPPING, _CONSTRAINT, _COMPAT = "delta.columnMapping.mode", "delta.constraints.", "delta.enableIcebergCompat"
_OFF = ("", "false", "none")
# deltalake 1.6.6 decodes the first ones in a part of the places where it takes a path, and takes the others for a
# separator or for nothing. So it would look at another folder than the one that it writes to.
_NO_PATH = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f]")


def check_path(path: str) -> None:
    """Raises Misuse for the path of a table that deltalake takes for another one."""
    found = _NO_PATH.search(path)
    if found:
        raise Misuse(
            f"{path}: the path has {found[0]!r}, and deltalake takes that for another letter in some places, and so "
            "one table for another. Nothing was written. Give the table a path without '%' before two hexadecimal "
            "digits, backslashes and control characters",
            kind="delta.unsupported",
        )


def check_creation(schema: Any, columns: Sequence[Column], options: SinkOptions, path: str) -> None:
    """Raises Misuse unless a table that is created so will be one that this writer may write to.

    schema: deltalake's. It is tried in a folder that is deleted again.
    """
    module = importlib.import_module("deltalake")
    errors = importlib.import_module("deltalake.exceptions")
    _check_maps(columns, path)
    asked = f"a table with table_options={dict(options.table_options)}"
    end = "Nothing was written. Leave out of table_options what asks for that"
    with tempfile.TemporaryDirectory(prefix="streamsink-") as folder:
        try:
            table = module.DeltaTable.create(
                folder, schema, partition_by=list(options.partition_by), configuration=dict(options.table_options)
            )
        except (errors.DeltaError, ValueError) as failed:
            said = str(failed).strip().partition("\n")[0]
            raise Misuse(f"{path}: {asked} cannot be created ({said}). {end}", kind="delta.unsupported") from failed
        found = _found(table, columns)
    if found:
        raise Misuse(
            f"{path}: {asked} would have {found}, which this sink cannot honour. {end}", kind="delta.unsupported"
        )


def _check_maps(columns: Sequence[Column], path: str) -> None:
    """Raises Misuse where the only times without a zone are in maps: there deltalake 1.6.6 does not see them."""
    within = [column.name for column in columns if has_times_without_zone(column.type)]
    if within and not any(has_times_without_zone(column.type, in_maps=False) for column in columns):
        raise Misuse(
            f"{path}: column '{within[0]}' has times without a zone in a map, and deltalake cannot create a table with "
            "such a column. Nothing was written. Cast them in the query, to timestamp or to a text; or leave the "
            "column out of the first batch, and set add_columns=True when it comes",
            kind="delta.columns",
        )


def check_table(table: Any, columns: Sequence[Column], path: str) -> None:
    """Raises Misuse for a table with a feature or rule that this writer cannot honour. table: deltalake's."""
    found = _found(table, columns)
    if found:
        raise Misuse(
            f"{path}: the table has {found}, which this sink cannot honour. Nothing was written. Take it off the "
            "table, or write into another table",
            kind="delta.unsupported",
        )


def _found(table: Any, columns: Sequence[Column]) -> str:
    configuration: Mapping[str, str] = table.metadata().configuration
    return _wrong_protocol(table.protocol()) or _wrong_configuration(configuration) or _wrong_column(columns)


def _wrong_protocol(protocol: Any) -> str:
    writer, reader = protocol.min_writer_version, protocol.min_reader_version
    features = set(protocol.writer_features or ()) | set(protocol.reader_features or ())
    unknown = sorted(features - _FEATURES)
    if unknown:
        return f"the feature {', '.join(unknown)}"
    if writer > _MOST_WRITER and protocol.writer_features is None:
        return f"the writer version {writer} (known up to {_MOST_WRITER}, and 7 by features)"
    return f"the reader version {reader} (known up to {_MOST_READER})" if reader > _MOST_READER else ""


def _wrong_configuration(configuration: Mapping[str, str]) -> str:
    constraint = next((name for name in configuration if name.startswith(_CONSTRAINT)), "")
    if constraint:
        return f"the check constraint {constraint.removeprefix(_CONSTRAINT)}"
    if configuration.get(_MAPPING, "").lower() not in _OFF:
        return f"column mapping ({_MAPPING}={configuration[_MAPPING]})"
    if _EXPIRY in configuration:
        return f"{_EXPIRY}: what tells which rows are here would expire"
    compat = next((name for name, to in configuration.items() if name.startswith(_COMPAT) and to.lower() == "true"), "")
    return f"the property {compat}" if compat else ""


def _wrong_column(columns: Sequence[Column]) -> str:
    for column in columns:
        for rule, said in _RULES.items():
            if rule in column.metadata:
                return f"{said}: '{column.name}' ({rule})"
        if not isinstance(column.type, str) and any(
            f'"{rule}"' in str(column.type).replace("'", '"') for rule in _RULES
        ):
            return f"a rule for a part of column '{column.name}'"
    return ""
