"""What others change under a query that runs: columns, partitions, and names of tables."""

import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import StringType

from tests.advice.following import follows, told
from tests.iceberg.test_tables import TABLE, Query

BATCHES = [pa.table({"id": [number], "text": [f"row {number}"], "n": [number]}) for number in range(4)]


def _changed(query: Query, change: Callable[[object], None]) -> None:
    """Under the second batch, behind the look at the table."""
    query.run(BATCHES[0])
    query.meanwhile = lambda: change(query.table())


def _rows(query: Query) -> int:
    return query.table().scan().count()


@pytest.mark.parametrize("how", ["dropped", "renamed"])
def test_a_column_that_is_gone_is_an_error_of_the_next_batch(tmp_path, how):
    """Its values would be in a column that nobody sees, or in one that the query does not name. The batch that was
    written already is committed as if it had come before the change."""
    query = Query(tmp_path)

    def change(table) -> None:
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.delete_column("text") if how == "dropped" else update.rename_column("text", "words")

    _changed(query, change)
    kind, named = ("schema.evolution", "'text'") if how == "dropped" else ("schema.missing-column", "'words'")
    told(kind, lambda: query.run(*BATCHES[1:])).says("Nothing was written", named)
    assert _rows(query) == 2
    files = list(query.folder.rglob("*.parquet"))
    assert len(files) == 2  # nothing of the third batch was begun
    query.forget_batch()
    found = [
        batch.drop_columns("text") if how == "dropped" else batch.rename_columns(["id", "words", "n"])
        for batch in BATCHES
    ]
    query.run(*found[2:])
    assert _rows(query) == 4


def test_a_nullable_column_that_others_add_does_not_stop_a_query(tmp_path):
    """Its rows have nulls there, also behind a second change. A restart asks for add_columns=True."""
    query = Query(tmp_path)
    query.run(BATCHES[0])
    happens = iter(["more", "yet_more"])

    def add() -> None:
        name = next(happens, None)
        if name is not None:
            with query.table().update_schema() as update:
                update.add_column(name, StringType())
            query.meanwhile = add

    query.meanwhile = add
    query.run(*BATCHES[1:])
    assert _rows(query) == 4 and {row["more"] for row in query.found()} == {row["yet_more"] for row in query.found()}
    again = told("schema.missing-column", lambda: query.run(BATCHES[0])).option("add_columns")
    query.forget_batch()
    query.run(BATCHES[0], add_columns=again)
    assert _rows(query) == 5


def test_a_column_that_was_widened_is_written_so(tmp_path):
    """By others, under the query."""
    query = Query(tmp_path)
    narrow = [batch.set_column(2, "n", batch["n"].cast(pa.int32())) for batch in BATCHES]
    query.run(narrow[0])

    def widen() -> None:
        from pyiceberg.types import LongType

        with query.table().update_schema() as update:
            update.update_column("n", LongType())

    query.meanwhile = widen
    query.run(*narrow[1:])
    assert sorted(row["n"] for row in query.found()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "more", [("new", pa.string()), ("inner", pa.struct([("a", pa.int32()), ("b", pa.string())]))], ids=["beside", "in"]
)
def test_a_column_is_added_where_rows_have_parts(tmp_path, more):
    """The check of what has become of the table compared ids of parts, so the first start said that it was none."""
    query, (name, kind) = Query(tmp_path), more
    inner = pa.struct([("a", pa.int32())])
    query.run(pa.table({"id": [0], "inner": pa.array([{"a": 1}], inner)}))
    after = pa.schema({"id": pa.int64(), "inner": inner} | {name: kind})
    query.run(pa.Table.from_pylist([{"id": 1, "inner": {"a": 2, "b": "x"}, "new": "y"}], after), add_columns=True)
    assert [row["inner"]["a"] for row in query.found()] in ([1, 2], [2, 1])
    assert {str((row["inner"], row.get("new"))) for row in query.found()} == (
        {"({'a': 1}, None)", "({'a': 2}, 'y')"}
        if name == "new"
        else {"({'a': 1, 'b': None}, None)", "({'a': 2, 'b': 'x'}, None)"}
    )


@follows("schema.nullability")
def test_an_identifier_field_takes_no_nulls(tmp_path):
    """Each start failed as if it would go better the next time, where the option was set that an error had named."""
    query, columns = Query(tmp_path), pa.schema([pa.field("id", pa.int64(), nullable=False)])
    query.run(pa.table({"id": [0]}, columns))
    with query.table().update_schema() as update:
        update.set_identifier_fields("id")
    nullable = pa.table({"id": [1]})
    widens = told("schema.nullability", lambda: query.run(nullable)).option("widen_types")
    query.forget_batch()
    told("schema.nullability", lambda: query.run(nullable, widen_types=widens)).says(
        "identifier", "Nothing was written"
    )
    query.forget_batch()
    query.run(nullable.cast(columns))
    with query.table().update_schema() as update:
        update.set_identifier_fields()
    query.run(nullable, widen_types=True)
    assert _rows(query) == 3


def test_a_transform_that_was_added_is_an_error_of_the_next_batch(tmp_path):
    """A file that has rows of several buckets would be in none that a reader looks into."""
    query = Query(tmp_path)

    def change(table) -> None:
        with table.update_spec() as spec:
            spec.add_field("id", BucketTransform(4), "id_bucket")

    _changed(query, change)
    told("iceberg.unsupported", lambda: query.run(*BATCHES[1:])).says("bucket[4]", "Nothing was written")
    assert _rows(query) == 2


def test_a_partition_that_was_added_is_heeded_by_the_next_batch(tmp_path):
    """Unless the option says which there are."""
    query, other = Query(tmp_path), Query(tmp_path, table="shop.others")

    def change(table) -> None:
        with table.update_spec() as spec:
            spec.add_identity("text")

    _changed(query, change)
    query.run(*BATCHES[1:])
    assert _rows(query) == 4
    assert sorted(file["spec_id"] for file in query.table().inspect.files().to_pylist()) == [0, 0, 1, 1]
    other.run(BATCHES[0], partition_by=["n"])
    other.meanwhile = lambda: change(other.table())
    told("table.created-differently", lambda: other.run(*BATCHES[1:], partition_by=["n"]))
    assert _rows(other) == 2


@pytest.mark.parametrize("what", ["encryption", "version"])
def test_a_format_that_is_not_written_here_is_an_error_of_the_next_batch(tmp_path, what):
    """The batch that was written already is committed as before the change, unless the catalog does not take it."""
    query = Query(tmp_path)

    def change(table) -> None:
        if what == "encryption":
            with table.transaction() as changing:
                changing.set_properties({"encryption.key-id": "key"})
            return
        metadata = json.loads(Path(table.metadata_location).read_text())
        upgraded = table.metadata_location.replace("/0000", "/0009")  # pyiceberg cannot upgrade a table so far
        Path(upgraded).write_text(json.dumps({**metadata, "format-version": 3, "next-row-id": 1}))
        table.catalog.drop_table(TABLE)
        table.catalog.register_table(TABLE, upgraded)

    _changed(query, change)
    said = told("iceberg.unsupported", lambda: query.run(*BATCHES[1:])).says("Nothing was written")
    said.says("encryption.key-id" if what == "encryption" else "format version is 3, expected 2")
    assert _rows(query) == (2 if what == "encryption" else 1)
    assert len(list(query.folder.rglob("*.parquet"))) == 2  # nothing of the third batch was begun


def test_metadata_that_pyiceberg_cannot_read_is_no_passing_failure(tmp_path):
    """Another engine has added a column of a type that it does not know. Each start said that the query goes on when it
    is started again."""
    query = Query(tmp_path)
    query.run(BATCHES[0])
    before = query.table().metadata_location
    metadata = json.loads(Path(before).read_text())
    metadata["schemas"][-1]["fields"].append({"id": 9, "name": "v", "required": False, "type": "variant"})
    after = before.replace("/0000", "/0009")
    Path(after).write_text(json.dumps(metadata | {"format-version": 3, "next-row-id": 0, "last-column-id": 9}))

    def points_to(location: str) -> None:
        with contextlib.closing(sqlite3.connect(query.folder / "catalog.db", isolation_level=None)) as catalog:
            catalog.execute("UPDATE iceberg_tables SET metadata_location = ?", (location,))

    points_to(after)
    told("iceberg.unsupported", lambda: query.run(BATCHES[1])).says("Nothing was written", "earlier metadata file")
    points_to(before)
    query.forget_batch()
    query.run(BATCHES[1])
    assert _rows(query) == 2


@pytest.mark.parametrize("running", [True, False])
def test_two_tables_that_are_swapped_by_name(tmp_path, running):
    """Of one plan, under the query or between two runs: an id is compared, so nothing is written into the other one."""
    journal = str(tmp_path / "journals")
    query, other = Query(tmp_path, journal=journal), Query(tmp_path, journal=journal, table="shop.others")
    query.run(*BATCHES[:2])
    other.run(BATCHES[0], application="other")

    def swap() -> None:
        catalog = query.sink().named().catalog
        catalog.rename_table(TABLE, "shop.between")
        catalog.rename_table("shop.others", TABLE)
        catalog.rename_table("shop.between", "shop.others")

    if running:
        query.meanwhile = swap
    else:
        swap()
    told("table.recreated", lambda: query.run(BATCHES[2])).says("Nothing was written")
    assert (_rows(query), _rows(other)) == (1, 2)
    swap()
    query.run(BATCHES[3])
    assert (_rows(query), _rows(other)) == (4 if running else 3, 1)
