"""What every lock promises, on its real server:
nobody is inside beside the holder, nobody waits for the dead, and nobody wakes up as the holder."""

import os
import signal
import time

import pytest

from streamsink.clock import Clock
from streamsink.errors import Fenced, Misuse, Retryable
from tests.locks import worker

RACERS, TIMES = 16, 3
PATIENCE_S = 240


class ShiftedClock(Clock):
    """A process whose clock is wrong."""

    def __init__(self, by_ms):
        self._by_ms = by_ms

    def now_ms(self):
        return super().now_ms() + self._by_ms

    def monotonic_ms(self):
        return super().monotonic_ms() + self._by_ms


def _spawn(processes, target, *arguments):
    child = processes.Process(target=target, args=arguments, daemon=True)
    child.start()
    return child


def _holder(processes, place, target):
    """The (process, connection, token) of another process that holds the lock, for a short lease."""
    mine, theirs = processes.Pipe()
    child = _spawn(processes, target, place.root, place.short, theirs)
    assert mine.poll(PATIENCE_S), "the other process never had the lock"
    return child, mine, mine.recv()


@pytest.mark.in_turn("many processes and a lock", 3)
def test_sixteen_processes_never_overlap(place, processes):
    """Each adds one to an unprotected counter, several times. The sum is exact, and the tokens only grow."""
    (place.folder / "counter").write_text("0")
    times = 1 if place.kind == "hive" else TIMES  # Its queue is fair and slow.
    racers = [
        _spawn(processes, worker.increment, place.root, place.settings, str(place.folder), times) for _ in range(RACERS)
    ]
    for racer in racers:
        racer.join(PATIENCE_S)
    assert [racer.exitcode for racer in racers] == [0] * RACERS
    assert (place.folder / "counter").read_text() == str(RACERS * times)
    tokens = [int(line) for line in (place.folder / "tokens").read_text().split()]
    assert tokens == sorted(set(tokens)) and len(tokens) == RACERS * times


@pytest.mark.in_turn("killed holders", 2)
def test_a_killed_holder_is_followed_by_the_next(place, processes):
    """The holder gets SIGKILL. The next one gets the lock when the lease has ended, with a greater token, and never
    before. Only flock frees it at once."""
    child, said, token = _holder(processes, place, worker.hold_and_say)
    before_its_lease = said.recv()
    os.kill(child.pid, signal.SIGKILL)
    with place.lock().acquire() as lease:
        waited = time.monotonic() - before_its_lease
        assert lease.token > token
    assert waited >= place.lease_s - 1.1, "the database counts whole seconds"


@pytest.mark.in_turn("paused holders", 2)
def test_a_paused_holder_is_fenced(place, processes):
    """The holder gets SIGSTOP for longer than its lease.
    The next one has the lock then, and the sleeper's check fails. flock waits for the sleeper."""
    child, said, token = _holder(processes, place, worker.hold_then_check)
    os.kill(child.pid, signal.SIGSTOP)
    try:
        if place.kind == "file":
            with pytest.raises(Retryable) as caught:
                place.lock(lock_acquire_timeout_ms=300).acquire()
            assert caught.value.kind == "lock.timeout"
            expected = "still ours"
        else:
            lease = place.lock().acquire()
            assert lease.token > token
            expected = "Fenced lock.fenced"
    finally:
        os.kill(child.pid, signal.SIGCONT)
    said.send("wake up")
    assert said.poll(PATIENCE_S) and said.recv() == expected
    child.join(PATIENCE_S)
    if place.kind != "file":
        lease.check()  # The sleeper released nothing when it left: the lock was not its own any more.
        with lease:
            with pytest.raises(Retryable):
                place.lock(lock_acquire_timeout_ms=200).acquire()


@pytest.mark.in_turn("holders that check", 2)
def test_check_keeps_the_lock_for_longer_than_one_lease(place):
    """A holder that checks in time is never followed, however long it takes."""
    lock = place.lock(**place.short)
    with lock.acquire() as lease:
        end = time.monotonic() + 1.5 * place.lease_s
        while time.monotonic() < end:
            time.sleep(place.lease_s / 5)
            lease.check()
        before_its_last = time.monotonic()
        lease.check()
        try:
            place.lock(lock_acquire_timeout_ms=0).acquire()
        except Retryable:
            return
        lasted = time.monotonic() - before_its_last
        assert place.lease_s and lasted > place.lease_s - 1.1, "a lease that had just begun anew was not respected"


@pytest.mark.in_turn("clocks and leases", 2)
def test_no_clock_of_ours_ends_a_lease(place):
    """A process whose clock is an hour ahead, or behind, takes nothing from a live holder, and keeps what it has."""
    for shift in (3_600_000, -3_600_000):
        with place.lock().acquire() as lease:
            with pytest.raises(Retryable) as caught:
                place.lock(ShiftedClock(shift), lock_acquire_timeout_ms=300).acquire()
            assert caught.value.kind == "lock.timeout"
            lease.check()
        with place.lock(ShiftedClock(shift)).acquire() as shifted:
            shifted.check()
            with pytest.raises(Retryable):
                place.lock(lock_acquire_timeout_ms=300).acquire()
            shifted.check()


def test_the_time_out_says_who_and_what_to_do(place):
    """The error has the lock, its holder and since when it holds, and the option.
    Nothing is left behind for which a later one would wait."""
    with place.lock().acquire() as lease:
        with pytest.raises(Retryable) as caught:
            place.lock(lock_acquire_timeout_ms=200).acquire()
        if place.kind == "hive":
            waiting = place.lock()
            assert [found.agentInfo for found in waiting._shown()] == [lease.owner], (
                "a request waits that nobody waits for"
            )
            waiting.give_up("nobody")
    said = str(caught.value)
    assert place.lock().lock_id in said and lease.owner in said and "lock_acquire_timeout_ms=200" in said
    with place.lock(lock_acquire_timeout_ms=60_000).acquire() as following:
        assert following.token > lease.token


def test_a_lease_that_was_given_back_is_no_lease(place):
    """Its check fails, and giving it back again takes nothing from the next holder."""
    first = place.lock()
    with first.acquire() as old:
        pass
    with pytest.raises(Fenced):
        old.check()
    with place.lock().acquire() as lease:
        first.release(old)
        lease.check()
        with pytest.raises(Retryable):
            place.lock(lock_acquire_timeout_ms=0).acquire()


def test_a_server_that_restarts_is_waited_for(place):
    """The server is killed while one process holds the lock and another waits. The lock outlives it, the holder's check
    works again, and then the other process gets the lock."""
    if place.server is None:
        return  # There is no server to restart.
    lease = place.lock().acquire()
    place.server.kill()
    with pytest.raises(Retryable) as caught:
        lease.check()
    assert caught.value.kind == "lock.unavailable"
    with pytest.raises(Retryable, match="not acquired within") as caught:
        place.lock(lock_acquire_timeout_ms=300).acquire()
    assert caught.value.kind == "lock.timeout"
    place.server.start()
    if place.kind != "hive":  # Its lease is shorter than its start.
        lease.check()
        with pytest.raises(Retryable):
            place.lock(lock_acquire_timeout_ms=0).acquire()
    with lease:
        pass
    with place.lock().acquire() as following:
        assert following.token > lease.token


def test_the_lease_of_a_dead_holder_is_taken_away(place):
    """By somebody who is certain of that. A holder that lives after all finds it out before it writes."""
    sleeping = place.lock().acquire()
    if place.kind == "file":
        with pytest.raises(Misuse, match="end that process"):
            place.lock().take_away()
        sleeping.check()
    else:
        assert place.lock().take_away() and not place.lock().take_away()
        with pytest.raises(Fenced):
            sleeping.check()
        with place.lock().acquire() as following:
            assert following.token > sleeping.token
    place.lock().release(sleeping)
