"""A table that is spelled in two ways: its name in other letters than the database has, to which both are one; or its
place. What the database remembers of it is known under one of them."""

import pyarrow as pa
import pytest

from streamsink.databases import DatabaseSink
from streamsink.sink import FanOut, FileSink
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
    for old, new in (("orders", "third"), ("third", "Orders")):
        sqlite.do(f"ALTER TABLE {old} RENAME TO {new}")
    said = told("database.name", lambda: write(sqlite, ROWS, MORE, journal=journal, table="orders"))
    said.says("As 'orders' queries have written it (streamsink)", "rename it back, by way of a third name")
    assert "table=" not in said.message
    for old, new in (("Orders", "third"), ("third", "orders")):
        sqlite.do(f"ALTER TABLE {old} RENAME TO {new}")
    write(sqlite, ROWS, MORE, journal=journal, table="orders")
    assert _ids(sqlite) == [1, 2, 3, 4]


def _spelled(folder) -> dict[str, tuple]:
    """Two destinations that are one, each time."""
    there, linked = f"{folder}/out", f"{folder}/link/out"
    (folder / "link").symlink_to(folder)

    def of(file, table="rows", **more):
        return DatabaseSink(f"sqlite:{file}", table, **more)

    def on_server(url):
        return DatabaseSink(url, "rows", user="etl")

    return {
        "a link": (of(f"{there}.db"), of(f"{linked}.db")),
        "dots": (of(f"{there}.db"), of(f"{folder}/x/../out.db")),
        "letters": (of("/x.db"), of("/x.db", "Rows")),
        "the schema": (of("/x.db"), of("/x.db", schema="main")),
        "names of sinks": (of("/x.db", name="a"), of("/x.db", name="b")),
        "a default port": (on_server("postgresql://DB.local/shop"), on_server("postgresql://db.local:5432/shop")),
        "MariaDB": (on_server("mysql://db/shop"), on_server("mariadb://db:3306/shop")),
        "a folder's link": (FileSink(there), FileSink(linked)),
    }


@follows("fan-out.same-destination")
def test_one_table_is_one_destination_of_a_fan_out(tmp_path):
    """Formerly one table of SQLite by two paths got each row twice before it was noticed."""
    journal = str(tmp_path / "journal")
    for a, b in _spelled(tmp_path).values():
        said = told("fan-out.same-destination", lambda a=a, b=b: FanOut({"a": a, "b": b}, journal=journal))
        said.says("'a'", "'b'", "Nothing was written", "If they are one destination, name it once")
        FanOut({"a": a}, journal=journal)
    apart = DatabaseSink("sqlite:/x.db", "rows"), DatabaseSink("sqlite:/x.db", "lines")
    FanOut(dict(zip("ab", apart)), journal=journal)
    assert not (tmp_path / "journal").exists()
