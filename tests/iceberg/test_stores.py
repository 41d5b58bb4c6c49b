"""Iceberg tables on S3: data files by this library's writer, metadata by pyiceberg's. And on HDFS, all by this one."""

import io
import uuid

import pyarrow.parquet as pq
import pytest

from streamsink import faults
from streamsink.storage.stores import store_of
from streamsink.testing.faults import InjectedCrash
from tests.iceberg.test_tables import ROW, Query, empty_row, table_of


@pytest.mark.in_turn("stores of Iceberg tables", 1)
@pytest.mark.parametrize("journal", ["beside the table", "on a disk"])
def test_a_table_on_s3(s3_server, tmp_path, journal):
    """What a dead attempt has left there is removed; the store's options go to the writers of tasks as well."""
    options, query = s3_server.options, Query(tmp_path)
    place = f"s3://{s3_server.bucket}/{uuid.uuid4().hex}"
    query.properties |= {
        "warehouse": place,
        "s3.endpoint": options["s3.endpoint"],
        "s3.access-key-id": options["s3.access-key"],
        "s3.secret-access-key": options["s3.secret-key"],
        "s3.region": "us-east-1",
    }
    given = {}
    if journal == "on a disk":
        query.of_sink = {"journal": str(tmp_path / "journal"), "store_options": options}
    else:
        given = {"store_options": options}
    query.run(table_of(ROW, empty_row(2)), partition_by=["day"], **given)
    store = store_of(place, options).open()
    faults.arm(_die_before_the_record)
    with pytest.raises(InjectedCrash):
        query.run(table_of(empty_row(9)), **given)
    faults.arm(None)
    assert len(store.files_below(f"{place}/shop/orders/data")) == 3
    query.forget_batch()
    query.run(table_of(empty_row(3)), table_of(empty_row(4)), **given)
    assert sorted(query.found(), key=lambda row: row["id"]) == [ROW, *(empty_row(number) for number in (2, 3, 4))]
    named = query.table().inspect.files().column("file_path").to_pylist()
    assert sorted(store.files_below(f"{place}/shop/orders/data")) == sorted(named)


def _die_before_the_record(step: str) -> None:
    if step == "precommit.before_record":
        raise InjectedCrash(step)


@pytest.mark.in_turn("stores of Iceberg tables", 1)
def test_a_table_on_hdfs(hdfs_cluster, tmp_path):
    """Three starts, of which one dies. pyiceberg itself could not read such a table without a library of Hadoop's."""
    place, query = f"{hdfs_cluster.uri}/{uuid.uuid4().hex}", Query(tmp_path)
    query.properties["warehouse"] = place
    query.run(table_of(ROW, empty_row(2)), partition_by=["day"])
    assert query.sink().journal == f"{place}/shop/orders/_streamsink"
    faults.arm(_die_before_the_record)
    with pytest.raises(InjectedCrash):
        query.run(table_of(empty_row(9)))
    faults.arm(None)
    query.forget_batch()
    query.run(table_of(empty_row(3)), table_of(empty_row(4)))
    store, named = store_of(place).open(), query.table().inspect.files().column("file_path").to_pylist()
    found = [pq.read_table(io.BytesIO(store.read(path)), columns=["id"])["id"].to_pylist() for path in named]
    assert sorted(number for numbers in found for number in numbers) == [1, 2, 3, 4]
    assert sorted(store.files_below(f"{place}/shop/orders/data")) == sorted(named)
    assert len(query.table().metadata.snapshots) == 3
