"""Paimon's Java RESTCatalog and the option ``catalog`` on one server: the same entry, and each row read by its name."""

import pytest

from streamsink.format.schema import TableSchema
from streamsink.format.types import parse_ddl
from tests.catalogs.test_rest import ask
from tests.catalogs.world import Query
from tests.compat.java_catalogs import JavaCatalog

pytestmark = [pytest.mark.spark, pytest.mark.compat]


def test_the_entry_is_the_one_that_java_makes_and_java_reads_each_row_by_it(java, paimon_rest, tmp_path):
    """Of an external table Java's catalog takes the snapshots from the folder, where the writer puts them."""
    query = Query(tmp_path, "", catalog=paimon_rest.properties, table_options={"snapshot.num-retained.max": "70"})
    query.run(3, 5)
    theirs = JavaCatalog(java, paimon_rest.properties)
    fields = parse_ddl("id BIGINT, part STRING")
    options = {"snapshot.num-retained.max": "70", "path": f"file:{tmp_path}/theirs"}
    theirs.create(query.database, "theirs", TableSchema.create(fields, ("part",), options, None, 0))
    said = [ask(paimon_rest, "GET", f"/{query.database}/tables/{name}")[1] for name in ("orders", "theirs")]
    for each in said:
        for own in ("id", "name", "path"):
            del each[own]
    assert said[0] == said[1]
    assert theirs.columns(query.database, "orders") == ["id", "part"] and theirs.rows(query.database, "orders") == 5
    query.run(3, 5, 9)
    assert theirs.rows(query.database, "orders") == 9
    theirs.drop(query.database, "orders")
    assert query.rows() == list(range(9)), "the files of an external table stay"
    theirs.close()
