"""A table that a query writes among several: the journal of that query lies in the folder above, and is told of."""

import shlex
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import streamsink
from streamsink.cli.main import cli
from streamsink.errors import Misuse
from streamsink.options import RESTORE_AND_CONTINUE, SinkOptions
from streamsink.table.routed.rules import ROUTE, Routing
from streamsink.testing.driver import SparkCheckpoint
from streamsink.testing.many_driver import ManyTablesDriver
from tests.advice.following import follows, told
from tests.cli.conftest import run, said
from tests.cli.lakes import die_in_the_last_batch

SCHEMA = pa.schema([("id", pa.int64()), (ROUTE, pa.string())])
TABLES = ("orders", "clicks")
DONE, ALL = 6, 12


def _rows(start: int, end: int) -> pa.RecordBatch:
    numbers = list(range(start, end))
    return pa.record_batch([numbers, [TABLES[n % 2] for n in numbers]], schema=SCHEMA)


@pytest.fixture
def folder(tmp_path) -> Path:
    """Of two tables, whose query has recorded its second batch and has died."""
    warehouse = str(tmp_path / "shop.db")
    options = SinkOptions.of(warehouse, {"restore": RESTORE_AND_CONTINUE})
    routing = Routing.of(warehouse, dict.fromkeys(TABLES, {}), options, dead_letters=None, unrouted="fail")
    query = ManyTablesDriver(warehouse, SCHEMA, _rows, routing, options)
    die_in_the_last_batch(query, SparkCheckpoint("q1"), [DONE, ALL], "precommit.saved")
    return Path(warehouse)


def _ids(folder: Path) -> list[int]:
    return sorted(i for name in TABLES for i in streamsink.read_arrow(folder / name)["id"].to_pylist())


def test_what_the_query_has_pending_is_seen_from_each_table(folder):
    for name in TABLES:
        for named in ((), ("-a", "streamsink")):
            [journal] = said("pending", str(folder / name), *named)["journals"]
            assert (journal["path"], journal["of"], len(journal["pending"])) == (str(folder), "tables", 1)
    shown = run("pending", str(folder / "orders")).stdout
    assert f"'streamsink recover {folder} -a streamsink'" in shown


def test_the_command_that_the_doctor_of_a_table_names_publishes_it(folder):
    """In all tables; afterwards nothing is to be done."""
    [found] = said("doctor", str(folder / "orders"), code=1)["findings"]
    assert found["command"] == f"streamsink recover {folder} -a streamsink" and str(folder) in found["text"]
    run(*shlex.split(found["command"])[1:], "--yes")
    assert _ids(folder) == list(range(ALL))
    assert said("doctor", str(folder / "orders"))["findings"] == []
    assert "Nothing to do." in run("recover", str(folder / "orders")).stdout


def test_to_recover_one_of_the_tables_does_not_say_that_all_is_done(folder):
    """A record of several tables is published as a whole, by the path of their folder."""
    shown = run("recover", str(folder / "clicks"), code=1).stdout
    assert f"streamsink recover {folder} -a streamsink" in shown and "Nothing to do." not in shown
    done = said("recover", str(folder / "clicks"), "--yes", code=1)
    assert done["recovered"] == [] and done["above"] == [{"application": "streamsink", "path": str(folder)}]
    assert _ids(folder) == list(range(DONE))
    said("recover", str(folder), "--yes")
    assert said("recover", str(folder / "clicks"), "--yes")["above"] == [] and _ids(folder) == list(range(ALL))


@follows("journal.unknown")
@pytest.mark.parametrize("command", ["recover", "accept", "unlock"])
def test_the_name_of_the_query_at_one_of_the_tables_leads_to_their_folder(folder, command):
    """The error said that nobody has written under that name, though the table's own state names the query."""
    table = str(folder / "orders")

    def ask() -> None:
        error = said(command, table, "-a", "streamsink", code=3)["error"]
        raise Misuse(error["message"], kind=error["kind"])

    path = told("journal.unknown", ask).find(r"give the path (\S+), where its journal is")
    assert path == str(folder)
    assert "journal.unknown" not in CliRunner().invoke(cli, [command, path, "-a", "streamsink", "--json"]).stdout
    assert "own name" in said(command, table, "-a", "nobody", code=3)["error"]["message"]
