"""Data files as a Delta log names them: values of partitions as texts, and statistics. Driver only."""

import datetime
import decimal
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from streamsink.errors import Misuse
from streamsink.sinks.lake_tables.parquet_file import LakeFile

# Of so many columns there are statistics where the table does not say a number.
_MOST_COLUMNS = 32
_INDEXED, _NAMED = "delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns"
_MOST_LETTERS = 32
_EPOCH, _MS = datetime.datetime(1970, 1, 1), 1000
# No text of a valid UTF-8 column that has the same beginning is greater than one that goes on with this.
_GREATEST = "\U0010ffff"


def add_of(file: LakeFile, folder: str, configuration: Mapping[str, str], path: str) -> dict[str, Any]:
    """The fields of deltalake's AddAction.

    folder: of the file, relative to the table. configuration: of the table. path: for messages. Raises Misuse for the
    value of a partition column that a Delta table cannot have.
    """
    footer = file.metadata
    return {
        "path": f"{folder}/{file.name}",
        "size": file.size,
        "partition_values": {name: partition_text(of, name, path) for name, of in file.partition_values.items()},
        "data_change": True,
        "stats": stats_of(footer, file, footer.schema.to_arrow_schema(), configuration),
    }


def partition_text(value: pa.Scalar, column: str, path: str) -> str | None:
    """A value as the log writes it; None for null. Raises Misuse, which does not show the value."""
    if not value.is_valid:
        return None
    if pt.is_boolean(value.type):
        return "true" if value.as_py() else "false"
    if pt.is_timestamp(value.type) or pt.is_date(value.type):
        text = _moment(value.value, "us" if pt.is_timestamp(value.type) else "d")
        if text is None:
            raise _refused(path, column, "a time outside of the years 1 to 9999")
        if pt.is_date(value.type):
            return text[:10]
        return f"{text}Z" if value.type.tz is not None else text.replace("T", " ")
    found = value.as_py()
    if isinstance(found, decimal.Decimal):
        if found < 0 and value.type.scale:  # 1.6.6 reads -12.50 as -12.-50, and then the whole table cannot be read
            raise _refused(path, column, "a negative decimal, with which deltalake cannot read the table any more")
        return format(found, "f")
    if isinstance(found, float) and not math.isfinite(found):
        return "NaN" if math.isnan(found) else "Infinity" if found > 0 else "-Infinity"
    if found == "":
        raise _refused(path, column, "an empty text, which readers of Delta tables take for null")
    return str(found)


def stats_of(footer: pq.FileMetaData, file: LakeFile, schema: pa.Schema, configuration: Mapping[str, str]) -> str:
    """Statistics of a file, as the JSON text of an AddAction: numbers of rows and nulls, least and greatest values.

    A bound is left out where there is none that all readers understand, which is always right. It is given wherever
    there is one: where the log has none, deltalake 1.6.6 hands out rows to pyarrow as if no value were within it, so
    that a filter by the column finds nothing.
    """
    nulls, least, greatest = dict[str, str](), dict[str, str](), dict[str, str]()
    for place, field, chunks in _chunks(footer, schema, configuration):
        if all(chunk is not None and chunk.has_null_count for chunk in chunks):
            nulls[field.name] = str(sum(chunk.null_count for chunk in chunks))
        known = [c for c in chunks if c is not None and c.has_min_max]
        empty = [c for c in chunks if c is not None and not c.has_min_max and c.num_values == 0]
        if not known or len(known) + len(empty) < len(chunks):
            continue
        low = _bound([c.min_raw for c in known], field.type, is_upper=False)
        # The footer leaves NaN out of account, and for Spark that is greater than all numbers.
        is_bounded = not pt.is_floating(field.type) or (file.nans is not None and place not in file.nans)
        high = _bound([c.max_raw for c in known], field.type, is_upper=True) if is_bounded else None
        least |= {field.name: low} if low is not None else {}
        greatest |= {field.name: high} if high is not None else {}
    # Without these deltalake compares a row with none, and finds neither those that are null nor those that are not.
    within = {field.name: "{}" for field in schema if pt.is_struct(field.type)}
    least, greatest = least | within, greatest | within
    parts = {"minValues": _object(least), "maxValues": _object(greatest), "nullCount": _object(nulls)}
    return _object({"numRecords": str(file.rows), **parts})


def _chunks(
    footer: pq.FileMetaData, schema: pa.Schema, configuration: Mapping[str, str]
) -> Iterator[tuple[int, pa.Field, list[Any]]]:
    """Flat columns of which the table wants statistics, with their places, each with those of each row group."""
    number = configuration.get(_INDEXED, str(_MOST_COLUMNS))
    most = int(number) if number.lstrip("-").isdecimal() else _MOST_COLUMNS
    named = configuration.get(_NAMED)
    wanted = {name.strip().strip("`") for name in named.split(",")} if named is not None else None
    place = counted = 0
    for field in schema:
        if not pt.is_nested(field.type) and (field.name in wanted if wanted is not None else not 0 <= most <= counted):
            groups = range(footer.num_row_groups)
            yield place, field, [footer.row_group(group).column(place).statistics for group in groups]
        place += _leaves(field.type)
        counted += _counted(field.type)


def _counted(of: pa.DataType) -> int:
    """As how many columns Delta counts one: an array or a map is one, whatever is in it."""
    return sum(_counted(field.type) for field in of) if pt.is_struct(of) else 1


def _leaves(of: pa.DataType) -> int:
    """How many columns of a Parquet file a column is."""
    if pt.is_map(of):
        return _leaves(of.key_type) + _leaves(of.item_type)
    if pt.is_list(of):
        return _leaves(of.value_type)
    return sum(_leaves(field.type) for field in of) if pt.is_struct(of) else 1


def _bound(raw: Sequence[Any], of: pa.DataType, *, is_upper: bool) -> str | None:
    """The least or greatest of these values as JSON; None where there is none that holds for all readers."""
    pick = max if is_upper else min
    if pt.is_string(of):
        return _text_bound(raw, is_upper)
    if pt.is_decimal(of):
        unscaled = pick(int.from_bytes(each, "big", signed=True) if isinstance(each, bytes) else each for each in raw)
        return format(decimal.Decimal(unscaled).scaleb(-of.scale, decimal.Context(prec=40)), "f")
    if pt.is_floating(of) or pt.is_boolean(of):
        found = pick(raw)
        return json.dumps(found) if math.isfinite(found) else None
    if pt.is_date(of):
        text = _moment(pick(raw), "d")
        return None if text is None else json.dumps(text[:10])
    if pt.is_timestamp(of):
        # In milliseconds, as the protocol has them: the greatest one is rounded up, unless it is the last one of all.
        # Readers add a millisecond, as other writers round down.
        found = pick(raw)
        text = (_moment(-(-found // _MS) * _MS, "us") if is_upper else None) or _moment(found // _MS * _MS, "us")
        return None if text is None else json.dumps(f"{text[:-3]}{'' if of.tz is None else 'Z'}")
    return str(pick(raw)) if pt.is_integer(of) else None


def _text_bound(raw: Sequence[bytes], is_upper: bool) -> str | None:
    try:
        found = (max if is_upper else min)(raw).decode()
    except UnicodeDecodeError:
        return None
    if len(found) <= _MOST_LETTERS:
        return json.dumps(found)
    if is_upper and found[_MOST_LETTERS] == _GREATEST:
        return None
    return json.dumps(found[:_MOST_LETTERS] + (_GREATEST if is_upper else ""))


def _moment(value: int, unit: str) -> str | None:
    """A date in days, or a time in microseconds, as ISO 8601 has it with microseconds; None outside of its years."""
    try:
        since = datetime.timedelta(days=value) if unit == "d" else datetime.timedelta(microseconds=value)
        return (_EPOCH + since).isoformat(timespec="microseconds")
    except OverflowError:
        return None


def _object(parts: Mapping[str, str]) -> str:
    """A JSON object of texts that are JSON already: decimals are numbers with all their digits."""
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in parts.items()) + "}"


def _refused(path: str, column: str, found: str) -> Misuse:
    return Misuse(
        f"{path}: partition column '{column}' has {found}. Nothing of this batch was recorded or written. Mend or "
        "filter such rows in the query, and start it again",
        kind="delta.partition-value",
    )
