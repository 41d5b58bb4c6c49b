"""Files of Spark's own Parquet writer that the sink adopts are, to every reader, what Java's and our own files are."""

import decimal
import glob
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F

import streamsink
from streamsink import faults
from streamsink.errors import Corrupt, Retryable
from streamsink.events import BatchWritten
from streamsink.format.binary_row import decode_row
from streamsink.format.footer_stats import row_groups_of
from streamsink.format.types import parse_ddl
from streamsink.spark.gateway import running
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table
from tests.advice.following import advice, follows
from tests.compat.rows import assert_same, columns, from_arrow, matching, project, random_rows, to_arrow
from tests.compat.test_read_by_others import CONSTANT, FAR, MIDDLE

pytestmark = [pytest.mark.compat, pytest.mark.spark]

TYPES = """b BOOLEAN, t TINYINT, s SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, st STRING, by BYTES, d1 DECIMAL(5,2),
  d2 DECIMAL(18,4), d3 DECIMAL(38,10), dt DATE, ts6 TIMESTAMP(6), lt6 TIMESTAMP_LTZ(6)"""
FUNCTIONS = ("equal", "greater_than", "is_null")
_runs = iter(range(10**6))


def frame_of(spark, path, rows, fields):
    """The rows as Spark reads them from a file, with timestamps without a zone among them."""
    name = f"{path}-{next(_runs)}.parquet"
    os.makedirs(os.path.dirname(name), exist_ok=True)
    pq.write_table(to_arrow(rows, fields), name)
    return spark.read.parquet(name)


def write(frame, path, way="spark", **options) -> None:
    """One run, which takes this way of writing although Spark's writer is wanted, unless something else is said."""
    written = []
    given = {"large_batches": "spark", **options}
    streamsink.write(frame, path, f"run-{next(_runs)}", written.append, **given)
    assert [event.way for event in written if isinstance(event, BatchWritten)] == [way]


def metas(path):
    table = open_table(local_file_io(), path, for_writing=False)
    return [entry.file for entry in table.manifests.entries_of(table.snapshots.latest())]


def bounds(path, ddl):
    """The (lows, highs, null counts) of the only file."""
    (meta,) = metas(path)
    types = [field.type for field in parse_ddl(ddl)]
    stats = meta.value_stats
    return decode_row(stats.min_values, types), decode_row(stats.max_values, types), stats.null_counts


def test_a_table_of_files_from_all_ways_is_read_by_all(spark, java, pypaimon, path, rng):
    """With every type, random rows, and filters on each kind of column,
    Java, pypaimon, read_arrow and Spark see exactly these rows."""
    fields = columns(TYPES)
    rows = random_rows(rng, fields, 60)
    parts = [frame_of(spark, path, rows[at : at + 20], fields) for at in (0, 20, 40)]
    write(parts[0], path)
    write(parts[1], path, "tasks", large_batches="tasks")
    write(parts[2], path, target_file_bytes=1_000)
    assert len(metas(path)) > 3
    assert_same(from_arrow(streamsink.read_arrow(path)), rows)
    assert_same(java.read(path), rows)
    assert_same(from_arrow(pypaimon.read(path)), rows)
    assert_same(from_arrow(streamsink.read(spark, path).toArrow()), rows)
    for column, (physical, plain) in MIDDLE.items():
        for function in FUNCTIONS if column in (f.name for f in fields) else ():
            unary = function == "is_null"
            names = list(dict.fromkeys(["st", column, "l"]))
            expected = project(matching(rows, fields, [(function, column, physical)]), fields, names)
            assert_same(java.read(path, [(function, column, None if unary else physical)], names), expected)
            assert_same(
                from_arrow(pypaimon.read(path, [(function, column, None if unary else plain)], names)), expected
            )


def test_types_ids_and_statistics_in_the_file_are_java_s(spark, java, path, rng):
    """Java, Spark's writer and our own write the same rows in one form, with statistics that are equal to the byte."""
    fields = columns(TYPES)
    rows = random_rows(rng, fields, 40)
    java.create(path + "_java", fields)
    java.append(path + "_java", rows)
    frame = frame_of(spark, path, rows, fields)
    write(frame, path)
    write(frame, path + "_tasks", "tasks", large_batches="tasks")
    ours, theirs = (pq.ParquetFile(glob.glob(f"{p}/bucket-0/*.parquet")[0]).schema for p in (path, path + "_java"))
    for mine, java_s in zip(ours, theirs):
        for name in ("path", "physical_type", "max_definition_level"):
            assert getattr(mine, name) == getattr(java_s, name)
        assert str(mine.logical_type) == str(java_s.logical_type)
    ids = [[field.metadata[b"PARQUET:field_id"] for field in schema.to_arrow_schema()] for schema in (ours, theirs)]
    assert ids[0] == ids[1]
    mine, java_s, tasks = (metas(p)[0] for p in (path, path + "_java", path + "_tasks"))
    assert mine.value_stats == java_s.value_stats == tasks.value_stats
    assert mine.value_stats_cols == java_s.value_stats_cols == tasks.value_stats_cols


@pytest.mark.in_turn("statistics of row groups", 2)
@pytest.mark.parametrize("mode", ["truncate(16)", "full", "counts", "truncate(3)"])
def test_statistics_of_several_row_groups_are_those_of_our_own_writer(spark, path, rng, mode):
    """Nulls, zeros, infinities, NaN, and long and odd texts are spread over several row groups of one file."""
    fields = columns(TYPES)
    rows = [list(row) for row in random_rows(rng, fields, 300, 0.5)]
    at = [field.name for field in fields].index
    for row in rng.sample(rows, 20):
        row[at("st")] = rng.choice(["\U0010ffff", "a" * 16 + "\ud7ff", "\U0001f600", "z"]) * rng.choice([1, 17, 300])
        row[at("f")], row[at("d")] = rng.choice([(-0.0, 0.0), (0.0, -0.0), (1.5, float("inf"))])
    if rng.random() < 0.5:
        rows[-1][at("d")] = float("nan")
    frame = frame_of(spark, path, [tuple(row) for row in rows], fields)
    found = {}
    for way in ("spark", "tasks"):
        place = f"{path}_{way}"
        write(
            frame,
            place,
            way,
            large_batches=way,
            table_options={"metadata.stats-mode": mode, "file.compression": "none"},
        )
        found[way] = metas(place)[0]
    assert found["spark"].value_stats == found["tasks"].value_stats
    assert found["spark"].value_stats_cols == found["tasks"].value_stats_cols


def test_a_null_count_that_spark_leaves_out_is_unknown(spark, java, path):
    """parquet-mr keeps no statistics of texts of kilobytes: no reader skips the file because of them."""
    ddl = "id INT, big STRING"
    rows = [(1, "x" * 5000), (2, None), (3, "a")]
    write(frame_of(spark, path, rows, columns(ddl)), path)
    assert bounds(path, ddl) == ((1, None), (3, None), (0, None))
    for where in (
        [("is_null", "big", None)],
        [("is_not_null", "big", None)],
        [("equal", "big", "a")],
        [("greater_than", "big", "b")],
    ):
        expected = matching(rows, columns(ddl), where)
        assert_same(java.read(path, where), expected)
    assert streamsink.read_arrow(path, where=streamsink.col("big") == "a").num_rows == 1


def test_no_bound_of_floats_from_a_writer_that_leaves_nan_out(spark, path):
    """parquet-mr up to 1.17 shows a NaN as the greatest value;
    from 1.18 on it hides it, so its bounds are not taken."""
    write(spark.sql("SELECT double(id) d, id FROM range(3)").coalesce(1), path)
    (name,) = glob.glob(f"{path}/bucket-0/*.parquet")
    data, fields = open(name, "rb").read(), parse_ddl("d DOUBLE, id BIGINT")
    made = pq.read_metadata(pa.BufferReader(data)).created_by
    assert made.startswith("parquet-mr version 1.")
    minor = int(made.split(".")[1])
    for version, known in ((17, True), (18, False)):
        other = data.replace(f"version 1.{minor}.".encode(), f"version 1.{version}.".encode())
        (chunks,) = row_groups_of(pq.read_metadata(pa.BufferReader(other)), fields)
        assert (chunks[0].high, chunks[1].high) == (2.0 if known else None, 2)


def test_nan_leaves_no_bounds(spark, java, path):
    """A NaN is greater than everything to Java and Spark, whatever the bounds say."""
    write(spark.sql("SELECT if(id = 1, double('NaN'), double(id)) d, float('NaN') f FROM range(3)").coalesce(1), path)
    assert bounds(path, "d DOUBLE, f FLOAT") == ((None, None), (None, None), (0, 0))
    assert len(java.read(path, [("greater_than", "d", 100.0)])) == 1


@pytest.mark.in_turn("values that repeat in large batches", 3)
@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in CONSTANT
        if kind.split("(")[0] not in ("CHAR", "VARCHAR", "BINARY", "TIME")
        and "(0)" not in kind
        and "(3)" not in kind
        and "(9)" not in kind
    ],
)
def test_a_value_that_repeats_is_found_by_java_s_filter(spark, java, path, kind):
    """The column has a dictionary, which Java's filters look into."""
    fields = columns(f"id INT, c {kind}")
    rows = [(i, CONSTANT[kind]) for i in range(20)] + [(20, None)]
    write(frame_of(spark, path, rows, fields), path)
    for function in ("equal", "greater_or_equal", "not_equal", "less_than"):
        where = [(function, "c", CONSTANT[kind])]
        assert_same(java.read(path, where), matching(rows, fields, where))


HOSTILE = {
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.writeLegacyFormat": "true",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.fieldId.write.enabled": "false",
    "spark.sql.parquet.compression.codec": "gzip",
    "spark.sql.files.maxRecordsPerFile": "1",
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "parquet.writer.version": "v2",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "America/Los_Angeles",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
}


def test_settings_of_the_session_change_nothing_and_are_left_as_they_were(spark, java, path):
    """Types, old dates, codec and number of files are the sink's to decide."""
    session = spark.newSession()
    for name, value in HOSTILE.items():
        session.conf.set(name, value)
    ddl = "id INT, ts6 TIMESTAMP(6), lt6 TIMESTAMP_LTZ(6), dt DATE, d1 DECIMAL(5,2)"
    rows = [
        (i, nanos, nanos, None if nanos is None else nanos // (86_400 * 10**9), None) for i, nanos in enumerate(FAR)
    ]
    write(frame_of(session, path, rows, columns(ddl)), path)
    assert {name: session.conf.get(name) for name in HOSTILE} == HOSTILE
    assert session.conf.get("spark.sql.sources.commitProtocolClass", None) == spark.conf.get(
        "spark.sql.sources.commitProtocolClass", None
    )
    (file,) = glob.glob(f"{path}/bucket-0/*.parquet")
    footer = pq.read_metadata(file)
    assert [footer.schema.column(i).physical_type for i in range(5)] == ["INT32", "INT64", "INT64", "INT32", "INT32"]
    assert footer.row_group(0).column(0).compression == "ZSTD"
    assert_same(java.read(path), rows)
    assert_same(from_arrow(streamsink.read_arrow(path)), rows)


def test_settings_of_the_session_are_put_back_when_the_job_fails(spark, path):
    """This holds for all of them, those that the session had and those that it did not have;
    and the batch can be written again."""
    session = spark.newSession()
    for name, value in HOSTILE.items():
        session.conf.set(name, value)
    before = session.conf.getAll
    frame = session.range(10).selectExpr("id", "if(id = 7, cast(raise_error('a bad row') AS string), 'good') s")
    with pytest.raises(Exception, match="a bad row"):
        streamsink.write(frame, path, "run")
    assert session.conf.getAll == before
    assert streamsink.write(session.range(10).selectExpr("id", "'good' s"), path, "run") == 10


def _files(path) -> list[str]:
    return glob.glob(f"{path}/**/*.parquet", recursive=True)


@follows("spark.not-counted")
def test_a_batch_that_spark_does_not_count_is_not_published(spark, path, monkeypatch):
    """The session has lost its listeners, which bring the count:
    nothing is left of the batch, and it can be written again."""
    monkeypatch.setattr(running, "_LISTENER_WAITS_MS", (100,) * 10)
    session = spark.newSession()
    counted = Observation()
    session.range(1).observe(counted, F.count("id").alias("rows")).collect()
    assert counted.get == {"rows": 1}
    session._jsparkSession.listenerManager().clear()
    with pytest.raises(Retryable, match="replayed after a restart.*large_batches='tasks'") as refused:
        streamsink.write(session.range(10), path, "run")
    said = advice(refused.value, "spark.not-counted")
    assert streamsink.write(session.range(10), path + "-tasks", "run", large_batches=said.option("large_batches")) == 10
    assert _files(path) == [] and streamsink.read_arrow(path).num_rows == 0
    assert streamsink.write(spark.range(10), path, "run") == 10
    assert sorted(streamsink.read_arrow(path).column("id").to_pylist()) == list(range(10))


def test_a_batch_of_which_a_file_is_lost_is_not_published(spark, path):
    """Spark has counted the rows on their way, so that the loss is noticed."""

    def lose_one(step: str) -> None:
        if step == "spark.written":
            os.unlink(_files(path)[0])

    faults.arm(lose_one)
    with pytest.raises(Corrupt, match="given 10 rows, and its files hold 5") as refused:
        streamsink.write(spark.range(0, 10, 1, 2), path, "run")
    faults.arm(None)
    assert refused.value.kind == "spark.row-count"
    assert _files(path) == [] and streamsink.read_arrow(path).num_rows == 0
    assert streamsink.write(spark.range(10), path, "run") == 10


def test_columns_are_brought_to_the_table_s(spark, java, path):
    """They have another order, narrower types, one missing, and odd names."""
    streamsink.create_table(path, "`a b` BIGINT, `x.y` DOUBLE, q DECIMAL(10,2), `\u00e9,;{}()=` STRING, more INT")
    frame = spark.sql("SELECT 'text' `\u00e9,;{}()=`, cast(1.5 AS DECIMAL(5,2)) q, 7 `a b`, float(0.5) `x.y`")
    write(frame, path, add_columns=True)
    one = {"a b": 7, "x.y": 0.5, "q": decimal.Decimal("1.50"), "\u00e9,;{}()=": "text", "more": None}
    assert streamsink.read_arrow(path).to_pylist() == [one]
    assert_same(java.read(path), [tuple(one.values())])
    write(spark.sql("SELECT 1 `q``t`"), path + "_quoted")


def test_field_ids_are_the_table_s_whatever_the_columns_say(spark, path):
    """Columns that were read from another table's files bring that table's ids."""
    streamsink.create_table(path, "late INT, id BIGINT")
    write(
        spark.range(3).select(F.col("id").alias("id", metadata={"parquet.field.id": 0, "other": "x"})),
        path,
        add_columns=True,
    )
    for file in _files(path):
        assert {f.name: f.metadata[b"PARQUET:field_id"] for f in pq.read_schema(file)} == {"late": b"0", "id": b"1"}
    assert streamsink.read_arrow(path).to_pylist() == [{"late": None, "id": i} for i in range(3)]


@pytest.mark.parametrize("other", ["A", "\u0130x"])
def test_names_that_are_one_to_spark_go_through_tasks(spark, path, other):
    """Spark's writer refuses them, or mistakes one for the other; Paimon takes them."""
    one = "ix" if other != "A" else "a"
    streamsink.create_table(path, f"`{one}` BIGINT, `{other}` BIGINT")
    write(spark.range(2).withColumnRenamed("id", other), path, "tasks", add_columns=True)
    assert streamsink.read_arrow(path).to_pylist() == [{one: None, other: i} for i in range(2)]


NEEDS_TASKS = {"array": "array(id) a", "row": "struct(id) r", "map": "map(id, id) m"}


@pytest.mark.parametrize("shape", NEEDS_TASKS)
def test_other_columns_go_through_tasks(spark, path, shape):
    """Spark writes these types in another way, or their values must be checked."""
    write(spark.range(3).selectExpr("id", NEEDS_TASKS[shape]), path, "tasks")


@pytest.mark.parametrize(
    "ddl",
    [
        "id BIGINT, c VARCHAR(5)",
        "id BIGINT, c CHAR(2)",
        "id BIGINT, c VARBINARY(3)",
        "id BIGINT, at TIMESTAMP(3)",
        "id BIGINT, at TIMESTAMP(9)",
        "id BIGINT, at TIMESTAMP_LTZ(0)",
    ],
)
def test_limits_of_the_table_are_looked_at_by_tasks(spark, path, ddl):
    """A text may be too long, or a timestamp is of another unit: each value is checked."""
    streamsink.create_table(path, ddl)
    made = {
        "c VARC": "'ab' c",
        "c CHAR": "'ab' c",
        "c VARB": "binary('ab') c",
        "at TIM": "timestamp_ntz'2026-11-21 00:00:00' at",
    }
    given = "timestamp'2026-11-21 00:00:00' at" if "LTZ" in ddl else made[ddl.split(", ")[1][:6]]
    write(spark.range(3).selectExpr("id", given), path, "tasks")


@pytest.mark.parametrize(
    "options", [{"partition_by": ["id"]}, {"table_options": {"file.compression": "lz4"}}], ids=["partitions", "lz4"]
)
def test_other_tables_are_written_by_tasks(spark, path, options):
    """Rows of a partitioned table need no sorting there; lz4 is another format in Hadoop."""
    write(spark.range(3), path, "tasks", **options)


def test_an_empty_batch_makes_no_file(spark, path):
    """Spark writes a file without rows, which is dropped."""
    streamsink.create_table(path, "id BIGINT")
    write(spark.range(3).where("id < 0"), path)
    assert glob.glob(f"{path}/**/*.parquet", recursive=True) == []


def test_encrypted_sessions_go_through_tasks(spark, path):
    """No reader of the table has the keys."""
    session = spark.newSession()
    session.conf.set("parquet.crypto.factory.class", "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory")
    write(session.range(3), path, "tasks")
