"""A table that the option ``catalog`` registers in Paimon's REST catalog, and what that one cannot be told."""

import http.client
import json
import os
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from streamsink import maintenance
from streamsink.errors import Misuse, Retryable
from streamsink.events import TableNotRegistered, TableRegistered
from tests.advice.following import Advice, follows
from tests.catalogs.world import NARROW, WIDE, Query
from tests.services.paimon_rest import PREFIX, TOKEN


def ask(server, method, path, body=None):
    """(status, answer) of the server's own API."""
    connection = http.client.HTTPConnection(server.uri.removeprefix("http://"), timeout=30)
    data = None if body is None else json.dumps(body)
    connection.request(method, f"/v1/{PREFIX}/databases{path}", data, {"Authorization": f"Bearer {TOKEN}"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if text else {}


def found(server, query):
    status, said = ask(server, "GET", f"/{query.database}/tables/{query.name}")
    return said if status == 200 else None


@pytest.fixture
def query(paimon_rest, tmp_path):
    return Query(tmp_path, "", catalog=paimon_rest.properties)


def test_a_table_is_registered_as_an_external_one(paimon_rest, query):
    """Its snapshots are its writer's then, and a drop in the catalog leaves its files alone."""
    query.run(3, 5)
    said = found(paimon_rest, query)
    assert (said["path"], said["isExternal"]) == (f"file:{query.root}", True)
    assert [(f["name"], f["type"]) for f in said["schema"]["fields"]] == [("id", "BIGINT"), ("part", "STRING")]
    assert said["schema"]["partitionKeys"] == ["part"]
    assert [e.change for e in query.told(TableRegistered)] == ["registered"] and query.rows() == list(range(5))
    query.run(3, 5, 7)
    assert len(query.told(TableRegistered)) == 1 and found(paimon_rest, query) == said


def test_a_table_that_the_catalog_commits_itself_is_refused(paimon_rest, query):
    """A snapshot that is named in its folder would be none for its readers."""
    ask(paimon_rest, "POST", "", {"name": query.database, "options": {}})
    schema = {
        "fields": [{"id": 0, "name": "id", "type": "BIGINT"}],
        "partitionKeys": [],
        "primaryKeys": [],
        "options": {},
    }
    identifier = {"database": query.database, "object": "orders"}
    ask(paimon_rest, "POST", f"/{query.database}/tables", {"identifier": identifier, "schema": schema})
    assert found(paimon_rest, query)["isExternal"] is False
    with pytest.raises(Misuse, match="whose snapshots the catalog itself commits.*Nothing was written") as refused:
        query.run(3)
    assert refused.value.kind == "catalog.other-table" and not os.path.exists(query.root)


def test_another_place_under_the_name_is_refused(query, paimon_rest, tmp_path):
    other = Query(tmp_path / "other", "", catalog=paimon_rest.properties)
    other.database = query.database
    other.root = f"{tmp_path}/other/{query.database}.db/orders"
    other.writing(NARROW)
    other.run(2)
    with pytest.raises(Misuse, match=f"a Paimon table at file:{other.root}.*Nothing was written") as refused:
        query.run(3)
    assert refused.value.kind == "catalog.other-table" and not os.path.exists(query.root)


@pytest.mark.parametrize("told_to", ["repair it", "repair it where nothing changed"])
def test_a_table_that_was_moved_gets_an_entry_with_its_place(query, paimon_rest, tmp_path, told_to):
    """The catalog takes no other place, so the entry comes anew. What is external loses no file by that."""
    query.run(3)
    before = query.root
    if told_to == "repair it":
        query.root = f"{tmp_path}/moved/{query.database}.db/orders"
        shutil.copytree(before, query.root)
    given = {"catalog": query.catalog, "moved_from": f"file:{before}"}
    change = "updated" if query.root != before else ""
    assert maintenance.repair(query.root, dry_run=True, **given) == change
    assert found(paimon_rest, query)["path"] == f"file:{before}"
    assert maintenance.repair(query.root, **given) == change and os.path.exists(f"{before}/schema/schema-0")
    said = found(paimon_rest, query)
    assert (said["path"], said["isExternal"]) == (f"file:{query.root}", True)
    query.writing(NARROW)
    query.run(3, 5)
    assert query.rows() == list(range(5))


@follows("catalog.refused")
def test_new_columns_are_told_of_and_come_with_a_new_entry(paimon_rest, query):
    """The catalog takes no other columns of an external table. The message says what does: followed to the letter."""
    query.run(3)
    query.writing(WIDE)
    query.run(3, 5)
    [told] = query.told(TableNotRegistered)
    assert told.retry_ms is None and query.rows() == list(range(5))
    said = SimpleNamespace(kind="catalog.refused", message=told.why)
    Advice(said).says("Drop the entry there, which leaves the files alone, and start the query again")
    assert len(found(paimon_rest, query)["schema"]["fields"]) == 2
    ask(paimon_rest, "DELETE", f"/{query.database}/tables/orders")
    query.run(3, 5, 7)
    assert len(found(paimon_rest, query)["schema"]["fields"]) == 3 and query.rows() == list(range(7))


def test_a_wrong_token_is_a_catalog_that_does_not_answer(paimon_rest, query):
    """It keeps no query from a table that is there, and no message says it."""
    query.options["catalog"] = {**query.catalog, "token": "not-the-token"}
    query.writing(NARROW)
    with pytest.raises(Retryable, match="HTTP 401.*Nothing was written") as refused:
        query.start()
    assert refused.value.kind == "catalog.unavailable" and "not-the-token" not in str(refused.value)
    assert "not-the-token" not in repr(query.driver.options)
    query.options["catalog"] = query.catalog
    query.writing(NARROW)
    query.run(3)
    query.options["catalog"] = {**query.catalog, "token": "not-the-token"}
    query.writing(NARROW)
    query.run(3, 5)
    [told] = query.told(TableNotRegistered)
    assert "HTTP 401" in told.why and "not-the-token" not in told.why and query.rows() == list(range(5))


def test_a_database_is_made_only_where_that_is_wanted(paimon_rest, query):
    query.options["catalog"] = {**query.catalog, "create-database": "false"}
    query.writing(NARROW)
    with pytest.raises(Misuse) as refused:
        query.run(3)
    assert refused.value.kind == "catalog.no-database" and not os.path.exists(query.root)
    ask(paimon_rest, "POST", "", {"name": query.database, "options": {}})
    query.run(3)
    assert found(paimon_rest, query)


def test_the_token_follows_no_redirect(tmp_path):
    """It would be told to whoever the first server names."""
    asked = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
            self.end_headers()

        def log_message(self, *_):
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{server.server_port}"
        query = Query(tmp_path, "", catalog={"metastore": "rest", "uri": uri, "token": "secret"})
        with pytest.raises(Retryable, match="HTTP 302"):
            query.start()
        server.shutdown()
    assert asked == ["/v1/config"]


@pytest.mark.parametrize(
    "text", [b"[]", b"null", b'{"path": 5}', b'{"schema": []}', b"\xff\xfe", b"[" * 100_000, b"<html>"]
)
def test_a_server_that_is_no_catalog_is_one_that_does_not_answer(tmp_path, text):
    """Such as a proxy's page under a wrong uri. What it says is no table of another kind either."""

    class Other(BaseHTTPRequestHandler):
        def do_GET(self):
            answer = b"{}" if "/config" in self.path else text
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        query = Query(tmp_path, "", catalog={"metastore": "rest", "uri": f"http://127.0.0.1:{server.server_port}"})
        for catalog in ({}, query.catalog):
            query.options["catalog"] = catalog
            query.writing(NARROW)
            query.run(*[3, 5][: 1 + bool(catalog)])
        server.shutdown()
    [told] = query.told(TableNotRegistered)
    assert "does not answer, or has failed" in told.why and query.rows() == list(range(5))
