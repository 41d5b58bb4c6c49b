"""Spark's Iceberg reads the same rows, of a table's own folder and by a Hadoop catalog."""

import dataclasses
import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsink import maintenance
from streamsink.storage.file_io import local_file_io
from streamsink.table.read.scan import read_arrow
from streamsink.table.table import open_table
from tests.compat.spark_writer import run_query
from tests.iceberg_metadata.mirrored import AT_TABLE, STORAGE, Query, check, folder_of, iceberg, metadata_of, rows_of
from tests.iceberg_metadata.spark_reader import read_all
from tests.iceberg_metadata.test_follow import MERGED_OFTEN, evolving
from tests.iceberg_metadata.test_types import TYPES

pytestmark = [pytest.mark.spark, pytest.mark.soak]


def _rows(path) -> list:
    return rows_of(read_arrow(open_table(local_file_io(False), path, for_writing=False)))


def test_spark_reads_row_for_row(tmp_path, spark_settings):
    """Every type, partitions of most of them, columns that were added and widened, overwrites, compaction, expiry,
    files without ids, a rollback, and earlier snapshots by their number and by a time.
    """
    warehouse = tmp_path / "iceberg"
    requests, expected = [], []

    def ask(query, **more):
        requests.append({"path": query.path, **more})
        expected.append(_rows(query.path))

    schema = pa.schema([(name, kind) for name, (kind, _) in TYPES.items()])
    for key in (None, "text", "day", "price", "at", "at_ms", "flag", "large"):
        query = Query(
            str(tmp_path / "types.db" / f"by_{key}"),
            schema,
            lambda n: [make(n) for _, make in TYPES.values()],
            partition_by=(key,) if key else (),
        )
        query.write(2)
        ask(query)
    query = None
    for query in evolving(str(tmp_path / "shop.db" / "evolved")):
        ask(query, options={"versionAsOf": str(metadata_of(folder_of(query.path))["current-snapshot-id"])})
    maintenance.compact(query.path, full=True)  # pyiceberg reads an array of rows that is null as one without rows
    ask(query)
    changed = Query(
        str(tmp_path / "shop.db" / "changed"), table_options={**MERGED_OFTEN, "snapshot.num-retained.min": "1"}
    )
    changed.write(6)
    maintenance.compact(changed.path)
    changed.driver.options = dataclasses.replace(changed.driver.options, mode="overwrite")
    changed.write()
    ask(changed)
    for snapshot in metadata_of(folder_of(changed.path))["snapshots"][-3:]:
        requests.append({"path": changed.path, "options": {"versionAsOf": str(snapshot["snapshot-id"])}})
        expected.append(int(snapshot["summary"]["total-records"]))
        requests.append({"path": changed.path, "options": {"timestampAsOf": _time(snapshot["timestamp-ms"] + 1)}})
        expected.append(int(snapshot["summary"]["total-records"]))
    ask(_named_by_columns(tmp_path))
    catalog = Query(str(tmp_path / "shop.db" / "cataloged"), table_options={STORAGE: "hadoop-catalog"})
    catalog.write(3)
    maintenance.rollback_to(catalog.path, 2)
    catalog.write(1)
    requests.append({"table": "lake.shop.cataloged", "where": "part = 'a'"})
    expected.append([row for row in _rows(catalog.path) if row[1] == "a"])

    found = read_all(tmp_path, requests, spark_settings, str(warehouse))
    for request, rows, wanted in zip(requests, found, expected):
        if isinstance(wanted, int):
            assert rows.num_rows == wanted, request
        else:
            assert rows_of(rows) == wanted, request
    check(changed.path)


def _named_by_columns(folder) -> Query:
    """A table in which the first files say no ids."""
    query = Query(str(folder / "shop.db" / "named"), table_options={STORAGE: "disabled"})
    query.write(2)
    table = query.table(for_writing=True)
    old = table.latest_schema()
    table.schemas.add(dataclasses.replace(old, id=old.id + 1, options={**old.options, **AT_TABLE}))
    query.write(2)
    return query


def _time(ms) -> str:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")


@pytest.mark.parametrize("large_batches", ["auto", "spark", "tasks"])
def test_large_batches_say_the_ids_of_their_columns(spark, tmp_path, large_batches):
    """In whichever way they are to be written, tasks write them; and the driver small ones."""
    path = str(tmp_path / "shop.db" / "orders")
    schema = pa.schema([("id", pa.int64()), ("a", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int32()))])
    rows = [pa.table({"id": [n], "a": [[n, None]], "m": [[("k", n)]]}, schema=schema) for n in range(3)]
    options = {"table_options": AT_TABLE, "large_batches": large_batches}
    run_query(spark, tmp_path, path, rows[:2], driver_max_rows=0, **options)
    run_query(spark, tmp_path, path, rows, **options)
    check(path)
    for task in iceberg(folder_of(path)).scan().plan_files():
        file = pq.ParquetFile(task.file.file_path).schema_arrow
        assert file.field("a").type.value_field.metadata[b"PARQUET:field_id"] == b"536871936"
