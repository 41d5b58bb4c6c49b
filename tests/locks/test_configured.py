"""What the options may say of a lock, and what an error about it says and does not say."""

import sys

import pytest

from streamsink.errors import Misuse, Retryable
from streamsink.locks.configured import lock_of
from streamsink.options import SinkOptions
from tests.advice.following import advice, follows
from tests.locks.places import PASSWORDS, place_of

ROOT = "/lake/shop.db/orders"
SECRET = "s3cret-of-mine"


def _lock(root=ROOT, **settings):
    return lock_of(root, SinkOptions.of(root, settings))


def test_no_option_is_no_lock():
    """A lock's id is that of Paimon's default catalog key, or the given one."""
    assert _lock().is_empty
    assert _lock(lock="file").lock_id == "jdbc.shop.orders"
    assert _lock("/elsewhere", lock="file", lock_id="key.shop.orders").lock_id == "key.shop.orders"


def test_a_file_in_the_table_is_the_lock_of_a_local_table(tmp_path):
    """Two lock objects of one table exclude each other, and the file is below the table's own folder."""
    root = str(tmp_path / "shop.db" / "orders")
    with _lock(root, lock="file").acquire():
        with pytest.raises(Retryable):
            _lock(root, lock="file", lock_acquire_timeout_ms=0).acquire()
    assert sorted(p.name for p in (tmp_path / "shop.db" / "orders" / "streamsink").iterdir()) == [
        "jdbc.shop.orders.lock",
        "jdbc.shop.orders.lock.token",
    ]


@pytest.mark.parametrize(
    "root, settings, kind",
    [
        ("/lake/orders", {"lock": "file"}, "lock.id"),
        ("s3://bucket/shop.db/orders", {"lock": "file"}, "lock.url"),
        (ROOT, {"lock": "file:"}, "lock.url"),
        (ROOT, {"lock": "zookeeper://host"}, "lock.url"),
        (ROOT, {"lock": "jdbc:oracle://host/db"}, "lock.url"),
        (ROOT, {"lock": "jdbc:postgresql:///db"}, "lock.url"),
        (ROOT, {"lock": f"jdbc:postgresql://me:{SECRET}@host/db"}, "lock.url"),
        (ROOT, {"lock": f"jdbc:mysql://host/db?user=me&password={SECRET}"}, "lock.url"),
        (ROOT, {"lock": f"jdbc:postgresql://host/db?sslpassword={SECRET}"}, "lock.url"),
        (ROOT, {"lock": "jdbc:postgresql://host/db?ssl=true"}, "lock.url"),
        (ROOT, {"lock": "jdbc:postgresql://host/db?sslmode="}, "lock.url"),
        (ROOT, {"lock": "jdbc:mysql://host/db?sslMode=VERIFY_CA"}, "lock.url"),
        (ROOT, {"lock": "jdbc:sqlite:/catalog.db?mode=ro"}, "lock.url"),
        (ROOT, {"lock": "hive://host:9083?sasl.enabled=true"}, "lock.url"),
        (ROOT, {"lock": f"thrift://me:{SECRET}@host"}, "lock.url"),
        (ROOT, {"lock": "jdbc:mysql://host/db", "lock_password_env": "STREAMSINK_NOT_SET"}, "lock.password"),
        (ROOT, {"lock": "file", "lock_id": "orders"}, "option.value"),
        (ROOT, {"lock": "file", "lock_lease_ms": 10}, "option.value"),
    ],
)
def test_what_cannot_be_a_lock_is_refused_before_anything_is_contacted(root, settings, kind):
    """The error has its kind, and shows no password."""
    with pytest.raises(Misuse) as caught:
        _lock(root, **settings)
    assert caught.value.kind == kind and SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url, module",
    [
        ("jdbc:postgresql://host/db", "psycopg"),
        ("jdbc:mysql://host/db", "pymysql"),
        ("hive://host", "pymetastore.hive_metastore"),
    ],
)
def test_a_missing_driver_is_named(monkeypatch, url, module):
    """The error has the command that installs it."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(Misuse, match="pip install 'streamsink") as caught:
        _lock(lock=url)
    assert caught.value.kind == "lock.driver"


@follows("lock.refused")
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_wrong_password_stops_at_once_and_is_shown_nowhere(kind, request, tmp_path, monkeypatch):
    """It is neither in the message, nor in the error that caused it, nor in the text of the options."""
    place = place_of(kind, request, tmp_path)
    with monkeypatch.context() as patch:
        patch.setenv(place.settings["lock_password_env"], SECRET)
        with pytest.raises(Misuse) as caught:
            place.lock().acquire()
    advice(caught.value, "lock.refused").says("Check 'lock', 'lock_user' and 'lock_password_env'")
    with place.lock().acquire() as lease:
        lease.check()
    assert SECRET not in f"{caught.value} {caught.value.__cause__} {SinkOptions.of(ROOT, place.settings)}"
    assert not any(password in str(caught.value) for password in PASSWORDS.values())


def test_what_stands_behind_the_address_is_heeded(request, tmp_path):
    """A URL that asked for TLS, or for settings of the session, was taken, and neither was there."""
    place = place_of("postgresql", request, tmp_path)
    url = f"{place.settings['lock']}?application_name=mine&options=-c%20lock_timeout%3D4321&sslmode="
    lock = place.lock(lock=f"{url}disable")
    with lock.acquire():
        run = lock._connection.execute
        assert run("SHOW lock_timeout").fetchone() == ("4321ms",) and run("SHOW statement_timeout").fetchone() == (
            "10s",
        )
        assert run("SHOW application_name").fetchone() == ("mine",)
    with pytest.raises(Retryable, match="does not support SSL"):
        place.lock(lock=f"{url}require", lock_acquire_timeout_ms=100).acquire()


def test_a_certificate_that_is_not_there_is_a_refusal(request, tmp_path):
    place = place_of("mariadb", request, tmp_path)
    with pytest.raises(Misuse, match="FileNotFoundError") as caught:
        place.lock(lock=f"{place.settings['lock']}?ssl_ca={tmp_path}/none.pem").acquire()
    assert caught.value.kind == "lock.refused"


def test_a_server_that_is_not_there_is_waited_for_and_then_named():
    """The error is retryable, so that the query is restarted, and has the address."""
    for url in ("jdbc:postgresql://127.0.0.1:1/db", "jdbc:mysql://127.0.0.1:1/db", "hive://127.0.0.1:1"):
        with pytest.raises(Retryable, match="127.0.0.1:1") as caught:
            _lock(lock=url, lock_acquire_timeout_ms=100).acquire()
        assert caught.value.kind == "lock.timeout"
