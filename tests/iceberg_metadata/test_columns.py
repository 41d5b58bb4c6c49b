"""Columns that others change, and files that say no ids: readers of Iceberg see the same values, or nothing new."""

import dataclasses
import decimal
import glob
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsink import maintenance
from streamsink.errors import Misuse
from streamsink.format.types import parse_ddl
from streamsink.operations.table_options import change
from streamsink.table.care.expire_snapshots import Retention, expire
from streamsink.table.care.removal import Needed
from tests.iceberg_metadata.mirrored import AT_TABLE, SCHEMA, STORAGE, Query, check, folder_of, hinted, iceberg

OFF = {STORAGE: "disabled"}
NUMBERS = pa.schema([("id", pa.int32()), ("v", pa.int32())])


def _alter(query, fields=None, **options) -> None:
    """As ALTER TABLE of another program. fields(old): the new ones."""
    table = query.table()
    old = table.latest_schema()
    new = tuple(fields(old.fields)) if fields else old.fields
    highest = max(old.highest_field_id, *(field.id for field in new))
    made = dataclasses.replace(old, id=old.id + 1, fields=new, highest_field_id=highest)
    table.schemas.add(dataclasses.replace(made, options={**old.options, **options}))


def _with(column, **changed):
    return lambda fields: [dataclasses.replace(f, **changed) if f.name == column else f for f in fields]


def test_a_type_that_readers_of_iceberg_do_not_widen_moves_nothing_until_old_files_are_rewritten(tmp_path, caplog):
    """INT to STRING, as Paimon's ALTER TABLE allows it: a filter would miss rows without an error."""
    query = Query(str(tmp_path / "orders"), NUMBERS, lambda n: (n, n * 1000), partition_by=())
    query.write(2)
    _alter(query, _with("v", type=parse_ddl("v STRING")[0].type))
    query.driver.schema, query.row = NUMBERS.set(1, pa.field("v", pa.string())), lambda n: (n, str(n * 1000))
    query.write()
    assert hinted(folder_of(query.path)) == 2
    assert any("'v' was of type INT and is of type STRING" in line.getMessage() for line in caplog.records)
    held = expire(query.table(for_writing=True), Retention(1, 1, 0), Needed)
    assert held.snapshots == () and "Iceberg metadata" in (held.held or ""), "readers are led to their files"
    maintenance.compact(query.path, full=True)
    assert query.table().snapshots.latest().id == hinted(folder_of(query.path)) == 4
    query.write()
    assert hinted(folder_of(query.path)) == 5
    from pyiceberg.expressions import EqualTo

    assert iceberg(folder_of(query.path)).scan(row_filter=EqualTo("v", "5000")).to_arrow().num_rows == 1


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.time32("ms"), pa.list_(pa.timestamp("s"))])
def test_a_new_column_that_cannot_be_described_is_refused_before_anything_is_written(tmp_path, kind):
    """And the query goes on without it."""
    query = Query(str(tmp_path / "orders"))
    query.write()
    query.driver.schema, query.row = pa.schema([*SCHEMA, ("t", kind)]), lambda n: (n, "a", None)
    with pytest.raises(Misuse, match=r"'t' has a part of type .*metadata\.iceberg\.storage") as refused:
        query.write()
    assert refused.value.kind == "table.unsupported-column"
    assert query.table().latest_schema().id == 0
    query.ends.pop()
    query.driver.schema, query.row = SCHEMA, lambda n: (n, "a")
    query.write()
    check(query.path)


def test_such_a_column_of_another_program_ends_no_query(tmp_path, caplog):
    """The metadata stays as it is; without the column it goes on, and does not have the schema between."""
    query = Query(str(tmp_path / "orders"))
    query.write()
    _alter(query, lambda fields: [*fields, dataclasses.replace(parse_ddl("t TIMESTAMP(9)")[0], id=2)])
    query.write(2)
    assert hinted(folder_of(query.path)) == 1
    assert any("'t' has a part of type TIMESTAMP(9)" in line.getMessage() for line in caplog.records)
    _alter(query, lambda fields: fields[:2])
    query.write()
    check(query.path)
    plain = Query(str(tmp_path / "plain"), pa.schema([*SCHEMA, ("t", pa.time32("ms"))]), lambda n: (n, "a", None))
    plain.driver.options = dataclasses.replace(plain.driver.options, table_options={})
    plain.write()
    with pytest.raises(Misuse, match="'t' has a part of type TIME"):
        change(plain.table(), AT_TABLE)


ITEM = pa.struct([("x", pa.int64()), ("y", pa.string())])


@pytest.mark.parametrize("kind", [ITEM, pa.list_(ITEM), pa.map_(pa.string(), ITEM)])
def test_nested_fields_are_renamed_and_columns_dropped_where_files_say_no_ids(tmp_path, kind):
    """Their old names lead to them, and readers know the names of what was dropped."""

    def value(n, name):
        part = {name: n, "y": "t"}
        return part if kind == ITEM else [part] if isinstance(kind, pa.ListType) else [("k", part)]

    def renamed(fields):
        for field in fields[:-1]:  # and the last one is dropped
            yield dataclasses.replace(field, type=_renamed(field.type))

    schema = pa.schema([("id", pa.int64()), ("s", kind), ("gone", pa.int64())])
    query = Query(str(tmp_path / "orders"), schema, lambda n: (n, value(n, "x"), n), partition_by=(), table_options=OFF)
    query.write()
    _alter(query, renamed, **AT_TABLE)
    new = pa.struct([("z", pa.int64()), ("y", pa.string())])
    of_map = pa.map_(pa.string(), new)
    query.driver.schema = pa.schema(
        [("id", pa.int64()), ("s", new if kind == ITEM else pa.list_(new) if pa.types.is_list(kind) else of_map)]
    )
    query.row = lambda n: (n, value(n, "z"))
    query.write()
    check(query.path)


def _renamed(t):
    from streamsink.format.types import ArrayType, MapType, RowType

    if isinstance(t, RowType):
        return dataclasses.replace(
            t, fields=tuple(dataclasses.replace(p, name="z") if p.name == "x" else p for p in t.fields)
        )
    if isinstance(t, ArrayType):
        return dataclasses.replace(t, element=_renamed(t.element))
    return dataclasses.replace(t, value=_renamed(t.value)) if isinstance(t, MapType) else t


def test_partition_columns_that_avro_would_call_alike(tmp_path):
    """Two decimals of one shape, and names that differ only in letters that Avro does not have."""
    digits = [decimal.Decimal(sign + "9" * 5).scaleb(-2) for sign in ("", "-")]
    kinds = {"d": pa.decimal128(5, 2), "e": pa.decimal128(5, 2), "a b": pa.string(), "a_x20b": pa.string()}
    schema = pa.schema([("id", pa.int64()), *kinds.items()])
    query = Query(
        str(tmp_path / "orders"), schema, lambda n: (n, digits[n % 2], digits[0], "v", "w"), partition_by=tuple(kinds)
    )
    query.write(2)
    check(query.path)
    maintenance.compact(query.path, full=True)
    check(query.path)


def test_files_of_others_that_say_no_ids_are_read_by_the_names_of_their_time(tmp_path):
    """As pypaimon writes them, also with the option set."""
    query = Query(
        str(tmp_path / "orders"), pa.schema([("id", pa.int64()), ("v", pa.int64())]), lambda n: (n, n), partition_by=()
    )
    query.write()
    for name in glob.glob(f"{query.path}/bucket-0/*.parquet"):
        rows = pq.read_table(name).replace_schema_metadata(None)
        pq.write_table(rows.cast(pa.schema([(field.name, field.type) for field in rows.schema])), name)
    _alter(query, _with("v", name="w"))
    query.driver.schema = pa.schema([("id", pa.int64()), ("w", pa.int64())])
    query.write()
    check(query.path)


def test_a_name_given_twice_stops_the_metadata_until_files_without_ids_are_rewritten(tmp_path, caplog):
    """And nothing is left of what was tried with each batch."""
    query = Query(str(tmp_path / "orders"), NUMBERS, lambda n: (n, n), partition_by=(), table_options=OFF)
    query.write()
    _alter(query, _with("v", id=2))
    _alter(query, **AT_TABLE)
    query.write(3)
    assert any("another column of this name" in line.getMessage() for line in caplog.records)
    assert os.listdir(folder_of(query.path)) == []
    assert expire(query.table(for_writing=True), Retention(2, 2, 0), Needed).snapshots == (1, 2), "none names them"
    maintenance.compact(query.path, full=True)
    check(query.path)
    query.write(2)
    check(query.path)
