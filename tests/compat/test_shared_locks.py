"""Paimon's own writers in Java and ours are under one lock:
each waits for the other, and together they lose no commit."""

import collections
import threading
import time

import pytest
from py4j.protocol import Py4JJavaError

from streamsink.clock import IdSource
from streamsink.errors import Fenced, Retryable
from streamsink.faults import arm
from streamsink.storage.file_io import local_file_io
from streamsink.table.creation import fields_of
from streamsink.table.table import open_table
from streamsink.testing.driver import SparkCheckpoint
from tests.compat.shared_locks import JavaLocks, LockedPaimon
from tests.locks import replacing
from tests.locks.places import PASSWORDS, place_of

pytestmark = [pytest.mark.spark, pytest.mark.compat]
DATABASES = ("sqlite", "postgresql", "mariadb")
JAVA_WRITERS, JAVA_COMMITS, OUR_BATCHES, ROWS = 2, 5, 10, 2


@pytest.fixture(scope="module")
def locks(java):
    return JavaLocks(java)


class Both:
    """A lock as both sides reach it."""

    def __init__(self, place, locks):
        self.url = place.settings["lock"]
        self.user = place.settings.get("lock_user")
        self.password = PASSWORDS.get(place.settings.get("lock_password_env"))
        self.zone = "" if place.kind != "postgresql" else f"?timezone={locks.zone}"
        self.place = place
        self.java = locks.database(self.url, self.user, self.password)

    def ours(self, **settings):
        return self.place.lock(lock=self.url + self.zone, **settings)


@pytest.fixture(params=DATABASES)
def both(request, tmp_path, locks, monkeypatch):
    for name, value in PASSWORDS.items():
        monkeypatch.setenv(name, value)
    made = Both(place_of(request.param, request, tmp_path), locks)
    yield made
    made.java.close()


@pytest.mark.in_turn("sides that wait", 1)
def test_each_side_waits_for_the_other(both):
    """While Java holds the lock ours is not acquired, and the error says whose it is.
    While we hold it Java's attempt fails."""
    name = both.ours().lock_id
    assert both.java.acquire(name)
    with pytest.raises(Retryable, match="a writer that is not streamsink") as caught:
        both.ours(lock_acquire_timeout_ms=300).acquire()
    assert caught.value.kind == "lock.timeout"
    both.java.release(name)
    with both.ours().acquire() as lease:
        assert not both.java.acquire(name)
        lease.check()
        assert not both.java.acquire(name)
    assert both.java.acquire(name)
    both.java.release(name)


@pytest.mark.in_turn("dead holders of a shared lock", 1)
def test_dead_holders_of_either_side_are_followed_by_the_other(both):
    """Both sides have a lease of two seconds: the other side is not let in before its end, and is let in then."""
    name = both.ours().lock_id
    # It is before the lease that is looked at, so that a slow machine makes nothing shorter.
    started = time.monotonic()
    assert both.java.acquire(name, 2000)
    lease = both.ours(lock_lease_ms=2000).acquire()
    assert time.monotonic() - started > 0.9
    started = time.monotonic()
    lease.check()
    while not both.java.acquire(name):
        time.sleep(0.1)
        assert time.monotonic() - started < 120
    assert time.monotonic() - started > 0.9
    with pytest.raises(Fenced):
        lease.check()
    with lease:  # Its way out takes nothing from Java.
        pass
    assert not both.java.acquire(name)
    both.java.release(name)


def test_a_lock_that_java_released_although_it_was_ours_is_noticed(both):
    """Paimon deletes by name.
    Its next writer's row, made in the same second with a lease as long as ours, is not taken for ours."""
    lock = both.ours(lock_lease_ms=480_000)
    with lock.acquire() as lease:
        both.java.release(lock.lock_id)
        with pytest.raises(Fenced):
            lease.check()
        assert both.java.acquire(lock.lock_id, 480_000)
        with pytest.raises(Fenced):
            lease.check()
    with pytest.raises(Retryable):
        both.ours(lock_acquire_timeout_ms=0).acquire()  # Our way out left Java's row alone.
    both.java.release(lock.lock_id)


def test_a_zone_of_postgresql_is_shared_by_both_sides(request, tmp_path, locks, monkeypatch):
    """PostgreSQL's rows hold local times: in a JVM in Tokyo neither side takes the other's live lock."""
    for name, value in PASSWORDS.items():
        monkeypatch.setenv(name, value)
    with locks.in_zone("Asia/Tokyo"):
        both = Both(place_of("postgresql", request, tmp_path), locks)
        name = both.ours().lock_id
        assert both.java.acquire(name)
        with pytest.raises(Retryable):
            both.ours(lock_acquire_timeout_ms=300).acquire()
        both.java.release(name)
        with both.ours().acquire() as lease:
            assert not both.java.acquire(name)
            lease.check()
        both.java.close()


def test_java_s_hive_lock_and_ours_wait_for_each_other(request, tmp_path, locks):
    """Paimon's HiveCatalogLock on the same metastore has the same component, and so the same queue."""
    place = place_of("hive", request, tmp_path)
    _, database, table = place.lock().lock_id.split(".")
    java = locks.hive(place.server.port, 500)
    held = java.acquire(database, table)
    with pytest.raises(Retryable) as caught:
        place.lock(lock_acquire_timeout_ms=300).acquire()
    assert caught.value.kind == "lock.timeout"
    java.release(held)
    with place.lock().acquire():
        with pytest.raises(Py4JJavaError, match="Acquire lock failed"):
            java.acquire(database, table)
    java.release(java.acquire(database, table))


@pytest.mark.in_turn("Java has the lock", 1)
def test_nothing_of_ours_is_published_while_a_java_writer_has_the_lock(both, spark, java, tmp_path):
    """Java's writer has looked, and its rename is still to come:
    our commit waits for it, and then takes the next number."""
    table = str(tmp_path / "shop.db" / "orders")
    java.create(table, fields_of("application STRING, id BIGINT"))
    settings = {
        **both.place.settings,
        "lock": both.url + both.zone,
        "lock_id": f"jdbc.{IdSource().new_id()[:8]}.orders",
    }
    driver = replacing.driver(table, "ours", settings)
    at_the_lock = threading.Event()
    arm(lambda step: at_the_lock.set() if step == "commit.lists_written" else None)
    assert both.java.acquire(settings["lock_id"])
    ours = threading.Thread(target=lambda: driver.run(local_file_io(False), SparkCheckpoint("ours"), [1]))
    try:
        ours.start()
        assert at_the_lock.wait(200)
        time.sleep(0.5)
        assert open_table(local_file_io(), table, for_writing=False).snapshots.ids() == []
        java.append(table, [("java", 0)])
    finally:
        arm(None)
        both.java.release(settings["lock_id"])
        ours.join(200)
    assert sorted(java.read(table)) == [("java", 0), ("ours", 0)]
    assert open_table(local_file_io(), table, for_writing=False).snapshots.ids() == [1, 2]


@pytest.mark.in_turn("writers under a shared lock", 1)
def test_java_s_writers_and_ours_lose_no_commit_under_one_lock(both, spark, locks, tmp_path):
    """On a local disk Java's rename replaces.
    Java's threads and our committer append at once: every row is there once, and ids have no hole."""
    with both.ours().acquire():
        pass  # From now on SQLite's file is one that readers do not block.
    catalog = locks.catalog(str(tmp_path), both.url, both.user, both.password)
    name = f"t{IdSource().new_id()[:8]}"
    table = str(tmp_path / f"{name}.db" / "orders")
    java = LockedPaimon(spark, catalog, name, "orders")
    java.make(
        fields_of("application STRING, id BIGINT"), {"commit.max-retries": "1000", "commit.max-retry-wait": "50 ms"}
    )
    failed = []

    def append(writer):
        try:
            for commit in range(JAVA_COMMITS):
                java.append(table, [(f"java{writer}", commit * ROWS + n) for n in range(ROWS)])
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=append, args=(writer,)) for writer in range(JAVA_WRITERS)]
    for thread in threads:
        thread.start()
    settings = {**both.place.settings, "lock": both.url + both.zone}
    driver = replacing.driver(table, "ours", settings)
    driver.run(local_file_io(False), SparkCheckpoint("ours"), [ROWS * (number + 1) for number in range(OUR_BATCHES)])
    for thread in threads:
        thread.join(120)
    assert failed == []
    expected = {(f"java{w}", n): 1 for w in range(JAVA_WRITERS) for n in range(JAVA_COMMITS * ROWS)}
    expected |= {("ours", n): 1 for n in range(OUR_BATCHES * ROWS)}
    assert collections.Counter(java.read(table)) == expected
    ids = open_table(local_file_io(), table, for_writing=False).snapshots.ids()
    assert ids == list(range(1, JAVA_WRITERS * JAVA_COMMITS + OUR_BATCHES + 1))
