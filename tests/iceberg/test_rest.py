"""A real REST catalog, which answers by Iceberg's own code: lost replies, rivals, its death, and tokens that expire.

The gate tries one of these, or another catalog (``test_catalogs``); the soak tries all.
"""

import uuid

import pyarrow as pa
import pytest
import requests
from pyiceberg.types import LongType

from tests.advice.following import told
from tests.iceberg.test_catalogs import check_catalog
from tests.iceberg.test_tables import Query

pytestmark = pytest.mark.in_turn("catalogs of Iceberg tables", 1)


@pytest.fixture
def query(iceberg_rest, tmp_path):
    """A query into a table of its own."""
    found = Query(tmp_path)
    found.properties = iceberg_rest.properties
    found.of_sink = {"table": f"db{uuid.uuid4().hex[:8]}.orders", "location": f"file://{tmp_path}/table"}
    yield found
    if not iceberg_rest.answers():
        iceberg_rest.start()


def of(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids)})


def ids(query: Query) -> list[int]:
    return sorted(row["id"] for row in query.found())


def test_starts_and_a_rollback(query):
    check_catalog(query)


@pytest.mark.parametrize("accident", ["cut", "409", "500", "502", "503"])
def test_a_commit_whose_reply_is_lost_is_found(iceberg_rest, query, accident):
    """The connection is closed; a proxy answers for the server; or a repeated request was refused."""
    query.run(of(1))
    query.meanwhile = lambda: iceberg_rest.ask(accident)
    query.run(of(2), of(3))
    assert ids(query) == [1, 2, 3] and len(query.table().metadata.snapshots) == 3


def test_a_table_whose_creation_was_not_answered_is_written(iceberg_rest, query):
    iceberg_rest.ask("cut")
    query.run(of(1))
    assert ids(query) == [1]


def test_a_rival_is_first(iceberg_rest, query):
    """It appends, and the schema and properties are changed, between the look at the table and the commit."""
    query.run(of(1))

    def rival() -> None:
        table = query.table()
        table.append(pa.table({"id": pa.array([100])}))
        with table.update_schema() as update:
            update.add_column("more", LongType())
        with table.transaction() as change:
            change.set_properties({"by": "a rival"})

    query.meanwhile = rival
    query.run(of(2), of(3))
    assert ids(query) == [1, 2, 3, 100]


def test_the_server_is_killed_and_comes_back(iceberg_rest, query):
    """Before the commit: the record waits in the journal for the next start."""
    query.run(of(1))
    query.meanwhile = iceberg_rest.kill
    told("testing.restarts", lambda: query.run(of(2)))  # each start asks, and is told that nobody answers
    iceberg_rest.start()
    query.run(of(3))
    assert ids(query) == [1, 2, 3]


def test_a_token_that_expires_is_renewed(iceberg_rest, query):
    """pyiceberg asks for another one with its credential, and the commit is made once."""
    query.run(of(1))
    query.meanwhile = lambda: iceberg_rest.ask("expire")
    query.run(of(2))
    assert ids(query) == [1, 2] and len(query.table().metadata.snapshots) == 2


def test_a_token_that_cannot_be_renewed_is_told(iceberg_rest, query):
    """With another one the query goes on."""

    def token() -> dict[str, str]:
        found = requests.post(f"{iceberg_rest.properties['uri']}/v1/oauth/tokens", timeout=120).json()["access_token"]
        return {"type": "rest", "uri": iceberg_rest.properties["uri"], "token": found}

    query.properties = token()
    query.run(of(1))
    query.meanwhile = lambda: iceberg_rest.ask("expire")
    told("iceberg.options", lambda: query.run(of(2)))
    query.properties = token()
    query.run(of(3))
    assert ids(query) == [1, 2, 3]
