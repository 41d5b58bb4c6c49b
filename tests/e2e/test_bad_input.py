"""Bad input gets a clear error that names the table and the way out, before anything is written; and nothing is
lost."""

import json
import logging
import subprocess

import pytest

import streamsink
from streamsink.errors import Misuse, StreamsinkError
from tests.e2e.harness import Ground, assert_each_once, content, ids_of, run_here

pytestmark = pytest.mark.spark

SECRET = "s3cret-value-of-a-row"


@pytest.fixture
def tmpfs(tmp_path):
    """A small file system of its own; the function remounts it read-only or writable."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(folder)], check=True)
    try:
        yield folder, lambda how: subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _foreach(spark, ground: Ground, checkpoint: dict, df=None, **options):
    """Start a query by hand; the error of its end."""
    sink = streamsink.to_table(ground.table, **options)
    if df is None:
        df = spark.readStream.schema("id BIGINT, name STRING").json(str(ground.source))

    def start():
        writer = df.writeStream.foreachBatch(sink).trigger(availableNow=True)
        for name, value in checkpoint.items():
            writer = writer.option(name, value)
        return writer.start()

    with pytest.raises(StreamsinkError) as caught:
        streamsink.run(start)
    return caught.value


@pytest.mark.parametrize("checkpoint", [{}, {"checkpointLocation": None}], ids=["missing", "null"])
def test_a_missing_or_null_checkpoint_location(spark, ground, checkpoint):
    """Spark would take a temporary one and forget what it wrote."""
    ground.add_files(0, 1)
    error = _foreach(spark, ground, checkpoint)
    assert error.kind == "checkpoint.missing" and "checkpointLocation" in str(error)
    assert content(ground.table) == {}


def test_an_option_that_does_not_exist_is_refused_when_the_query_is_built(ground):
    """It names the option and the ones there are."""
    with pytest.raises(Misuse, match="no option 'partitionBy'.*partition_by") as caught:
        streamsink.to_table(ground.table, partitionBy=["dt"])
    assert caught.value.kind == "option.unknown"
    for bad in (
        {"target_file_bytes": 0},
        {"restore": "maybe"},
        {"position_columns": ["offset"]},
        {"application": "../x"},
    ):
        with pytest.raises(Misuse, match=next(iter(bad))):
            streamsink.to_table(ground.table, **bad)


def test_a_path_that_is_not_a_table(spark, ground):
    """A folder with other files is never taken over."""
    ground.add_files(0, 1)
    other = ground.root / "lake" / "orders"
    other.mkdir(parents=True)
    (other / "notes.txt").write_text("mine")
    error = _foreach(spark, ground, {"checkpointLocation": ground.checkpoint})
    assert error.kind == "table.not-empty" and ground.table in str(error)
    assert [p.name for p in other.iterdir()] == ["notes.txt"]
    with pytest.raises(Misuse, match="not a Paimon table"):
        streamsink.read(spark, ground.table)
    with pytest.raises(Misuse, match="scheme 'gs'"):
        streamsink.to_table("gs://bucket/table")


def test_a_batch_dataframe_in_the_sink_names_the_way_out(spark, ground):
    """Called by hand, outside a streaming query."""
    with pytest.raises(Misuse, match="streamsink.write") as caught:
        streamsink.to_table(ground.table)(spark.range(3), 0)
    assert caught.value.kind == "batch.not-streaming"


@pytest.mark.parametrize(
    "ddl, kind, column",
    [
        ("id BIGINT", "schema.evolution", "name"),
        ("id BIGINT, name STRING, more INT", "schema.missing-column", "more"),
        ("id STRING, name STRING", "schema.evolution", "id"),
        ("id BIGINT NOT NULL, name STRING", "schema.nullability", "id"),
    ],
    ids=["extra", "missing", "other-type", "nullability"],
)
def test_a_schema_that_does_not_fit(spark, ground, ddl, kind, column):
    """It names the column, and neither a file nor a snapshot was added."""
    ground.add_files(0, 1)
    streamsink.create_table(ground.table, ddl)
    before = content(ground.table)
    error = _foreach(spark, ground, {"checkpointLocation": ground.checkpoint})
    assert error.kind == kind and f"'{column}'" in str(error) and ground.table in str(error)
    assert content(ground.table) == before


WAYS = {
    "driver": {},
    "spark": {"driver_max_rows": 0, "large_batches": "spark"},
    "tasks": {"driver_max_rows": 0, "large_batches": "tasks"},
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_full_disk_loses_nothing(spark, ground, tmpfs, way):
    """The error says so; with room again the restarted query ends with each row once."""
    folder, remount = tmpfs
    ground.add_files(0, 2)
    job = ground.job(table=str(folder / "orders"), options=way, per_batch=1)
    assert run_here(spark, job).code == 0
    ground.add_files(2, 1)
    filler = folder / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as stream:
        for _ in range(10_000):
            stream.write(b"x" * 4096)
    full = run_here(spark, job)
    assert (full.code, full.kind) == (1, "storage.full"), full
    assert job.table in full.message
    filler.unlink()
    assert run_here(spark, job).code == 0
    assert_each_once(job.table, ids_of(0, 3))


def test_a_read_only_folder_loses_nothing(spark, ground, tmpfs):
    """The error says so; writable again, each row is there once."""
    folder, remount = tmpfs
    ground.add_files(0, 1)
    job = ground.job(table=str(folder / "orders"))
    assert run_here(spark, job).code == 0
    ground.add_files(1, 1)
    remount("ro")
    refused = run_here(spark, job)
    assert (refused.code, refused.kind) == (1, "storage.read-only"), refused
    remount("rw")
    assert run_here(spark, job).code == 0
    assert_each_once(job.table, ids_of(0, 2))


def test_no_row_value_in_logs_events_errors_or_records(spark, ground, caplog):
    """A value that is written, and one that does not fit, stand in data files and manifests only."""
    caplog.set_level(logging.DEBUG, logger="streamsink")
    ground.source.mkdir()
    (ground.source / "1.json").write_text(json.dumps({"id": 1, "name": SECRET}) + "\n")
    job = ground.job()
    outcome = run_here(spark, job)
    assert outcome.code == 0
    streamsink.create_table(ground.table + "_short", "id BIGINT, name VARCHAR(3)")
    refused = run_here(spark, job.but(table=ground.table + "_short", checkpoint=ground.checkpoint + "2"))
    assert refused.code == 1 and "VARCHAR(3)" in refused.message
    said = [record.getMessage() for record in caplog.records]
    written = [p.read_text() for p in (ground.root / "lake" / "orders" / "streamsink").rglob("*") if p.is_file()]
    assert written
    for text in [*said, *written, str(outcome.events), refused.message]:
        assert SECRET not in text
