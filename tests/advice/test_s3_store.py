"""Advice of errors of an S3 that does not serve, and of keys that it does not take."""

import stat
import sys
import uuid

import pytest

from streamsink.errors import Misuse
from streamsink.spark.explain import explain
from streamsink.storage import s3_client
from streamsink.storage.s3_calls import S3Calls
from streamsink.storage.s3_client import Patience
from streamsink.storage.store_failures import told_of
from tests.advice.following import follows, told
from tests.services import s3_proxy
from tests.services.s3_proxy import S3Proxy

QUICK = Patience(connect_s=2, read_s=1, attempts=2)
KEYS = ("s3.access-key", "s3.secret-key")


@pytest.fixture
def proxy(s3_server):
    with S3Proxy(s3_server.endpoint) as started:
        yield started


@pytest.fixture
def table(s3_server):
    return f"s3://{s3_server.bucket}/{uuid.uuid4().hex}/shop.db/orders"


def _put(table, options, calls=None):
    with told_of(table):
        (calls or S3Calls(options, QUICK, QUICK)).put(f"{table}/schema/schema-0", b"x")


PASSING = {
    "storage.busy": (s3_proxy.SLOW_DOWN, "See what else asks the store that much", "S3 said 503 SlowDown"),
    "storage.unreachable": (s3_proxy.RESET_BEFORE, "See that the store, its endpoint and the network", "Connection"),
}


@follows(*PASSING)
@pytest.mark.parametrize("kind", PASSING)
def test_a_store_that_does_not_serve_for_a_while(kind, proxy, table, s3_server):
    """When it is over, the same call does its work."""
    fault, way_on, cause = PASSING[kind]
    options = {**s3_server.options, "s3.endpoint": proxy.endpoint}
    proxy.fault("PUT", 1, fault, times=None)
    said = told(kind, lambda: _put(table, options)).says(f"{table}: ", cause, f"({table}/schema/schema-0)")
    said.says("nothing is lost", way_on, "then start it again")
    proxy.clear()
    _put(table, options)


@follows(*PASSING)
@pytest.mark.parametrize("kind", PASSING)
def test_the_same_in_a_task_of_which_the_driver_has_only_the_text(kind, proxy, table, s3_server):
    """A function of the user's that has met the same at another server is not taken for it."""
    fault, way_on, cause = PASSING[kind]
    proxy.fault("PUT", 1, fault, times=None)
    calls = S3Calls({**s3_server.options, "s3.endpoint": proxy.endpoint}, QUICK, QUICK)
    with pytest.raises(OSError) as failed:
        calls.put(f"{table}/data", b"x")
    text = f"Traceback\n  File x\n{type(failed.value).__name__}: {failed.value}\n\n\tat org.apache.spark"

    def tell(text):
        raise explain(table, RuntimeError(text))

    told(kind, lambda: tell(text)).says(f"{table}: ", cause, way_on, f"({table}/data)")
    others = text.replace(table, "https://example.com")
    assert str(explain(table, RuntimeError(others))) == others
    proxy.clear()
    calls.put(f"{table}/data", b"x")


@follows("store.credentials-rejected")
@pytest.mark.parametrize("wrong", KEYS)
def test_keys_that_the_store_does_not_know(wrong, table, s3_server):
    """New ones in the options that the error names are taken; those that are there now nobody renews."""
    options = {**s3_server.options, wrong: "withdrawn"}
    said = told("store.credentials-rejected", lambda: _put(table, options)).says("those of store_options")
    named = said.find(r"Give keys that it knows in store_options \(([^)]*)\)").split(", ")
    assert wrong in named
    _put(table, {**options, **{name: s3_server.options[name] for name in KEYS}})


@follows("store.credentials-expired")
def test_keys_that_have_expired(proxy, table, s3_server, monkeypatch):
    """As the error says, without keys in the options those of the environment are taken."""
    options = {**s3_server.options, "s3.endpoint": proxy.endpoint}
    proxy.fault(lambda request: True, 1, s3_proxy.EXPIRED, times=None)
    said = told("store.credentials-expired", lambda: _put(table, options)).says("S3 said 400 ExpiredToken")
    named = said.find(r"new keys in store_options \(([^)]*)\), or none there").split(", ")
    with pytest.raises(Misuse) as asked, told_of(table):
        S3Calls(options, QUICK, QUICK).size(f"{table}/schema/schema-0")  # the answer to a HEAD gives no reason
    assert asked.value.kind == said.kind
    proxy.clear()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", options["s3.access-key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", options["s3.secret-key"])
    _put(table, {name: value for name, value in options.items() if name not in named})


@follows("store.credentials-not-fetched")
def test_a_program_that_gives_no_keys(table, s3_server, monkeypatch, tmp_path):
    """When it works again, the same call does its work. What it has printed is not in the error."""
    program = tmp_path / "keys"
    program.write_text(f"#!{sys.executable}\nraise SystemExit('a secret')\n")
    program.chmod(stat.S_IRWXU)
    (tmp_path / "config").write_text(f"[profile lake]\ncredential_process = {program}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_PROFILE", "lake")
    options = {name: value for name, value in s3_server.options.items() if name not in KEYS}
    s3_client.client_of.cache_clear()  # another test may have had keys for these options
    said = told("store.credentials-not-fetched", lambda: _put(table, options))
    said.says("custom-process", "See that what gives them works (credential_process", "then start it again")
    assert "a secret" not in said.message
    keys = dict(zip(("AccessKeyId", "SecretAccessKey"), (s3_server.options[name] for name in KEYS), strict=True))
    program.write_text(f"#!{sys.executable}\nimport json\nprint(json.dumps({ {'Version': 1, **keys}!r}))\n")
    _put(table, options)
