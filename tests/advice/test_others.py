"""Advice of errors of S3 and HDFS, of drivers that were superseded,
of rows without a table, and of files that only readers meet."""

import copy
import sys
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamsink
from streamsink import faults
from streamsink.clock import IdSource
from streamsink.errors import Conflict, StreamsinkError
from streamsink.format import manifest
from streamsink.format.types import parse_ddl
from streamsink.options import SinkOptions
from streamsink.protocol import committable
from streamsink.protocol.committable import Batch
from streamsink.protocol.positions import SourceRange
from streamsink.sinks.paimon.row_positions import ranges_of
from streamsink.storage import s3_client
from streamsink.storage.file_io import FileIO
from streamsink.table.read.scan import read_arrow
from streamsink.table.routed.routed_writer import RoutedWriter
from streamsink.table.routed.rules import ROUTE, Routing
from streamsink.table.table import open_table
from streamsink.table.write.position_ranges import MOST_PARTITIONS
from streamsink.testing.faults import arm
from streamsink.testing.memory import MemoryCalls
from tests.advice.accidents import damage, other_rows, put_back, take
from tests.advice.following import advice, follows, told
from tests.crash.giving_up import ENDS
from tests.crash.many_world import ROOT as WAREHOUSE
from tests.crash.many_world import RULES, ManyWorld, check_complete
from tests.crash.world import World, expected, memory_world
from tests.services.yarn import NAME, by_name, write_settings

PLAIN = {"restore": "restore-and-continue"}
ROOT = "/lake/shop.db/orders"


# -- drivers -------------------------------------------------------------------------------------------------------


@follows("writer.fenced")
def test_a_driver_that_was_superseded():
    """It is stopped, as the error says. The newer driver has written everything."""
    world = memory_world(**PLAIN)
    world.run(boundaries=ENDS[:1])
    sink = world.driver.start(world.file_io(world.calls), world.checkpoint)
    sleeper = copy.deepcopy(world.checkpoint)
    sleeper.ends = list(ENDS)

    def newer() -> None:
        faults.arm(None)
        world.run(boundaries=ENDS)

    arm("precommit.before_record", 1, newer)
    said = told("writer.fenced", lambda: sink.batch(world.driver.describe(sleeper, 1)))
    said.says("this driver writes nothing more. Nothing is lost")
    sink.close()
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


@follows("publish.expired-meanwhile")
def test_a_snapshot_that_expired_before_it_was_looked_at():
    """The next start finds that it was published."""

    class Slept(FileIO):
        slept = False

        def create_if_absent(self, path, data, unique="", **prepared):
            done = super().create_if_absent(path, data, unique, **prepared)
            if path.endswith("/snapshot-2") and not Slept.slept:
                Slept.slept = True
                others = World(world.calls, ROOT, application="others", **PLAIN)
                rows = others.driver.rows
                others.driver.rows = lambda start, end: other_rows(rows(start, end))
                others.run(boundaries=(1, 2))
                for number in (1, 2):
                    take(world, f"{ROOT}/snapshot/snapshot-{number}")
            return done

    world = World(MemoryCalls(), ROOT, make_io=lambda over: Slept(over, IdSource().new_id), **PLAIN)
    with pytest.raises(StreamsinkError) as told:
        world.driver._run_once(world.file_io(world.calls), world.checkpoint, ENDS)
    advice(told.value, "publish.expired-meanwhile").says("the next start looks whether it was published")
    world.run(boundaries=ENDS)
    assert [i for i in world.ids() if i < 1000] == expected(ENDS)


# -- several tables ------------------------------------------------------------------------------------------------


@follows("route.null", "route.unknown")
@pytest.mark.parametrize("kind, numbers", [("route.null", [5]), ("route.unknown", [4])])
@pytest.mark.parametrize("way", ["filtered", "dead-letter", "rule"])
def test_rows_without_a_table(kind, numbers, way):
    """They are filtered, or become dead letters; for a name that no rule covers, a rule is added."""
    world = ManyWorld(**PLAIN)
    rows, rules = world.driver.rows, RULES

    def route(rules, unrouted):
        world.driver.routing = Routing.of(
            WAREHOUSE, rules, world.driver.options, dead_letters="rejected", unrouted=unrouted
        )

    names = {"route.null": None, "route.unknown": "unknown"}
    world.driver.rows = lambda start, end: _routed(rows(start, end), dict.fromkeys(numbers, names[kind]))
    route(rules, "fail")
    said = told(kind, world.run)
    assert world.rows() == [] and WAREHOUSE in said.message
    if way == "dead-letter":
        route(rules, said.option("unrouted"))
    elif way == "rule" and kind == "route.unknown":
        said.says("Add a rule")
        route({**rules, "unknown": {}}, "fail")
    else:
        said.says("filter them in the query")
        world.driver.rows = lambda start, end: _routed(rows(start, end), dict.fromkeys(numbers)).filter(
            pa.array([n not in numbers for n in range(start, end)], pa.bool_())
        )
    world.run()
    found = sorted(number for _, number, _ in world.rows())
    there = sorted(
        set(range(18)) - (set(numbers) if way == "filtered" or way == "rule" and kind == "route.null" else set())
    )
    unknown = [row["id"] for row in _read(world, "unknown")]
    assert sorted(found + unknown) == there


def _routed(batch, changed: dict) -> pa.RecordBatch:
    """All rows go to one table except these."""
    at = batch.schema.get_field_index(ROUTE)
    names = [changed.get(n, "a") for n in batch.column("id").to_pylist()]
    return batch.set_column(at, batch.schema.field(at), pa.array(names, pa.string()))


def _read(world, name: str) -> list[dict]:
    table = world.table(name)
    return read_arrow(table).to_pylist() if table else []


@follows("tables.count")
def test_rows_that_got_lost_on_the_way_are_replayed(monkeypatch):
    """Nothing was recorded, and the restarted query writes the batch."""
    world = ManyWorld(**PLAIN)
    routed = RoutedWriter._routed
    with monkeypatch.context() as patch:
        patch.setattr(
            RoutedWriter, "_routed", lambda self, name, rows, target: routed(self, name, rows.slice(1), target)
        )
        told("tables.count", world.run).says(
            "Nothing was recorded or published", "the batch is replayed after a restart"
        )
    world.run()
    check_complete(world.rows())


# -- positions -----------------------------------------------------------------------------------------------------


@follows("positions.partitions")
def test_a_partition_of_too_high_a_number():
    batch = Batch(7, "query", "run", (SourceRange(None, {"a": {str(MOST_PARTITIONS): 10, "0": 10}}),))
    columns = ("topic", "partition", "offset")

    def check(given):
        return ranges_of(ROOT, batch, SinkOptions(position_columns=given))

    said = told("positions.partitions", lambda: check(columns))
    assert said.find(r"Leave (\w+) out, and drop the three columns in the query") == "position_columns"
    assert check(()) is None


# -- files that a reader meets -------------------------------------------------------------------------------------


@follows("data.rows")
def test_a_data_file_with_other_rows_is_restored():
    world = memory_world(**PLAIN)
    world.run(boundaries=ENDS)
    path = min(p for p in world.calls._names if "/part=" in p and p.endswith(".parquet"))
    sink = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(world.calls._names[path].data)).slice(1), sink)
    whole = damage(world, path, sink.getvalue().to_pybytes())
    said = told("data.rows", world.ids).says("Restore it from a backup")
    put_back(world, said.find(r"(/\S+\.parquet)"), whole)
    assert world.ids() == expected(ENDS)


@follows("data.columns")
def test_a_data_file_that_lacks_a_column_is_restored():
    world = memory_world(**PLAIN)
    world.run(boundaries=ENDS)
    path = min(p for p in world.calls._names if "/part=" in p and p.endswith(".parquet"))
    sink = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(world.calls._names[path].data)).drop(["id"]), sink)
    whole = damage(world, path, sink.getvalue().to_pybytes())
    said = told("data.columns", world.ids).says("Restore it from a backup")
    put_back(world, said.find(r"(/\S+\.parquet)"), whole)
    assert world.ids() == expected(ENDS)


@follows("manifest.version")
def test_a_manifest_of_a_newer_version(monkeypatch):
    """Code of an earlier version meets it. With code that knows the version the query goes on."""
    world = memory_world(**PLAIN)
    world.run(boundaries=ENDS[:2])
    with monkeypatch.context() as patch:
        patch.setattr(manifest, "MANIFEST_VERSION", manifest.MANIFEST_VERSION - 1)
        with pytest.raises(StreamsinkError) as told:
            world.run(boundaries=ENDS)
        advice(told.value, "manifest.version").says("Use a streamsink that knows it")
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


# -- S3 ------------------------------------------------------------------------------------------------------------


def _create(root, options):
    return streamsink.create_table(root, "id BIGINT", store_options=options)


@follows("store.bucket")
def test_a_bucket_that_does_not_exist(s3_server):
    bucket = f"new-{uuid.uuid4().hex[:8]}"
    said = told("store.bucket", lambda: _create(f"s3://{bucket}/shop.db/orders", s3_server.options))
    assert said.says("Create it").find(r"s3://([\w-]+)/") == bucket
    s3_server.client().create_bucket(Bucket=bucket)
    assert _create(f"s3://{bucket}/shop.db/orders", s3_server.options)


@follows("store.credentials")
def test_s3_without_credentials(s3_server, monkeypatch):
    """The options that the error names give them."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    keys = ("s3.access-key", "s3.secret-key")
    without = {name: value for name, value in s3_server.options.items() if name not in keys}
    root = f"s3://{s3_server.bucket}/{uuid.uuid4().hex}"
    s3_client.client_of.cache_clear()  # another test may have had keys for these options
    named = told("store.credentials", lambda: _create(root, without)).find(r"store_options \(([^)]*)\)").split(", ")
    assert _create(root, {**without, **{name: s3_server.options[name] for name in named}})


@follows("store.options")
def test_settings_that_the_client_refuses(s3_server):
    root = f"s3://{s3_server.bucket}/{uuid.uuid4().hex}"
    said = told("store.options", lambda: _create(root, {**s3_server.options, "s3.endpoint": "no endpoint"}))
    assert said.says("no endpoint", "s3.endpoint")
    assert _create(root, s3_server.options)


@follows("store.options")
def test_a_name_service_that_no_setting_knows(hdfs_cluster, tmp_path, monkeypatch):
    """Each of the three ways that the error names is one; the files in HADOOP_CONF_DIR are the usual one."""
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    table = f"{uuid.uuid4().hex}/shop.db/orders"
    said = told("store.options", lambda: _create(f"hdfs://{NAME}/{table}", {}))
    assert said.says("HADOOP_CONF_DIR is not set", "in store_options", "the NameNode's host and port")
    assert _create(f"{hdfs_cluster.uri}/{table}-1", {})
    assert _create(f"hdfs://{NAME}/{table}-2", by_name(hdfs_cluster.uri))
    write_settings(tmp_path / said.find(r"core-site.xml and (\S+\.xml)"), by_name(hdfs_cluster.uri))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert _create(f"hdfs://{NAME}/{table}-3", {})


@follows("store.extra-missing")
def test_a_package_that_is_not_installed(s3_server, monkeypatch):
    root = f"s3://{s3_server.bucket}/{uuid.uuid4().hex}"
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "boto3", None)
        s3_client.client_of.cache_clear()
        said = told("store.extra-missing", lambda: _create(root, s3_server.options))
    assert said.find(r"pip install 'streamsink\[(\w+)\]'") == "s3"
    assert _create(root, s3_server.options)


# -- claims, schemas, versions -------------------------------------------------------------------------------------


@follows("application.contended")
def test_a_claim_that_others_win_each_time():
    """Once the others are stopped they leave the claim to this driver."""

    class Contended(FileIO):
        rivals = True

        def create_if_absent(self, path, data, unique="", **prepared):
            if "/owner-" in path and Contended.rivals:
                super().create_if_absent(path, data, f"{unique}rival")
                return False
            return super().create_if_absent(path, data, unique, **prepared)

    world = World(MemoryCalls(), ROOT, make_io=lambda over: Contended(over, IdSource().new_id), **PLAIN)
    said = told("application.contended", lambda: world.run(boundaries=ENDS))
    said.says("two drivers run the same query; stop one")
    Contended.rivals = False
    world.die()
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


@follows("schema.contended")
def test_a_schema_that_others_change_each_time(monkeypatch):
    """When the query is started again the schema is changed."""
    world = memory_world(**PLAIN)
    world.run(boundaries=ENDS)
    table = open_table(world.file_io(world.calls), ROOT, for_writing=True)

    def evolve():
        return table.evolve(
            parse_ddl("id BIGINT, part STRING, version BIGINT, more INT"), add_columns=True, widen_types=False
        )

    def others_win(schema):
        raise Conflict("another writer was first", kind="schema.taken")

    with monkeypatch.context() as patch:
        patch.setattr(table.schemas, "add", others_win)
        told("schema.contended", evolve).says("Nothing was written; start again")
    assert [field.name for field in evolve().fields][-1] == "more"


@follows("state.version")
def test_a_state_of_a_newer_version(monkeypatch):
    """An older streamsink meets it. With the one that wrote the state the query goes on."""
    world = memory_world(**PLAIN)
    world.run(boundaries=ENDS[:2])
    with monkeypatch.context() as patch:
        patch.setattr(committable, "_STATE_VERSION", committable._STATE_VERSION - 1)
        with pytest.raises(StreamsinkError) as told:
            world.run(boundaries=ENDS)
        advice(told.value, "state.version").says("Nothing was written. Start the query with that version of streamsink")
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)
