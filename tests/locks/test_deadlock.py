"""A database that finds a deadlock ends one transaction, perhaps the lock holder's:
that is no reason to stop a writer."""

import threading
import time

import pytest

from tests.locks.places import place_of

_WEIGHT, _PATIENCE_S, _ROUNDS = 200, 240, 10
_TOKENS = "SELECT token FROM streamsink_lock_tokens WHERE lock_id = %s FOR UPDATE"
_ROW = "SELECT acquired_at FROM paimon_distributed_locks WHERE lock_id = %s FOR UPDATE"


@pytest.fixture(params=("postgresql", "mariadb"))
def place(request, tmp_path):
    return place_of(request.param, request, tmp_path)


@pytest.fixture
def session(place):
    """Another user of the database, with a transaction that MariaDB considers heavier than the lock's and ends last."""
    lock = place.lock()
    with lock.acquire():  # This makes the tables.
        connection = lock._dialect.connect(lock._address, lock._password)
    connection.rollback()
    yield connection
    connection.rollback()
    connection.close()


def _until_locked(lock):
    """Wait until some transaction has the row of the lock's token."""
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        looking = lock._dialect.connect(lock._address, lock._password)
        try:
            looking.cursor().execute(f"{_TOKENS} NOWAIT", (lock.lock_id,))
        except lock._driver.Error:
            return
        finally:
            looking.rollback()
            looking.close()
        time.sleep(0.05)
    raise AssertionError("the check never began")


def _deadlock(lease, session):
    """Take the lock's row and then the token's, which a check holds while it waits for the lock's row. Returns what the
    check gave.

    Raises the driver's error if the database ended this transaction and not the check's.
    """
    lock, checked = lease._lock, []
    cursor = session.cursor()
    for number in range(_WEIGHT):
        cursor.execute(
            "INSERT INTO streamsink_lock_tokens (lock_id, token, owner, expire_time_seconds) VALUES (%s, 0, '', 0)",
            (f"{lock.lock_id}.{number}",),
        )
    cursor.execute(_ROW, (lock.lock_id,))
    checking = threading.Thread(target=lambda: checked.append(lease.check()), daemon=True)
    checking.start()
    try:
        _until_locked(lock)  # It has the token's row and waits for the other one.
        assert not checked
        cursor.execute(_TOKENS, (lock.lock_id,))
    finally:
        session.rollback()
        checking.join(_PATIENCE_S)
    return checked


def test_the_victim_of_a_deadlock_decides_again(place, session):
    """Another transaction has the lock's row and wants the token's, which a check holds:
    the check is undone, and succeeds when it is repeated."""
    with place.lock().acquire() as lease:
        lock = lease._lock
        undone = []
        asked = lock._dialect.is_deadlock
        lock._dialect.is_deadlock = lambda error: undone.append(error) or asked(error)
        for _ in range(_ROUNDS):
            try:
                checked = _deadlock(lease, session)
                break
            # PostgreSQL ends the transaction that waits a second after the deadlock began: on a slow machine ours.
            except lock._driver.Error as error:
                assert asked(error) and not undone
        else:
            pytest.fail(f"the database ended the other transaction {_ROUNDS} times")
        assert checked == [None] and undone, "no deadlock was found" if checked else "the check failed"
        lease.check()
