"""Bad input gets a clear error that names the table and the way out, before anything is written;
and nothing is lost."""

import json
import logging

import pytest

import streamsink
from streamsink.errors import Misuse, StreamsinkError
from tests.e2e.harness import Ground, content, run_here

pytestmark = pytest.mark.spark

SECRET = "s3cret-value-of-a-row"


def _foreach(spark, ground: Ground, checkpoint: dict, df=None, **options):
    """Start a query by hand. Returns the error with which it ends."""
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
    """The error names the option and those that there are."""
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
    """The sink is called by hand, outside a streaming query."""
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
    """The error names the column, and neither a file nor a snapshot was added."""
    ground.add_files(0, 1)
    streamsink.create_table(ground.table, ddl)
    before = content(ground.table)
    error = _foreach(spark, ground, {"checkpointLocation": ground.checkpoint})
    assert error.kind == kind and f"'{column}'" in str(error) and ground.table in str(error)
    assert content(ground.table) == before


def test_no_row_value_in_logs_events_errors_or_records(spark, ground, caplog):
    """A value that is written, and one that does not fit, are in data files and manifests only."""
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
