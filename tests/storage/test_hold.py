"""The hold keeps a second query of the same name out while its driver lives, on every store."""

import errno
import os
import signal
import stat
import time

import pytest

from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import local_file_io
from streamsink.storage.hold import BeatingHold, Flock
from tests.storage.back_ends import ALL, back_end

BEAT_MS = 150
# The first is so long that nobody outlives it because the machine is slow; the second is for drivers that are dead
# anyway.
LONG_LEASE_MS, SHORT_LEASE_MS = 60_000, 900


@pytest.fixture(params=ALL)
def holds(request):
    """A function that makes the hold of another driver each time."""
    made = back_end(request.param, request)
    folder = f"{made.root}/streamsink/app"
    remote = request.param in ("hdfs", "s3", "memory-s3")  # a beat as FileIO.hold has it takes five seconds
    made.io().make_dir(folder)
    return lambda: BeatingHold(made.io(), folder, BEAT_MS, LONG_LEASE_MS) if remote else made.io().hold(folder)


def test_a_rival_is_kept_out_while_the_holder_lives_and_let_in_after_its_release(holds):
    """Once it is released there is nothing to wait for."""
    first, second = holds(), holds()
    assert first.allows(None)
    first.keep(1)
    try:
        assert second.allows(1) is False
    finally:
        first.release()
    assert second.allows(1) is True
    second.release()


def test_a_look_at_a_lock_keeps_nobody_out():
    """A command has it for an instant."""
    tries = iter([None, lambda: None])
    assert Flock(lambda: next(tries)).allows(1) is True


def test_a_restart_of_the_same_query_is_let_in_at_once(holds):
    """Its epoch fences the earlier driver."""
    first, second = holds(), holds()
    assert first.allows(None)
    first.keep(1)
    assert second.allows(None) is True
    second.keep(2)
    assert holds().allows(2) is False
    first.release()
    second.release()


def test_a_driver_that_took_over_has_the_lock_when_the_earlier_one_has_ended(tmp_path):
    """Else nobody would have it, and commands would take the driver that lives for a dead one."""
    first, second, rival = (local_file_io().hold(str(tmp_path)) for _ in range(3))
    assert first.allows(None) and second.allows(None)
    second.keep(2)
    second.again()
    first.release()
    second.again()
    assert rival.allows(2) is False
    second.release()
    second.again()
    assert rival.allows(2) is True
    rival.release()


def test_a_lock_that_cannot_be_opened_ends_no_batch_and_is_tried_again(caplog):
    """The hold is no part of the promise. An error of the store would have ended a batch, or a publishing."""
    refused = OSError(errno.EMFILE, "Too many open files", "/lake/orders/streamsink/app/hold")
    tries = iter([refused, refused, None, lambda: None])

    def try_hold():
        found = next(tries)
        if isinstance(found, OSError):
            raise found
        return found

    hold = Flock(try_hold)
    hold.is_wanted = True  # an earlier driver of the same query had it
    hold.again()
    assert hold.is_wanted and "Too many open files: '/lake/orders/streamsink/app/hold'" in caplog.text
    hold.again()
    assert hold.is_wanted and caplog.text.count("cannot be opened") == 1, "it is told once"
    hold.again()
    assert hold.is_wanted, "the earlier driver has it"
    hold.again()
    assert not hold.is_wanted
    hold.release()


def test_a_lock_that_is_refused_leaves_no_file_open(tmp_path, monkeypatch):
    """It is asked for again and again: a store without locks would use up what a process may have open."""
    calls = PosixCalls()

    def refused(descriptor, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refused)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError):
        calls.try_hold(str(tmp_path / "hold"))
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.parametrize("kind", ["hdfs", "s3"])
def test_a_lease_of_a_dead_driver_expires(kind, request):
    """Without a beat for one lease length it is taken over,
    whether its driver died after a beat or before its first one."""
    made = back_end(kind, request)
    folder = f"{made.root}/streamsink/app"
    dead = BeatingHold(made.io(), folder, BEAT_MS, SHORT_LEASE_MS)
    dead.keep(1)
    dead._ended.set()  # Its process is gone: there is no beat and no release any more.
    dead._thread.join()
    rival = BeatingHold(made.io(), folder, BEAT_MS, SHORT_LEASE_MS)
    assert rival.allows(1) is True
    assert rival.allows(2) is True


@pytest.mark.parametrize("kind", ["hdfs", "s3"])
def test_a_superseded_driver_stops_beating(kind, request):
    """There is a newer owner, so its hold does not matter to anybody any more."""
    made = back_end(kind, request)
    folder = f"{made.root}/streamsink/app"
    old = BeatingHold(made.io(), folder, BEAT_MS, LONG_LEASE_MS)
    old.keep(1)
    made.io().write(f"{folder}/owner-2", b"{}")
    old._thread.join(200)
    assert not old._thread.is_alive()
    old.release()


@pytest.mark.parametrize("kind", ["local"])
def test_a_forked_child_holds_nothing(kind, request):
    """Formerly a pool of processes that outlived its driver kept every other query of that name out,
    and the error named a process that was gone."""
    made = back_end(kind, request)
    folder = f"{made.root}/streamsink/app"
    made.io().make_dir(folder)
    first, second = made.io().hold(folder), made.io().hold(folder)
    assert first.allows(None)
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        os.write(tell, b"1")
        time.sleep(600)
        os._exit(0)
    try:
        assert os.read(told, 1) == b"1" and second.allows(1) is False
        first.release()
        assert second.allows(1) is True
    finally:
        second.release()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(told)
        os.close(tell)


def test_another_member_of_a_group_that_shares_the_folder_may_hold(tmp_path):
    """The file that is locked stays, and has the rights that the umask gives to all files."""
    before = os.umask(0o002)
    try:
        release = local_file_io().try_hold(str(tmp_path / "app" / "hold"))
    finally:
        os.umask(before)
    assert release is not None
    release()
    assert stat.S_IMODE(os.stat(tmp_path / "app" / "hold").st_mode) == 0o664
