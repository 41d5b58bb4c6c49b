"""A table that the option ``catalog`` registers in a real Hive Metastore: when, as what, and what never happens."""

import contextlib
import os
import socket
import threading

import pytest

import streamsink
from streamsink.catalogs import registration
from streamsink.catalogs.catalog import REGISTERED, UNCHANGED, Named
from streamsink.catalogs.hive import HiveCatalog
from streamsink.errors import Misuse, Retryable
from streamsink.events import CheckpointPublished, TableNotRegistered, TableRegistered
from streamsink.faults import arm
from streamsink.format.types import parse_ddl
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table
from streamsink.testing.faults import InjectedCrash
from tests.catalogs.world import NARROW, WIDE, Door, Query, asking, columns
from tests.services.lossy import LossyRelay


@pytest.fixture
def uri(hive_metastore):
    return f"thrift://127.0.0.1:{hive_metastore.port}"


@pytest.fixture
def door(hive_metastore):
    made = Door(hive_metastore.port).open()
    yield made
    made.close()


def other_table(query, **differs):
    """Let the metastore have a table of Hive's own, or another one of Paimon's, under the name of the query's."""

    def make(client):
        types = client.types
        client.call(lambda c: c.create_database(types.Database(name=query.database, parameters={})))
        sd = types.StorageDescriptor(
            cols=[types.FieldSchema("id", "int", None)], serdeInfo=types.SerDeInfo(parameters={}), **differs.pop("sd")
        )
        made = types.Table(tableName=query.name, dbName=query.database, sd=sd, partitionKeys=[], **differs)
        client.call(lambda c: c.create_table(made))

    asking(query.uri, make)


def test_a_table_is_registered_when_it_is_created(uri, tmp_path):
    """With its place and columns, in a database that is made for it; what is there later is not written again."""
    query = Query(tmp_path, uri)
    query.run(3, 5)
    found = query.in_metastore()
    assert columns(found) == [("id", "bigint"), ("part", "string")]
    assert found.sd.location == f"file:{query.root}" and found.parameters["table_type"] == "PAIMON"
    assert [e.change for e in query.told(TableRegistered)] == ["registered"] and query.rows() == list(range(5))
    query.run(3, 5, 7)
    assert len(query.told(TableRegistered)) == 1 and query.in_metastore() == found


def test_a_table_that_is_there_already_is_registered_by_the_next_start(uri, tmp_path):
    query = Query(tmp_path, uri, catalog={})
    query.options["catalog"] = {}
    query.writing(NARROW)
    query.run(3)
    assert query.in_metastore() is None
    query.options["catalog"] = query.catalog
    query.writing(NARROW)
    query.run(3, 5)
    assert query.in_metastore() is not None and query.rows() == list(range(5))


def test_a_driver_that_died_before_it_registered_the_table_is_made_up_for(uri, tmp_path):
    query = Query(tmp_path, uri)

    def dies(step):
        if step == "table.created":
            raise InjectedCrash(step)

    arm(dies)
    try:
        with pytest.raises(InjectedCrash):
            query.run(3)
    finally:
        arm(None)
    assert query.in_metastore() is None
    query.run(3)
    assert query.in_metastore() is not None and query.rows() == [0, 1, 2]


def test_new_columns_reach_the_catalog_beside_the_batches(uri, tmp_path):
    """A name in upper case is one in lower case there, which is no difference that is written again and again."""
    query = Query(tmp_path, uri)
    query.run(3)
    query.writing(WIDE)
    query.run(3, 5)
    assert columns(query.in_metastore()) == [("id", "bigint"), ("part", "string"), ("note", "string")]
    assert [e.change for e in query.told(TableRegistered)] == ["updated"]
    query.run(3, 5, 8)
    assert len(query.told(TableRegistered)) == 1 and query.rows() == list(range(8))


def test_what_others_have_written_beside_it_stays(uri, tmp_path):
    """Statistics, an owner, parameters of other programs: an update changes columns and what is streamsink's."""
    query = Query(tmp_path, uri)
    query.run(3)
    before = query.in_metastore()
    before.parameters["comment of somebody"], before.owner = "mine", "somebody"
    asking(uri, lambda client: client.call(lambda c: c.alter_table(query.database, "orders", before)))
    query.writing(WIDE)
    query.run(3, 5)
    after = query.in_metastore()
    assert len(after.sd.cols) == 3
    assert (after.parameters["comment of somebody"], after.owner) == ("mine", "somebody")


@pytest.mark.parametrize(
    ("differs", "said"),
    [
        (
            {"sd": {"inputFormat": "org.apache.hadoop.mapred.TextInputFormat", "outputFormat": "x"}},
            r"another kind of table \(TextInputFormat\)",
        ),
        (
            {
                "sd": {
                    "inputFormat": "org.apache.paimon.hive.mapred.PaimonInputFormat",
                    "outputFormat": "org.apache.paimon.hive.mapred.PaimonOutputFormat",
                }
            },
            "a Paimon table at file:",
        ),
        ({"sd": {}, "tableType": "VIRTUAL_VIEW", "viewOriginalText": "select 1"}, "a view"),
    ],
    ids=["Hive's own", "another place", "a view"],
)
@pytest.mark.parametrize("is_there", [False, True], ids=["new table", "old table"])
def test_another_table_under_the_name_is_an_error_before_anything_is_written(uri, tmp_path, differs, said, is_there):
    query = Query(tmp_path, uri)
    if is_there:
        query.options["catalog"] = {}
        query.writing(NARROW).run(local_file_io(False), query.checkpoint, [3])
        query.options["catalog"] = query.catalog
        query.writing(NARROW)
    other_table(query, **differs)
    before = query.in_metastore()
    with pytest.raises(Misuse, match=f"has {said}.*expected this table, or none. Nothing was written") as refused:
        query.run(3, 5)
    assert refused.value.kind == "catalog.other-table" and query.in_metastore() == before
    assert os.path.exists(query.root) == is_there and (not is_there or query.rows() == [0, 1, 2])


def test_a_metastore_that_is_away_keeps_no_query_from_a_table_that_is_there(door, uri, tmp_path, monkeypatch):
    """It is told once, and the catalog has the table as soon as something is published behind the wait."""
    query = Query(tmp_path, door.uri)
    query.options["catalog"] = {}
    query.writing(NARROW).run(local_file_io(False), query.checkpoint, [3])
    query.options["catalog"] = query.catalog
    query.writing(NARROW)
    door.close()
    driven = query.start()
    for end in (5, 7):
        query.batch(driven, end)
    [told] = query.told(TableNotRegistered)
    assert told.failures == 1 and told.retry_ms == registration.RETRY_MS and "does not answer" in told.why
    monkeypatch.setattr(registration, "RETRY_MS", 0)
    query.batch(driven, 9)
    _until_idle()
    assert len(query.told(TableNotRegistered)) == 1, "the same reason is told once"
    door.open()
    query.batch(driven, 11)
    driven.close()
    assert [e.change for e in query.told(TableRegistered)] == ["registered"]
    assert Query.in_metastore(query) is not None and query.rows() == list(range(11))


def test_a_server_that_is_no_metastore_keeps_no_query_from_a_table_that_is_there(tmp_path):
    """It answers with bytes that are no text: that is no answer, and no error of another kind."""
    answer = b"\x80\x01\x00\x02\x00\x00\x00\x0dget_table_req\x00\x00\x00\x00\x0b\x00\x00\x00\x00\x00\x02\xff\xfe\x00"
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with contextlib.suppress(OSError):
                for _ in range(20):
                    with server.accept()[0] as connection:
                        connection.recv(1000)
                        connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        query = Query(tmp_path, f"thrift://127.0.0.1:{server.getsockname()[1]}")
        for catalog in ({}, query.catalog):
            query.options["catalog"] = catalog
            query.writing(NARROW).run(local_file_io(False), query.checkpoint, [3, 5][: 1 + bool(catalog)])
    [told] = query.told(TableNotRegistered)
    assert "does not answer, or has failed" in told.why and query.rows() == list(range(5))


def test_a_metastore_that_is_away_keeps_a_new_table_from_being_made(door, tmp_path):
    """Another table may have its name. Nothing is there then, and the same start goes through later."""
    query = Query(tmp_path, door.uri)
    door.close()
    with pytest.raises(Retryable, match="does not answer.*Nothing was written.*Start again") as refused:
        query.start()
    assert refused.value.kind == "catalog.unavailable" and not os.path.exists(query.root)
    door.open()
    query.run(3)
    assert query.in_metastore() is not None


def test_who_wants_the_catalog_at_each_start_says_so(door, tmp_path):
    query = Query(tmp_path, door.uri, catalog={"required": "true"})
    query.run(3)
    door.close()
    with pytest.raises(Retryable) as refused:
        query.start()
    assert refused.value.kind == "catalog.unavailable"
    door.open()
    query.run(3, 5)
    assert query.rows() == list(range(5))


def test_a_metastore_that_goes_away_never_ends_a_query(door, tmp_path, monkeypatch):
    """The table changes meanwhile; its new columns come later."""
    query = Query(tmp_path, door.uri)
    driven = query.start()
    query.batch(driven, 3)
    door.close()
    driven.close()
    query.writing(WIDE)
    driven = query.start()
    for end in (5, 7):
        query.batch(driven, end)
    _until_idle()
    assert query.rows() == list(range(7)) and query.told(TableNotRegistered)
    door.open()
    monkeypatch.setattr(registration, "RETRY_MS", 0)
    query.batch(driven, 9)
    driven.close()
    assert [name for name, _ in columns(query.in_metastore())] == ["id", "part", "note"]


def test_a_thread_that_cannot_be_had_fails_no_batch(uri, tmp_path, monkeypatch):
    """As while an interpreter ends. The next publishing registers."""
    query = Query(tmp_path, uri)
    query.run(3)
    query.writing(WIDE)
    driven = query.start()

    def refuse(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        query.batch(driven, 5)
    assert len(query.in_metastore().sd.cols) == 2
    query.batch(driven, 7)
    driven.close()
    assert len(query.in_metastore().sd.cols) == 3 and query.rows() == list(range(7))


def test_batches_ask_the_catalog_nothing(door, tmp_path):
    """A start asks twice; nothing else does as long as the columns stay."""
    query = Query(tmp_path, door.uri)
    driven = query.start()
    asked = door.calls
    for end in range(1, 12):
        query.batch(driven, end)
    driven.close()
    assert (asked, door.calls) == (2, 2) and len(query.told(CheckpointPublished)) == 11


def test_what_the_metastore_refuses_is_told_and_not_tried_again(uri, tmp_path):
    """Somebody has changed a column there into a type that the metastore lets nobody change back."""
    query = Query(tmp_path, uri)
    query.run(3)
    changed = query.in_metastore()
    changed.sd.cols[1].type = "array<int>"
    asking(uri, lambda client: _alter_anyhow(client, query, changed))
    driven = query.start()
    for end in (5, 7):
        query.batch(driven, end)
    driven.close()
    [told] = query.told(TableNotRegistered)
    assert told.retry_ms is None and "refuses the table" in told.why and query.rows() == list(range(7))


def _alter_anyhow(client, query, changed) -> None:
    """Hive itself compares types by place: the old table goes, and comes again with the other type."""
    client.call(lambda c: c.drop_table(query.database, query.name, False))
    client.call(lambda c: c.create_table(changed))


def test_a_reply_that_is_lost_is_found_out_later(hive_metastore, tmp_path):
    """The metastore has the table, and nobody heard it say so."""
    with LossyRelay(hive_metastore.port) as relay:
        query = Query(tmp_path, f"thrift://127.0.0.1:{relay.port}")
        catalog = HiveCatalog([("127.0.0.1", relay.port)], query.root)
        named = Named(query.root, query.database, "orders", f"file:{os.path.dirname(query.root)}")
        streamsink.create_table(query.root, "id BIGINT, part STRING")
        schema = open_table(local_file_io(False), query.root, for_writing=False).known_schema
        relay.to_lose = 0
        calls = []
        call = catalog._clients[0].call

        def losing(action, **more):
            calls.append(action)
            relay.to_lose = int(len(calls) == 4)  # a look, one for the database, its creation, and then the table's
            return call(action, **more)

        catalog._clients[0].call = losing
        with pytest.raises(Retryable, match="does not answer"):
            catalog.put(named, schema)
        assert relay.lost == 1 and query.in_metastore() is not None
        assert catalog.put(named, schema) == UNCHANGED


def test_who_comes_second_finds_what_the_first_has_made(hive_metastore, tmp_path):
    query = Query(tmp_path, f"thrift://127.0.0.1:{hive_metastore.port}")
    streamsink.create_table(query.root, "id BIGINT, part STRING")
    schema = open_table(local_file_io(False), query.root, for_writing=False).known_schema
    named, ready, said = Named(query.root, query.database, "orders"), threading.Barrier(4), []

    def put():
        catalog = HiveCatalog([("127.0.0.1", hive_metastore.port)], query.root)
        ready.wait()
        said.append(catalog.put(named, schema))

    threads = [threading.Thread(target=put) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(said) == [UNCHANGED] * 3 + [REGISTERED]


def test_the_first_server_that_answers_will_do(door, uri, tmp_path):
    door.close()
    query = Query(tmp_path, f"{door.uri},{uri}")
    query.run(3)
    query.uri = uri
    assert query.in_metastore() is not None


def test_a_location_may_stand_among_the_parameters(uri, tmp_path):
    """For stores that Hive itself cannot reach. The metastore then looks at no folder of the table."""
    query = Query(tmp_path, uri, catalog={"location-in-properties": "true"})
    query.run(3)
    found = query.in_metastore()
    assert found.parameters["paimon_location"] == f"file:{query.root}" and found.sd.location != f"file:{query.root}"
    query.run(3, 5)
    assert len(query.told(TableRegistered)) == 1


def test_a_database_is_made_only_where_that_is_wanted(uri, tmp_path):
    query = Query(tmp_path, uri, catalog={"create-database": "false"})
    with pytest.raises(Misuse, match="has no database.*Nothing was written.*Create the database") as refused:
        query.run(3)
    assert refused.value.kind == "catalog.no-database" and not os.path.exists(query.root)
    database = {"name": query.database, "parameters": {}}
    asking(uri, lambda client: client.call(lambda c: c.create_database(client.types.Database(**database))))
    query.run(3)
    assert query.in_metastore() is not None


@pytest.mark.parametrize("changes", [False, True], ids=["as it was", "with a new column"])
def test_a_table_that_was_dropped_in_the_catalog_stays_dropped_until_the_next_start(uri, tmp_path, changes):
    """Whoever dropped it there meant it; a start with the option means that it shall be there."""
    query = Query(tmp_path, uri)
    driven = query.start()
    query.batch(driven, 3)
    asking(uri, lambda client: client.call(lambda c: c.drop_table(query.database, "orders", False)))
    if changes:
        table = open_table(local_file_io(False), query.root, for_writing=True)
        table.evolve(parse_ddl("id BIGINT, part STRING, note STRING"), add_columns=True, widen_types=False)
    query.batch(driven, 5)
    driven.close()
    assert query.in_metastore() is None and query.rows() == list(range(5))
    query.run(3, 5, 7)
    assert query.in_metastore() is not None and query.rows() == list(range(7))


def _until_idle() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("streamsink-catalog"):
            thread.join(30)
