"""A table whose name the database has in other letters than the sink: it takes both for one, and what it remembers is
known under one of them."""

import pyarrow as pa
import pytest

from tests.advice.following import follows, told
from tests.databases.accidents import write
from tests.databases.places import Place

ROWS = pa.RecordBatch.from_pydict({"id": pa.array([1, 2], pa.int64())})
MORE = pa.RecordBatch.from_pydict({"id": pa.array([3, 4], pa.int64())})


@pytest.fixture
def sqlite(tmp_path) -> Place:
    return Place("sqlite", None, tmp_path)


def _names(place: Place) -> list[str]:
    return [name for (name,) in place.ask("SELECT name FROM sqlite_master WHERE type = 'table'")]


def _ids(place: Place) -> list[int]:
    return [number for (number,) in place.ask("SELECT id FROM orders ORDER BY id")]


@follows("database.name")
@pytest.mark.parametrize("create_table", [True, False])
def test_a_table_that_is_there_in_other_letters(create_table, sqlite):
    """Formerly the database refused to create it, and the error spoke of the URL, the user and their rights."""
    sqlite.do("CREATE TABLE Orders (id INTEGER)")
    said = told("database.name", lambda: write(sqlite, ROWS, table="orders", create_table=create_table))
    said.says("has the table as 'Orders'", "Nothing was written")
    assert _names(sqlite) == ["Orders"], "tables of ours were made before the error"
    table = said.find(r"table='([^']*)'")
    journal = write(sqlite, ROWS, table=table, create_table=create_table)
    write(sqlite, ROWS, MORE, journal=journal, table=table, create_table=create_table)
    assert _ids(sqlite) == [1, 2, 3, 4]


@follows("database.name")
def test_a_table_that_was_renamed_since_it_was_written(sqlite):
    """Under its new name nothing would be known of what is in it, so it gets the name that it had."""
    journal = write(sqlite, ROWS, table="orders")
    for old, new in (("orders", "between"), ("between", "Orders")):
        sqlite.do(f"ALTER TABLE {old} RENAME TO {new}")
    said = told("database.name", lambda: write(sqlite, ROWS, MORE, journal=journal, table="orders"))
    said.says("As 'orders' queries have written it (streamsink)", "rename it back, by way of a third name")
    assert "table=" not in said.message
    for old, new in (("Orders", "between"), ("between", "orders")):
        sqlite.do(f"ALTER TABLE {old} RENAME TO {new}")
    write(sqlite, ROWS, MORE, journal=journal, table="orders")
    assert _ids(sqlite) == [1, 2, 3, 4]
