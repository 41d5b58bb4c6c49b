"""Advice where a store cannot be reached as it was given: another host or port, a port of something else, TLS on one
side alone, another region, a clock that is wrong. Whoever asks, at a start of a query too, is told the path, the
address, what was found there and what to do, within seconds; with the right address the same call does its work."""

import contextlib
import functools
import json
import socket
import threading
import time
import uuid

import pyarrow as pa
import pytest
from click.testing import CliRunner

import streamsink
from streamsink.cli.main import cli
from streamsink.cli.output import PASSING, RIGHT
from streamsink.clock import IdSource
from streamsink.errors import Misuse, Retryable
from streamsink.options import SinkOptions
from streamsink.spark.explain import explain
from streamsink.storage import hdfs
from streamsink.storage.s3_calls import S3Calls
from streamsink.storage.s3_client import Patience
from streamsink.storage.store_failures import told_of
from streamsink.storage.stores import Store, table_path
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from tests.advice.following import advice, follows, told
from tests.services import s3_proxy
from tests.services.ports import LOOPBACK
from tests.services.s3 import WRITER
from tests.services.s3_proxy import S3Proxy
from tests.services.yarn import NAME, by_name

_SAFE_MODE = "org.apache.hadoop.hdfs.server.namenode.SafeModeException"
SCHEMA = pa.schema([("id", pa.int64())])
NOWHERE = "no-such-host.invalid"
QUICK = Patience(connect_s=2, read_s=2, attempts=1)
# What a user who has no time would set.
QUICK_HDFS = {
    "dfs.client.failover.max.attempts": "1",
    "dfs.client.failover.sleep.base.millis": "10",
    "dfs.client.failover.sleep.max.millis": "10",
}
# What a server of Go's, as SeaweedFS and MinIO are, and nginx say to plain HTTP where they expect TLS; and what a web
# server says that knows nothing of S3.
ANSWERS = {
    "TLS is expected": b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
    "TLS is expected by nginx": b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n"
    b"<html>\r\n<head><title>400 The plain HTTP request was sent to HTTPS port</title></head></html>\r\n",
    "a page": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<!doctype html><p>Hello<br>",
    "no page": b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<html>Not found</html>",
    "no method": b"HTTP/1.1 501 Unsupported method\r\nConnection: close\r\n\r\n",
}


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    """S3 is asked once, where the way on has several tries; and no cluster is known to have answered."""
    monkeypatch.setattr(S3Calls.__init__, "__defaults__", (QUICK, QUICK))
    monkeypatch.setattr(hdfs, "_ANSWERED", set())


class Answering:
    """A server that gives each connection one answer, whatever it is asked. A context manager."""

    def __init__(self, answer: bytes):
        self._answer, self._socket = answer, socket.create_server((LOOPBACK, 0))
        self.port = self._socket.getsockname()[1]

    def __enter__(self) -> "Answering":
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(self._answer)
            except OSError:
                if self._socket.fileno() < 0:
                    return


@functools.cache
def free_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server((LOOPBACK, 0)) as once:
        return once.getsockname()[1]


# -- who asks ----------------------------------------------------------------------------------------------------------


def _start(root, options) -> None:
    """A query's start, as its batch function makes it."""
    name = f"query-{uuid.uuid4().hex[:8]}"  # the table has had others
    driver = MicroBatchDriver(
        root, SCHEMA, _rows, SinkOptions.of(root, {"store_options": options, "application": name})
    )
    try:
        driver.run(Store(root, options).open(), SparkCheckpoint(IdSource().new_id()), (3,))
    except Exception as failed:
        raise explain(root, failed) from failed


def _rows(start, end) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": n} for n in range(start, end)], schema=SCHEMA)


def _doctor(root, options) -> None:
    given = [part for pair in options.items() for part in ("--store-option", "=".join(pair))]
    done = CliRunner().invoke(cli, ["doctor", root, *given, "--json"])
    error = json.loads(done.stdout).get("error")
    if error is not None:
        raise (Retryable if done.exit_code == PASSING else Misuse)(error["message"], kind=error["kind"])
    assert done.exit_code == RIGHT, done.output


ASKING = {
    "start": _start,
    "doctor": _doctor,
    "read_arrow": lambda root, options: streamsink.read_arrow(root, store_options=options),
    "verify": lambda root, options: streamsink.verify(root, options),
    "starting_offsets": lambda root, options: streamsink.starting_offsets(root, "nobody", store_options=options),
}
AGAIN = {"start": "start it again", "doctor": "call streamsink doctor again"}


def _refused(who: str, kind: str, root: str, options, *words: str) -> None:
    """Whoever asks is told the path and these words, and to do again what was done. It takes seconds."""
    begun = time.monotonic()
    said = told(kind, lambda: ASKING[who](root, options)).says(root, *words)
    assert time.monotonic() - begun < 60, "as long as the client waits by itself"
    if kind == "storage.unreachable":
        said.says(AGAIN.get(who, f"call streamsink.{who} again"))


def _works(who: str, root: str, options) -> None:
    """The way on: the same call, with the right address."""
    if who == "starting_offsets":
        told("positions.none", lambda: ASKING[who](root, options))  # it is the table that says so
    else:
        ASKING[who](root, options)


@pytest.fixture(params=ASKING)
def who(request) -> str:
    return request.param


# -- HDFS --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_hdfs(hdfs_cluster) -> str:
    """A table there. Returns its path below the cluster's root."""
    path = f"{uuid.uuid4().hex}/shop.db/orders"
    streamsink.create_table(f"{hdfs_cluster.uri}/{path}", SCHEMA)
    return path


WRONG_HDFS = {
    "another host": (lambda cluster: f"hdfs://{NOWHERE}:8020", "failed to lookup address"),
    "a port of nobody": (lambda cluster: f"hdfs://{LOOPBACK}:{free_port()}", "Connection refused"),
    "the port of the web pages": (lambda cluster: f"hdfs://{LOOPBACK}:{cluster._ports[1]}", "RPC listener"),
}


@pytest.mark.in_turn("a wrong address of HDFS", 2)
@follows("storage.unreachable")
@pytest.mark.parametrize("wrong", WRONG_HDFS)
def test_a_namenode_at_another_address(wrong, who, hdfs_cluster, on_hdfs):
    """Formerly a start waited for three minutes, and then said "Connection refused" without a path or a way on."""
    address, found = WRONG_HDFS[wrong]
    words = found, "host and port as clients of the cluster have them", "not those of the NameNode's web pages"
    _refused(who, "storage.unreachable", f"{address(hdfs_cluster)}/{on_hdfs}", QUICK_HDFS, *words)
    _works(who, f"{hdfs_cluster.uri}/{on_hdfs}", {})


@pytest.mark.in_turn("a wrong address of HDFS", 2)
@follows("storage.unreachable")
def test_a_namenode_that_takes_no_connection(who, hdfs_cluster, on_hdfs, monkeypatch):
    """As behind a firewall, or a wrong address: the client alone would wait for two minutes, several times."""
    monkeypatch.setattr(hdfs, "_CONNECT_S", 0.2)
    with socket.create_server((LOOPBACK, 0), backlog=0) as full, contextlib.ExitStack() as waiting:
        for _ in range(3):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        root = f"hdfs://{LOOPBACK}:{full.getsockname()[1]}/{on_hdfs}"
        _refused(who, "storage.unreachable", root, {}, "no connection within 0.2 s")
    _works(who, f"{hdfs_cluster.uri}/{on_hdfs}", {})


@pytest.mark.in_turn("a wrong address of HDFS", 2)
@follows("storage.unreachable")
def test_a_name_service_whose_namenodes_do_not_answer(who, hdfs_cluster, on_hdfs, tmp_path, monkeypatch):
    """The path has no address, so the error says who has given it."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    wrong = by_name(f"hdfs://{LOOPBACK}:{free_port()}")
    words = "Connection refused", f"the NameNodes that store_options or the files in HADOOP_CONF_DIR ({tmp_path}) name"
    _refused(who, "storage.unreachable", f"hdfs://{NAME}/{on_hdfs}", {**wrong, **QUICK_HDFS}, *words)
    _works(who, f"hdfs://{NAME}/{on_hdfs}", by_name(hdfs_cluster.uri))


def test_a_first_call_takes_seconds_and_later_ones_have_the_client_s_own_patience(hdfs_cluster):
    """A NameNode that restarts while a query runs is waited for as before."""
    calls = hdfs.HdfsCalls(hdfs_cluster.uri, {})
    seen = []
    calls._at_first, calls._patient = (_Telling(client, seen, name) for client, name in _both(calls))
    assert calls.size(f"{hdfs_cluster.uri}/nothing") is None and seen == ["at first"]
    assert calls.size(f"{hdfs_cluster.uri}/nothing") is None and seen == ["at first", "patient"]
    again = hdfs.HdfsCalls(hdfs_cluster.uri, {})
    again._at_first, again._patient = (_Telling(client, seen, name) for client, name in _both(again))
    assert again.entries(f"{hdfs_cluster.uri}/nothing") == [] and seen[2:] == ["patient"], "the process knows it"


def _both(calls):
    return (calls._at_first, "at first"), (calls._patient, "patient")


class _Telling:
    """A client that notes that it was asked."""

    def __init__(self, client, seen, name):
        self._client, self._seen, self._name = client, seen, name

    def __getattr__(self, method):
        self._seen.append(self._name)
        return getattr(self._client, method)


@follows("storage.read-only")
def test_a_namenode_in_safe_mode():
    """It leaves it, so the query is restarted by itself. Formerly it was told to mount a file system."""
    root, is_safe = "hdfs://namenode:8020/lake/t", [True]

    def mkdirs() -> bool:
        if is_safe.pop() if is_safe else False:
            raise RuntimeError(
                f'RPCError("{_SAFE_MODE}", "Cannot create directory /lake/t. Name node is in safe mode.")'
            )
        return True

    def ask() -> bool:
        with told_of(root):
            return hdfs._translated(f"{root}/streamsink", mkdirs)

    with pytest.raises(Retryable) as passing:
        ask()
    advice(passing.value, "storage.read-only").says(root, "hdfs dfsadmin -safemode get", "then start it again")
    assert ask()


@follows("table.path")
@pytest.mark.parametrize("port", ["99999", "rpc", "0", ""])
def test_a_port_that_is_none(port):
    told("table.path", lambda: table_path(f"hdfs://namenode:{port}/lake/t")).says(
        f"'{port}' is no port", "hdfs://namenode:port/path", "hdfs://name-service/path"
    )
    for right in ("namenode:8020", "name-service", ""):
        assert table_path(f"hdfs://{right}/lake/t") == f"hdfs://{right}/lake/t"


@follows("table.path")
@pytest.mark.parametrize(
    "given", ["s3://lake/shop.db\\orders", "s3a://lake/a\\b", "hdfs://namenode:8020/lake/at 12:00"]
)
def test_a_path_that_a_store_takes_for_another_one(given):
    """One server keeps such a name with a slash: the first batch was never found, and no start got past two drivers."""
    advised = told("table.path", lambda: table_path(given)).find(r"such as '([^']+)'")
    assert table_path(advised) == advised


@pytest.mark.in_turn("no address of HDFS", 1)
@follows("store.options")
@pytest.mark.parametrize("settings", [{}, {"fs.defaultFS": "file:///"}, {"fs.defaultFS": "s3a://lake"}])
def test_a_path_without_an_authority_where_no_setting_names_a_cluster(
    settings, who, hdfs_cluster, on_hdfs, monkeypatch
):
    """With the cluster as the default file system, or with an address in the path, it is right."""
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    told("store.options", lambda: ASKING[who](f"hdfs:///{on_hdfs}", settings)).says("the NameNode's host and port")
    _works(who, f"hdfs:///{on_hdfs}", {"fs.defaultFS": hdfs_cluster.uri})
    _works(who, f"{hdfs_cluster.uri}/{on_hdfs}", {})


# -- S3 ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_s3(s3_server) -> str:
    """A table there."""
    root = f"s3://{s3_server.bucket}/{uuid.uuid4().hex}/shop.db/orders"
    return streamsink.create_table(root, SCHEMA, store_options=s3_server.options)


WRONG_S3 = {
    "another host": (lambda server: f"http://{NOWHERE}:8333", NOWHERE),
    "a port of nobody": (lambda server: f"http://{LOOPBACK}:{free_port()}", "Could not connect"),
    "TLS where there is none": (lambda server: server.endpoint.replace("http:", "https:"), "SSL"),
}


@pytest.mark.in_turn("a wrong address of S3", 2)
@follows("storage.unreachable")
@pytest.mark.parametrize("wrong", WRONG_S3)
def test_an_s3_at_another_address(wrong, who, s3_server, on_s3):
    """Formerly TLS on one side alone was a raw error of the client."""
    address, found = WRONG_S3[wrong]
    options = {**s3_server.options, "s3.endpoint": address(s3_server)}
    _refused(who, "storage.unreachable", on_s3, options, found, "s3.endpoint in store_options: http or https")
    _works(who, on_s3, s3_server.options)


@pytest.mark.in_turn("no S3 at an address", 2)
@follows("storage.unreachable")
@pytest.mark.parametrize("answer", ANSWERS)
def test_a_port_where_something_else_answers_than_s3(answer, who, s3_server, on_s3):
    """It is not taken for a store in which the table is missing."""
    with Answering(ANSWERS[answer]) as other:
        options = {**s3_server.options, "s3.endpoint": f"http://{LOOPBACK}:{other.port}"}
        _refused(who, "storage.unreachable", on_s3, options, "what answers there is no S3", "http or https")
    _works(who, on_s3, s3_server.options)


@pytest.mark.in_turn("a wrong bucket or key of S3", 2)
@follows("store.bucket")
def test_another_bucket(who, s3_server, on_s3):
    """It is told by who only looks as well, and not taken for a table that is missing."""
    other = on_s3.replace(f"//{s3_server.bucket}/", f"//no-{uuid.uuid4().hex[:8]}/")
    options = s3_server.options | dict(zip(("s3.access-key", "s3.secret-key"), WRITER, strict=True))
    _refused(who, "store.bucket", other, options, "Create it, or give the path of another one")
    _works(who, on_s3, options)


@pytest.mark.in_turn("a wrong bucket or key of S3", 2)
@follows("store.credentials-rejected")
@pytest.mark.parametrize("wrong", ["s3.access-key", "s3.secret-key"])
def test_other_keys(wrong, who, s3_server, on_s3):
    options = {**s3_server.options, wrong: "withdrawn"}
    _refused(who, "store.credentials-rejected", on_s3, options, "Give keys that it knows in store_options")
    _works(who, on_s3, s3_server.options)


REFUSALS = {
    "store.options": (s3_proxy.OTHER_REGION, "Give the bucket's in s3.region"),
    "store.clock": (s3_proxy.SKEWED, "Set the clock there, then start it again"),
}


@pytest.mark.in_turn("a wrong region of S3", 1)
@follows(*REFUSALS)
@pytest.mark.parametrize("kind", REFUSALS)
def test_another_region_or_time_than_the_store_s(kind, who, s3_server, on_s3):
    """Formerly a raw error of the client, and one about rights that nobody lacks."""
    fault, way_on = REFUSALS[kind]
    with S3Proxy(s3_server.endpoint) as proxy:
        options = {**s3_server.options, "s3.endpoint": proxy.endpoint}
        proxy.fault("*", 1, fault, times=None)
        _refused(who, kind, on_s3, options, way_on)
        proxy.clear()
        _works(who, on_s3, options)
