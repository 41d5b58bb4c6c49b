"""A journal in a database: the same journal in another place, with the same promises."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

import streamsink
from streamsink.cli.main import cli
from streamsink.clock import Clock, IdSource
from streamsink.errors import Misuse
from streamsink.journal.file_journal import FileJournal
from streamsink.sink import TwoPhaseCommitSink, to_sink
from streamsink.spark.explain import explain
from streamsink.storage.database import DatabaseCalls, DatabaseFileIO
from streamsink.storage.stores import Store, journal_place
from streamsink.testing.journal_conformance import APPLICATION, RETAIN
from tests.advice.following import advice, follows, told
from tests.services import postgres
from tests.sinks.shown import shown
from tests.storage.back_ends import DATABASES, back_end


def test_the_journal_passes_over_a_databases_calls(tmp_path):
    """Beside the suite, which dies at each call of a store in memory: records, marks and epochs are there again."""
    place = f"sqlite:{tmp_path}/journal.db"
    for epoch in (1, 2):
        io = DatabaseFileIO(DatabaseCalls(place, {}), IdSource().new_id)
        journal = FileJournal(io, place, APPLICATION, RETAIN)
        assert journal.claim("query", 0).epoch == epoch
        journal.release()


def test_a_path_of_the_destination_is_refused(tmp_path):
    """A sink that writes its rows through the store of the journal is told so, and does not look for its folder."""
    place = f"sqlite:{tmp_path}/journal.db"
    io = DatabaseFileIO(DatabaseCalls(place, {}), IdSource().new_id)
    for act in (lambda: io.create_if_absent("/elsewhere/a", b""), lambda: io.exists("/elsewhere/a")):
        with pytest.raises(PermissionError, match="holds the journal"):
            act()


@pytest.mark.parametrize("kind", DATABASES)
def test_what_is_there_is_there_for_another_process(kind, request):
    made = back_end(kind, request)
    io = made.io()
    io.create_if_absent(f"{made.root}/a/b", b"1")
    other = Store(journal_place(made.place), made.options).open()
    assert other.read(f"{made.root}/a/b") == b"1"
    assert [entry.name for entry in other.entries(made.root)] == ["a"]


def test_a_database_that_was_moved_holds_the_same_journal(tmp_path):
    """A name is no identity: the file of SQLite is somewhere else now."""
    first, second = (f"sqlite:{tmp_path}/{name}.db" for name in ("first", "second"))
    Store(first, {}).open().create_if_absent(f"{first}/streamsink/a/record-1.json", b"1")
    (tmp_path / "first.db").rename(tmp_path / "second.db")
    io = Store(second, {}).open()
    assert io.read(f"{second}/streamsink/a/record-1.json") == b"1"
    assert io.create_if_absent(f"{second}/streamsink/a/record-1.json", b"2") is False
    assert [entry.name for entry in io.entries(second)] == ["streamsink"] and io.names(f"{second}/streamsink") == ["a"]


def test_a_server_with_another_address_holds_the_same_journal(request):
    """A failover, or another user: the records are there, and their names are taken."""
    made = back_end("postgresql", request)
    made.io().create_if_absent(f"{made.root}/record-1.json", b"1")
    place = made.place.replace(postgres.LOOPBACK, "localhost")
    io, root = Store(place, made.options).open(), made.root.replace(made.place, place)
    assert place != made.place and io.read(f"{root}/record-1.json") == b"1"
    assert io.create_if_absent(f"{root}/record-1.json", b"2") is False


@pytest.mark.parametrize("kind", DATABASES)
def test_after_a_lost_connection_the_next_call_connects_anew(kind, request):
    made = back_end(kind, request)
    io = made.io()
    io.create_if_absent(f"{made.root}/a", b"1")
    made.calls._connection.close()
    with pytest.raises(OSError):
        io.read(f"{made.root}/a")
    assert io.read(f"{made.root}/a") == b"1"


class _Later(Clock):
    """Time that passes while nothing is asked."""

    passed_ms = 0.0

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self.passed_ms


@pytest.mark.parametrize("kind", DATABASES)
def test_a_connection_that_ended_while_nothing_was_asked_fails_no_call(kind, request):
    """Servers and what stands between end idle connections: a batch an hour would fail each time."""
    made, clock = back_end(kind, request), _Later()
    calls = DatabaseCalls(made.place, made.options, clock)
    io = DatabaseFileIO(calls, IdSource().new_id)
    io.create_if_absent(f"{made.root}/a", b"1")
    if kind == "postgresql":
        (ended,) = calls._connection.execute("SELECT pg_backend_pid()").fetchone()
        other = calls._dialect.connect()
        other.execute("SELECT pg_terminate_backend(%s, 10000)", (ended,))
        other.close()
    else:
        calls._connection.close()
    clock.passed_ms = 60_000.0
    assert io.read(f"{made.root}/a") == b"1"


def test_a_server_that_is_killed_keeps_what_it_has_said(tmp_path_factory):
    """The next call after its start goes on."""
    with postgres.Postgres(tmp_path_factory.mktemp("postgres")) as server:
        place = f"postgresql://{postgres.USER}@{postgres.LOOPBACK}:{server.port}/{postgres.DATABASE}"
        io = Store(place, {"password": postgres.PASSWORD}).open()
        assert io.create_if_absent(f"{place}/a/record", b"1")
        server.kill()
        with pytest.raises(OSError):
            io.read(f"{place}/a/record")
        server.start()
        assert io.create_if_absent(f"{place}/a/record", b"2") is False
        assert io.read(f"{place}/a/record") == b"1"


@follows("journal.place")
@pytest.mark.parametrize(
    ("wrong", "way_on"),
    [
        ("postgresql://me:hidden@host/db", "store_options={'password': ...}"),
        ("postgresql://host", "postgresql://user@host:port/database"),
        ("postgresql://host/db?sslmode=require", "postgresql://user@host:port/database"),
        ("sqlite:", "sqlite:/path/of/a/file"),
    ],
)
def test_a_place_that_is_none_is_refused(wrong, way_on):
    said = told("journal.place", lambda: to_sink(shown("TWO_PHASE_COMMIT_SINK.md").JsonLines("/rows", journal=wrong)))
    assert "hidden" not in said.says(way_on).message


def test_no_table_lies_in_a_database():
    for place in ("postgresql://host/db", "sqlite:/tmp/db", "sqlite:db"):
        with pytest.raises(Misuse) as refused:
            streamsink.to_table(place)
        assert refused.value.kind == "table.scheme"


def test_a_password_is_in_no_message(request):
    made = back_end("postgresql", request)
    calls = DatabaseCalls(made.place, {"password": "not-the-right-one"})
    with pytest.raises(OSError) as refused:
        calls.read(f"{made.place}/a")
    assert "not-the-right-one" not in str(refused.value) and "not-the-right-one" not in repr(
        Store(made.place, {"password": "not-the-right-one"})
    )


@follows("storage.unreachable", "storage.denied")
@pytest.mark.parametrize(
    ("wrong", "kind"),
    [(each, "storage.unreachable") for each in ("port", "password", "database", "folder")]
    + [("rights", "storage.denied")],
)
def test_a_journal_that_cannot_be_had_is_told_with_its_address(wrong, kind, request, tmp_path):
    """What to do was not said, nor that it is the journal: an error of input and output, with what libpq says."""
    made = back_end("sqlite" if wrong == "folder" else "postgresql", request)
    place, options = made.place, dict(made.options)
    if wrong == "port":
        place = re.sub(r":\d+/", ":1/", place)
    elif wrong == "password":
        options["password"] = "wrong"
    elif wrong == "database":
        place += "x"
    elif wrong == "rights":
        role = f"r{tmp_path.stat().st_ino}"
        with made.calls._dialect.connect() as other:
            other.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{postgres.PASSWORD}'")
        place = place.replace(f"{postgres.USER}@", f"{role}@")
    else:
        place = f"sqlite:{tmp_path}/none/journal.db"
    with pytest.raises(OSError) as failed:
        DatabaseCalls(place, options).read(f"{place}/a")
    said = advice(explain("/lake/out", failed.value), kind)
    said.says(
        f"({place})", {"rights": "streamsink_files", "folder": "folder of the journal's file"}.get(wrong, "PGPASSFILE")
    )
    given = [part for pair in options.items() for part in ("--store-option", "=".join(pair))]
    done = CliRunner().invoke(cli, ["pending", place, *given, "--json"])
    assert json.loads(done.stdout)["error"]["kind"] == kind and place in done.stdout
    assert made.io().create_if_absent(f"{made.root}/a", b"1")


@dataclass(frozen=True)
class Folder(TwoPhaseCommitSink[str]):
    """Rows in files of a local folder, which all tasks here share. A transaction is a file with a hidden name."""

    path: str
    journal: str

    def begin_transaction(self, context):
        return f"{self.path}/.{context.name}"

    def invoke(self, transaction, rows, context):
        with open(transaction, "a") as file:
            file.writelines(f"{row}\n" for row in rows.column(0).to_pylist())

    def pre_commit(self, transaction, context):
        """This test takes no power away."""

    def commit(self, transaction, context):
        if os.path.exists(transaction):
            os.rename(transaction, f"{self.path}/{context.name}")

    def abort(self, transaction, context):
        self.recover_and_abort(context)

    def recover_and_abort(self, context):
        Path(f"{self.path}/.{context.name}").unlink(missing_ok=True)


@pytest.mark.spark
@pytest.mark.parametrize("kind", DATABASES)
def test_a_query_keeps_its_journal_there(kind, request, spark, tmp_path):
    """Rows are written by tasks, which announce their transactions in the database."""
    made = back_end(kind, request)
    for name in ("in", "rows"):
        (tmp_path / name).mkdir()
    for number in range(2):
        (tmp_path / "in" / f"{number}.json").write_text(f'{{"id": {number}}}\n')
    sink = to_sink(
        Folder(str(tmp_path / "rows"), made.place), store_options=made.options, driver_max_rows=0, application="in-db"
    )
    frame = spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    lines = [line for file in (tmp_path / "rows").iterdir() for line in file.read_text().splitlines()]
    assert sorted(map(int, lines)) == [0, 1]
    names = [entry.name for entry in made.io().entries(f"{made.place}/streamsink/in-db")]
    assert {"record-1.json", "record-2.json", "done-2"} <= set(names)
