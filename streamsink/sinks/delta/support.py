"""What a Delta table asks of its writers, and whether this one does it. Driver only.

deltalake commits files to tables whose rules it does not apply to them, as the rules are the business of whoever has
written the files. So they are looked at here, before anything is written.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from streamsink.errors import Misuse
from streamsink.sinks.delta.columns import Column

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


def check_table(table: Any, columns: Sequence[Column], path: str) -> None:
    """Raises Misuse for a table with a feature or rule that this writer cannot honour. table: deltalake's."""
    configuration: Mapping[str, str] = table.metadata().configuration
    found = _wrong_protocol(table.protocol()) or _wrong_configuration(configuration) or _wrong_column(columns)
    if found:
        raise Misuse(
            f"{path}: the table has {found}, which this sink cannot honour. Nothing was written. Take it off the "
            "table, or write into another table",
            kind="delta.unsupported",
        )


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
