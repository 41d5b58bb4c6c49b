"""Advice of errors about the arguments of a call and the options of a table: once they are corrected as the error says,
the same call works.

The correct value is read out of the message, as a name that it lists or an option that it gives. The error comes before
anything is on the disk.
"""

import dataclasses
import datetime
from pathlib import Path

import pyarrow as pa
import pytest

import streamsink
from streamsink import col, faults
from streamsink.format.types import parse_ddl
from streamsink.locks.configured import lock_of
from streamsink.options import SinkOptions
from streamsink.spark.query import bounded
from streamsink.storage.file_io import local_file_io
from streamsink.storage.stores import table_path
from streamsink.table.table import create_table, new_schema, open_table
from streamsink.testing.faults import arm, arm_from_env
from tests.advice.following import follows, told
from tests.compat.arrow_writer import ArrowSink

ROW = pa.table({"id": pa.array([1], pa.int64()), "s": ["x"]})


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "shop.db" / "orders")


# -- a table that is created ---------------------------------------------------------------------------------------


# For each kind: what is wrong, a pattern of what the message lets one read, and what is right, each as (ddl,
# partition_by, options).
CREATED = {
    "schema.bad-type": (("a INTT",), r"known are .*?\b(INT)\b", lambda word: (f"a {word}",)),
    "schema.bad-name": (("a INT, a INT",), r"column '(a)' is there twice", lambda word: (f"{word} INT, b INT",)),
    "schema.bad-key": (
        ("a INT, b INT", ["c"]),
        r"partition column 'c' is not a column of the table, which has (\w+)",
        lambda word: ("a INT, b INT", [word]),
    ),
    "schema.bad-option": (
        ("a INT", (), {"bucket": "none"}),
        r"expected a number such as '(-1)'",
        lambda word: ("a INT", (), {"bucket": word}),
    ),
    "table.unsupported-option": (
        ("a INT", (), {"row-tracking.enabled": "true"}),
        r"option (row-tracking\.enabled)='true'",
        lambda word: ("a INT", (), {word: "false"}),
    ),
    "table.unsupported-column": (
        ("v VARIANT",),
        r"column '(v)' has a part of type VARIANT",
        lambda word: (f"{word} STRING",),
    ),
    "path.unsupported-type": (
        ("a BYTES, b INT", ["a"]),
        r"column '(a)': type BYTES cannot be a partition column",
        lambda word: (f"{word} STRING, b INT", [word]),
    ),
    "schema.unsupported-type": (
        (pa.schema([("a", pa.uint8())]),),
        r"cast it to a (larger signed) type",
        lambda word: (pa.schema([("a", pa.int16())]),),
    ),
}


@follows(*CREATED)
@pytest.mark.parametrize("kind", CREATED)
def test_a_table_that_is_created_as_the_error_says(kind, path, tmp_path):
    """The error names the table, and nothing is left of the failed attempt."""
    wrong, pattern, right = CREATED[kind]
    said = told(kind, lambda: streamsink.create_table(path, *wrong))
    assert path in said.message and list(tmp_path.iterdir()) == []
    assert streamsink.create_table(path, *right(said.find(pattern))) == path


@follows("table.exists")
def test_a_table_that_is_there_already(path):
    streamsink.create_table(path, "id BIGINT, s STRING")
    told("table.exists", lambda: streamsink.create_table(path, "id BIGINT, s STRING")).says(
        "open it, or choose another path"
    )
    with ArrowSink(path) as sink:
        sink.write(ROW)
    assert streamsink.create_table(path + "2", "id BIGINT")


@follows("table.created-differently")
def test_a_table_that_another_process_created_with_other_columns(path):
    """The table is opened as it is."""
    io = local_file_io()
    create_table(io, path, new_schema(parse_ddl("id BIGINT, s STRING"), (), {}))
    said = told("table.created-differently", lambda: create_table(io, path, new_schema(parse_ddl("id INT"), (), {})))
    said.says("start again: the table is opened as it is")
    with ArrowSink(path) as sink:
        sink.write(ROW)


@follows("table.default-value")
def test_a_column_with_a_default_value(path):
    """Paimon's writers put it in place of nulls. Formerly nulls were written beside their rows; now the next batch is
    refused, also of a query that runs."""
    streamsink.create_table(path, "id BIGINT, s STRING")
    table = open_table(local_file_io(), path, for_writing=True)

    def alter(default) -> None:
        schema = table.latest_schema()
        fields = (schema.fields[0], dataclasses.replace(schema.fields[1], default_value=default))
        table.schemas.add(dataclasses.replace(schema, id=schema.id + 1, fields=fields))

    with ArrowSink(path) as sink:
        sink.write(ROW)
        alter("none")
        said = told("table.default-value", lambda: sink.write(ROW))
        said.says("Nothing was written", "Take the default off the column", "fill its nulls in the query")
    assert told("table.default-value", lambda: ArrowSink(path)).find(r"ALTER COLUMN (\w+) DROP DEFAULT") == "s"
    assert streamsink.read_arrow(path).num_rows == 1
    alter(None)
    with ArrowSink(path) as sink:
        sink.write(ROW)
    assert streamsink.read_arrow(path).num_rows == 2


@follows("table.missing")
def test_a_path_without_a_table(path):
    told("table.missing", lambda: streamsink.read_arrow(path)).says("Give the path of a table, or let one be created")
    streamsink.create_table(path, "id BIGINT")
    assert streamsink.read_arrow(path).num_rows == 0


PATHS = {"table.path": ("", r"such as '(\S+)'"), "table.scheme": ("gs://bucket/orders", r"expected (a local path)")}


@follows(*PATHS)
@pytest.mark.parametrize("kind", PATHS)
def test_a_path_that_is_none(kind, path, tmp_path):
    wrong, pattern = PATHS[kind]
    assert told(kind, lambda: streamsink.create_table(wrong, "id BIGINT")).find(pattern)
    assert streamsink.create_table(path, "id BIGINT") == path


@follows("table.path")
@pytest.mark.parametrize("given", [Path("s3://bucket/lake/orders"), "s3:/bucket/lake/orders"], ids=["Path", "text"])
def test_a_uri_whose_slashes_were_cut(given):
    """Formerly it was taken for a folder 's3:' on the local disk."""
    said = told("table.path", lambda: streamsink.to_table(given))
    assert table_path(said.find(r"such as '(\S+)'")) == "s3://bucket/lake/orders"


# -- reading -------------------------------------------------------------------------------------------------------


READ = {
    "snapshot.missing": ({"snapshot_id": 7}, r"there are (\d+) to", lambda word: {"snapshot_id": int(word)}),
    "read.columns": ({"columns": ["ID"]}, r"which has (\w+)", lambda word: {"columns": [word]}),
    "where.column": ({"where": col("ID") > 0}, r"the table has (\w+)", lambda word: {"where": col(word) > 0}),
    "where.type": (
        {"where": "id > 0"},
        r"a condition such as (col\('x'\) > 5)",
        lambda word: {"where": eval(word.replace("'x'", "'id'").replace("5", "0"), {"col": col})},
    ),
    "where.value": ({"where": col("id") > "x"}, r"column 'id' is (BIGINT)", lambda word: {"where": col("id") > 0}),
    "where.nested": (
        {"where": col("m") == 1},
        r"conditions on such a column are (is_null)\(\)",
        lambda word: {"where": getattr(col("m"), word)()},
    ),
}


@follows(*READ)
@pytest.mark.parametrize("kind", READ)
def test_a_table_that_is_read_as_the_error_says(kind, path):
    streamsink.create_table(path, "id BIGINT, s STRING, m ARRAY<INT>")
    with ArrowSink(path, add_columns=True) as sink:
        sink.write(ROW)
    wrong, pattern, right = READ[kind]
    said = told(kind, lambda: streamsink.read_arrow(path, **wrong))
    assert path in said.message
    assert streamsink.read_arrow(path, **right(said.find(pattern))).column("id").to_pylist() == [1]


@follows("where.bool")
def test_conditions_that_are_combined_by_words():
    said = told("where.bool", lambda: col("id") > 1 and col("id") < 5)
    said.says("combine conditions with & and |", "each in parentheses")
    assert ((col("id") > 1) & (col("id") < 5)).parts


# -- rows that do not fit ------------------------------------------------------------------------------------------


def _dates(*days) -> pa.Table:
    return pa.table({"d": pa.array(days, pa.int32()).cast(pa.date32()), "id": pa.array(range(len(days)), pa.int64())})


_NOT_NULL = pa.schema([pa.field("id", pa.int64(), False)])
ROWS = {
    "data.null": ("id BIGINT NOT NULL", {}, pa.table({"id": pa.array([1, None], pa.int64())}, schema=_NOT_NULL)),
    "data.too-long": ("s VARCHAR(2)", {}, pa.table({"s": ["ab", "abc"]})),
    "data.cast": (
        "at TIMESTAMP(9)",
        {},
        pa.table({"at": pa.array([datetime.datetime(2020, 1, 1), datetime.datetime(1582, 1, 1)], pa.timestamp("us"))}),
    ),
    "path.unsupported-value": ("d DATE, id BIGINT", {"partition.legacy-name": "false"}, _dates(5, 5_000_000)),
}


@follows(*ROWS)
@pytest.mark.parametrize("kind", ROWS)
def test_a_row_that_does_not_fit_is_filtered(kind, path):
    """The first row of each pair fits. Dead letters, the other way on, have tests of their own."""
    ddl, options, rows = ROWS[kind]
    streamsink.create_table(path, ddl, ["d"] if "d DATE" in ddl else (), options)
    with ArrowSink(path) as sink:
        fields = open_table(local_file_io(), path, for_writing=False).latest_schema().fields
        said = told(kind, lambda: sink.write(rows, fields))
        said.says("ilter such rows in the query", "dead_letters")
        sink.write(rows.slice(0, 1), fields)
    assert streamsink.read_arrow(path).num_rows == 1


FITTED = {
    "schema.evolution": ("id BIGINT", ROW, "add_columns"),
    "schema.nullability": ("id BIGINT NOT NULL, s STRING", ROW, "widen_types"),
    "schema.missing-column": ("id BIGINT, s STRING", ROW.select(["id"]), "add_columns"),
}


@follows(*FITTED)
@pytest.mark.parametrize("kind", FITTED)
def test_columns_that_do_not_fit_need_the_option_that_the_error_names(kind, path):
    ddl, rows, name = FITTED[kind]
    streamsink.create_table(path, ddl)
    with ArrowSink(path) as sink:
        given = {name: told(kind, lambda: sink.write(rows)).option(name)}
    with ArrowSink(path, **given) as sink:
        sink.write(rows)
    assert streamsink.read_arrow(path).column("id").to_pylist() == [1]


@follows("schema.evolution")
def test_a_new_column_that_is_not_null_is_added_as_a_nullable_one(path):
    """Formerly the error said add_columns=True, and only the next error said that the column had to be nullable."""
    streamsink.create_table(path, "id BIGINT")
    data = ROW.cast(pa.schema([ROW.schema.field("id"), pa.field("s", pa.string(), nullable=False)]))
    with ArrowSink(path) as sink:
        said = told("schema.evolution", lambda: sink.write(data)).says(
            "Nothing was written", "make it nullable in the query, such as if(`s` IS NULL, NULL, `s`)"
        )
    with ArrowSink(path, add_columns=said.option("add_columns")) as sink:
        sink.write(ROW)
        sink.write(ROW)
    assert streamsink.read_arrow(path).num_rows == 2


@follows("stats.bad-mode")
@pytest.mark.parametrize(
    "option", ["metadata.stats-mode", "fields.id.stats-mode", "metadata.stats-keep-first-n-columns"]
)
def test_statistics_of_a_mode_that_there_is_not(option, path):
    """The error names the option and the values that it takes. With one of them the batch is written."""
    streamsink.create_table(path, "id BIGINT, s STRING", (), {option: "some"})
    with ArrowSink(path) as sink:
        said = told("stats.bad-mode", lambda: sink.write(ROW)).says("Set it right with ALTER TABLE")
        named, value = said.find(r"option '?([\w.-]+)'? is"), said.find(r"such as '([^']+)'")
    _alter(path, named, value)
    with ArrowSink(path) as sink:
        sink.write(ROW)
    assert streamsink.read_arrow(path).num_rows == 1


def _alter(path, option, value) -> None:
    table = open_table(local_file_io(), path, for_writing=False)
    schema = table.latest_schema()
    changed = dataclasses.replace(schema, id=schema.id + 1, options={**schema.options, option: value})
    table.file_io.create_if_absent(f"{path}/schema/schema-{changed.id}", changed.to_json())


# -- options of the sink -------------------------------------------------------------------------------------------


OPTIONS = {
    "application.name": ({"application": "a name"}, r"(letters), digits", lambda word: {"application": "name"}),
    "option.unknown": ({"positions": ("t", "p", "o")}, r"\b(position_columns)\b", lambda word: {word: ("t", "p", "o")}),
    "option.value": ({"publish": "later"}, r"expected one of sync, (\w+)", lambda word: {"publish": word}),
}


@follows(*OPTIONS)
@pytest.mark.parametrize("kind", OPTIONS)
def test_an_option_that_is_set_as_the_error_says(kind, path):
    wrong, pattern, right = OPTIONS[kind]
    said = told(kind, lambda: streamsink.to_table(path, **wrong))
    assert path in said.message
    assert streamsink.to_table(path, **right(said.find(pattern)))


OVERWRITTEN = {
    "option.overwrite-partition": ({"p": "x"}, r"the table's partition columns are (\w+)", lambda word: {word: "x"}),
    "overwrite.outside": ({"s": "y"}, r"(leave overwrite_partition out)", lambda word: None),
}


@follows(*OVERWRITTEN)
@pytest.mark.parametrize("kind", OVERWRITTEN)
def test_a_partition_that_is_overwritten_as_the_error_says(kind, path):
    wrong, pattern, right = OVERWRITTEN[kind]
    streamsink.create_table(path, "id BIGINT, s STRING", ["s"])
    with ArrowSink(path) as sink:
        sink.write(ROW)

    def overwrite(partition):
        with ArrowSink(path, application="job", mode="overwrite", overwrite_partition=partition) as sink:
            sink.write(ROW)

    said = told(kind, lambda: overwrite(wrong))
    assert streamsink.read_arrow(path).num_rows == 1
    overwrite(right(said.find(pattern)))
    assert streamsink.read_arrow(path).num_rows == 1


@follows("option.run-id")
def test_a_run_id_that_is_none(path):
    """It is checked before anything else of the call."""
    said = told("option.run-id", lambda: streamsink.write(None, path, "a run"))
    assert bounded._RUN_ID.fullmatch(said.find(r"such as '([^']+)'"))


# -- locks ---------------------------------------------------------------------------------------------------------


def _lock(path, **settings):
    return lock_of(path, SinkOptions.of(path, settings))


LOCKS = {
    "lock.url": (
        "/lake/shop.db/orders",
        {"lock": "zookeeper://host"},
        r"expected '(file)'",
        lambda word: {"lock": word},
    ),
    "lock.id": (
        "/lake/orders",
        {"lock": "file"},
        r"give lock_id='(<catalog-key>\.<database>\.<table>)'",
        lambda word: {"lock": "file", "lock_id": "jdbc.shop.orders"},
    ),
    "lock.password": (
        "/lake/shop.db/orders",
        {"lock": "jdbc:sqlite:/tmp/x", "lock_password_env": "STREAMSINK_NOT_SET"},
        r"names the environment variable (\w+), which is not set",
        lambda word: {"lock": "jdbc:sqlite:/tmp/x", "lock_password_env": word},
    ),
}


@follows(*LOCKS)
@pytest.mark.parametrize("kind", LOCKS)
def test_a_lock_that_is_named_as_the_error_says(kind, monkeypatch):
    root, wrong, pattern, right = LOCKS[kind]
    said = told(kind, lambda: _lock(root, **wrong))
    given = right(said.find(pattern))
    monkeypatch.setenv("STREAMSINK_NOT_SET", "a password")
    assert _lock(root, **given)


# -- of tests ------------------------------------------------------------------------------------------------------


@follows("fault.step")
def test_a_step_that_there_is_not():
    told("fault.step", lambda: arm("commit.publish", 1, lambda: None)).says("streamsink.faults.STEPS")
    arm(next(step for step in faults.STEPS if step.startswith("commit.")), 1, lambda: None)


@follows("fault.action")
def test_an_action_that_there_is_not():
    def give(action):
        arm_from_env({"STREAMSINK_FAULT": f"commit.published:{action}"})

    give(told("fault.action", lambda: give("die")).find(r"the action is one of (\w+)"))
