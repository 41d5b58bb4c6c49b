"""Commands for queries into other destinations, whose journals may lie in one folder, or in a database."""

import re
import shlex
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

import streamsink
from streamsink.databases import DatabaseSink
from streamsink.errors import StreamsinkError
from streamsink.sink import FileSink
from streamsink.storage.stores import Store, journal_within
from streamsink.testing.driver import SparkCheckpoint
from tests.cli.conftest import run, said
from tests.cli.lakes import PENDING, PUBLISHED, driver, dying

ENDS = [*PUBLISHED, PENDING]


def database(folder: Path, table: str, journal: str = "") -> DatabaseSink:
    """A table of SQLite; its journal is in the folder journals, or where it is said."""
    place = journal or str(folder / "journals")
    return DatabaseSink(f"sqlite:{folder}/shop.db", table=table, journal=place, create_table=True)


def dead(sink, application: str) -> None:
    """The query's driver has died with a record pending."""
    io = Store(sink.journal or sink.path, {}).open()
    dying(sink.path, SparkCheckpoint(application), ENDS, file_io=io, sink=sink, application=application)


def ids(folder: Path, table: str) -> list[int]:
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        return sorted(row[0] for row in connection.execute(f"SELECT id FROM {table}"))


@pytest.fixture
def shop(tmp_path, monkeypatch) -> Path:
    """Two tables of one database, ``orders`` and ``lines``, of two queries with their journals in one folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "shop_sinks", raising=False)  # of another folder
    orders, lines = (database(tmp_path, name) for name in ("orders", "lines"))
    dead(orders, "orders")
    dead(lines, "lines")
    (tmp_path / "shop_sinks.py").write_text(
        "from pathlib import Path\nfrom tests.cli.test_sinks import database\n"
        "orders, lines = (database(Path.cwd(), name) for name in ('orders', 'lines'))\n"
    )
    return tmp_path


def test_the_query_is_named_where_several_have_journals(shop):
    """Nothing is published, or found right, of a query that was not meant."""
    sink = ("any", "--sink", "shop_sinks:orders")
    for command in (("recover",), ("recover", "--yes"), ("recover", "--give-up", "--yes"), ("verify",)):
        assert "lines, orders" in run(command[0], *sink, *command[1:], code=2).stderr
    assert ids(shop, "orders") == ids(shop, "lines") == list(range(30))
    assert [each["kind"] for each in said("verify", *sink, "-a", "orders")["findings"]] == ["checkpoint.pending"]
    assert said("recover", *sink, "-a", "orders", "--yes")["recovered"][0]["checkpoints"] == [3]
    assert ids(shop, "orders") == list(range(40)) and ids(shop, "lines") == list(range(30))


def test_a_name_that_is_misspelt_is_refused(shop):
    """It is no query with nothing pending, and gets no journal."""
    for more in ((), ("--yes",), ("--give-up", "--yes")):
        refused = said("recover", "any", "--sink", "shop_sinks:orders", "-a", "ordres", *more, code=3)
        assert refused["error"]["kind"] == "journal.unknown"
    assert sorted(path.name for path in (shop / "journals" / "streamsink").iterdir()) == ["lines", "orders"]


def test_the_one_query_need_not_be_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dead(FileSink(str(tmp_path / "out")), "exports")
    (tmp_path / "one_sink.py").write_text("from streamsink.sink import FileSink\nsink = FileSink('out')\n")
    assert said("verify", "out", "--sink", "one_sink:sink")["findings"][0]["kind"] == "checkpoint.pending"
    [done] = said("recover", "out", "--sink", "one_sink:sink", "--yes")["recovered"]
    assert (done["application"], done["checkpoints"]) == ("exports", [3])


def _typed(text: str, sink: str) -> list[str]:
    """The command ``recover`` that a message names."""
    found = re.search(r"streamsink (recover [^')]+)", text)
    assert found, text
    return shlex.split(found[1].replace("MODULE:NAME", sink))


def test_what_an_error_of_a_database_says_is_typed_as_it_says_it(shop):
    """The path in it is that of the sink, a URL of the database, which is none of a table."""
    orders = database(shop, "orders")
    with pytest.raises(StreamsinkError) as refused:
        streamsink.retire(orders, "orders")
    assert refused.value.kind == "retire.pending"
    assert said(*_typed(str(refused.value), "shop_sinks:orders"))["recovered"][0]["checkpoints"] == [3]
    assert streamsink.retire(orders, "orders") and ids(shop, "orders") == list(range(40))
    next((shop / "journals" / "streamsink" / "lines" / "staging").rglob("*.arrow")).unlink()
    with pytest.raises(StreamsinkError) as gone:
        lines = driver("any", application="lines")
        lines.destination = lambda: database(shop, "lines")
        lines.run(Store(str(shop / "journals"), {}).open(), SparkCheckpoint("lines", ENDS, 3), ENDS)
    assert gone.value.kind == "pending.files-gone"
    assert said(*_typed(str(gone.value), "shop_sinks:lines"))["given_up"][0]["records"] == [4]


@pytest.fixture
def kept(tmp_path, monkeypatch) -> str:
    """The place of a journal in a database, whose query has a record pending."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "kept_sink", raising=False)  # of another folder
    place = f"sqlite:{tmp_path}/journals.db"
    dead(database(tmp_path, "orders", place), "orders")
    (tmp_path / "kept_sink.py").write_text(
        "from pathlib import Path\nfrom tests.cli.test_sinks import database\n"
        "sink = database(Path.cwd(), 'orders', f'sqlite:{Path.cwd()}/journals.db')\n"
    )
    return place


def test_a_journal_in_a_database_is_looked_at_and_recovered(kept, tmp_path):
    """By the commands that take the place of a journal in a folder."""
    assert len(said("pending", kept)["journals"][0]["pending"]) == 1 and said("accept", kept)["words"]
    assert said("recover", kept, "-a", "orders", "--yes", code=3)["error"]["kind"] == "sink.no-tables"
    [found] = said("doctor", kept, code=1)["findings"]
    words = shlex.split(found["command"].replace("MODULE:NAME", "kept_sink:sink"))[1:]
    assert said(*words, "--yes")["recovered"][0]["checkpoints"] == [3] and ids(tmp_path, "orders") == list(range(40))


def test_a_journal_in_a_database_is_discarded_and_restored_in_part(kept, tmp_path):
    """A record that was damaged comes back from a backup; a journal that is given up goes."""
    backup, record = f"sqlite:{tmp_path}/backup.db", f"{kept}/streamsink/orders/record-4.json"
    (tmp_path / "backup.db").write_bytes((tmp_path / "journals.db").read_bytes())
    with closing(sqlite3.connect(tmp_path / "journals.db")) as connection:
        connection.execute(
            "UPDATE streamsink_files SET data = substr(data, 1, 30) WHERE path = ?", (record[len(kept) :],)
        )
        connection.commit()
    assert said("pending", kept, code=1)["journals"][0]["pending"][0]["problem"]
    copy = record.replace(kept, backup)
    assert said("restore", record, "--from", copy, "--yes")["damaged"] == [record]
    assert said("recover", "any", "--sink", "kept_sink:sink", "--yes")["recovered"][0]["checkpoints"] == [3]
    assert "the journal of application 'orders'" in run("discard", f"{kept}/streamsink/orders", "--yes").stdout
    assert said("pending", kept, code=3)["error"]["kind"] == "journal.no-place"


@pytest.mark.parametrize("inner", ["", "/streamsink", "/streamsink/orders/record-4.json"])
def test_what_lies_in_a_server_s_database_is_known_by_its_path(inner):
    place = "postgresql://sink@db:5432/shop"
    assert journal_within(f"{place}{inner}") == (place, f"{place}{inner}")
