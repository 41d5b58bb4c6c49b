"""A creation whose reply is lost is settled by looking:
won, lost, not done, or an error that says that nobody knows."""

import pytest

from streamsink.clock import IdSource
from streamsink.errors import OutcomeUnknown
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.memory import MemoryCalls

PATH = "/root/snapshot-1"


@pytest.fixture
def memory():
    """A store with one folder."""
    calls = MemoryCalls()
    FileIO(calls, IdSource().new_id).make_dir("/root")
    return calls


def _io(calls):
    return FileIO(calls, IdSource().new_id)


def _number_of(name, memory):
    """The number of the first call of this name within a creation."""
    counting = CrashingCalls(memory)
    _io(counting).create_if_absent("/root/other", b"x")
    memory.unlink("/root/other")
    return counting.log.index(name) + 1


def test_done_and_reply_lost_is_won(memory):
    """The name holds our bytes, and no temporary file is left."""
    calls = CrashingCalls(memory, _number_of("link", memory), Mode.REPLY_LOST)
    assert _io(calls).create_if_absent(PATH, b"ours") is True
    assert [e.name for e in _io(memory).entries("/root")] == ["snapshot-1"]


def test_failed_on_a_taken_name_is_lost(memory):
    """Another writer's bytes are there, and ours never were."""
    _io(memory).create_if_absent(PATH, b"theirs")
    calls = CrashingCalls(memory, _number_of("link", memory), Mode.ERROR)
    assert _io(calls).create_if_absent(PATH, b"ours") is False
    assert memory.read(PATH) == b"theirs"


@pytest.mark.parametrize("mode", [Mode.ERROR, Mode.REPEATED])
def test_failed_on_a_name_that_others_may_replace_is_unknown(memory, mode):
    """Ours may have been there before another writer's. Only a store that says that the name was taken settles it."""
    _io(memory).create_if_absent(PATH, b"theirs")
    calls = CrashingCalls(memory, _number_of("link", memory), mode)
    if mode is Mode.REPEATED:
        assert _io(calls).create_if_absent(PATH, b"ours", replaceable=True) is False
    else:
        with pytest.raises(OutcomeUnknown, match="may have replaced it"):
            _io(calls).create_if_absent(PATH, b"ours", replaceable=True)


def test_failed_and_not_there_is_the_failure(memory):
    """The caller gets the first error, and nothing is there."""
    calls = CrashingCalls(memory, _number_of("link", memory), Mode.ERROR)
    with pytest.raises(OSError, match="injected"):
        _io(calls).create_if_absent(PATH, b"ours")
    assert not _io(memory).exists(PATH)


class _NoInodes(MemoryCalls):
    """Does not tell that two names belong to one file, like some network file systems."""

    def link(self, source, target):
        return target not in self._names and super().link(source, target)


@pytest.fixture(params=[MemoryCalls, _NoInodes, PosixCalls], ids=["memory", "no-inodes", "disk"])
def place(request, tmp_path):
    """Calls of a store, and a folder of the test's own."""
    calls = request.param()
    root = str(tmp_path) if request.param is PosixCalls else "/root"
    FileIO(calls, IdSource().new_id).make_dir(root)
    return calls, f"{root}/snapshot-1"


@pytest.mark.parametrize("name", ["link", "unlink"])
def test_done_and_repeated_by_the_client_is_won(place, name):
    """The repeated call finds the name taken by our own file:
    it is ours all the same, and no temporary file is left."""
    inner, path = place
    calls = CrashingCalls(inner)
    _io(calls).create_if_absent(f"{path}-other", b"x")
    calls = CrashingCalls(inner, calls.log.index(name) + 1, Mode.REPEATED)
    assert _io(calls).create_if_absent(path, b"ours") is True
    assert _io(inner).names(path.rpartition("/")[0]) == ["snapshot-1", "snapshot-1-other"]
    assert _io(inner).create_if_absent(path, b"theirs") is False
    assert _io(inner).read(path) == b"ours"


@pytest.mark.parametrize("make", [MemoryCalls, PosixCalls], ids=["memory", "disk"])
def test_a_store_that_knows_tells_that_two_names_are_of_one_file(make, tmp_path):
    """To give a name twice is fine; a name of another file with the same bytes is taken."""
    calls = make()
    io = _io(calls)
    io.make_dir(str(tmp_path))
    for name in ("one", "other"):
        io.write(f"{tmp_path}/{name}", b"same")
    assert [calls.link(f"{tmp_path}/{name}", f"{tmp_path}/name") for name in ("one", "one", "other")] == [
        True,
        True,
        False,
    ]


def test_a_name_that_was_ours_is_durable_when_it_is_called_ours():
    """It is ours because a look found it, and then the folder is synced as well."""
    memory = _NoInodes()
    _io(memory).make_dir("/root")
    calls = CrashingCalls(memory, _number_of("link", memory), Mode.REPEATED)
    assert _io(calls).create_if_absent(PATH, b"ours") is True
    memory.power_failure()
    assert memory.read(PATH) == b"ours"


class _BlindWhenTaken(MemoryCalls):
    """The name is taken, and the store cannot be read."""

    def read(self, path):
        raise OSError(5, "unreachable")


def test_a_taken_name_that_cannot_be_read_back_is_unknown():
    """Nobody knows whose it is, so it is not called lost."""
    calls = _BlindWhenTaken()
    io = _io(calls)
    io.make_dir("/root")
    calls.close(calls.open_new(PATH), True)
    with pytest.raises(OutcomeUnknown):
        io.create_if_absent(PATH, b"ours")


class _BlindAfterLink(MemoryCalls):
    """The link is done, its reply is lost, and then the store cannot be read."""

    def link(self, source, target):
        super().link(source, target)
        raise OSError(5, "reply lost")

    def read(self, path):
        raise OSError(5, "unreachable")


def test_what_cannot_be_read_back_is_unknown_and_left_alone():
    """It is neither won nor lost. The temporary file stays for the next start to sweep."""
    calls = _BlindAfterLink()
    io = _io(calls)
    with pytest.raises(OutcomeUnknown) as caught:
        io.create_if_absent(PATH, b"ours")
    assert caught.value.kind == "publish.unknown"
    assert len(io.entries("/root")) == 2


def test_a_creation_that_another_one_overtakes_at_any_call_has_one_winner(memory):
    """Whenever the other one comes, even between a look and the name, one of them wins, and its bytes stay."""
    steps = CrashingCalls(memory)
    _io(steps).create_if_absent("/root/other", b"x")
    won_at = []
    for n in range(steps.count + 1):
        memory.unlink(PATH)
        calls, others = CrashingCalls(memory), []

        def overtake():
            if calls.count == n and not others:
                others.append(_io(memory).create_if_absent(PATH, b"theirs"))

        calls.before_call = overtake
        mine = _io(calls).create_if_absent(PATH, b"ours")
        overtake()
        assert [mine, *others].count(True) == 1, f"the other one came before call {n + 1}"
        assert memory.read(PATH) == (b"ours" if mine else b"theirs")
        won_at.append(mine)
    assert won_at == sorted(won_at) and set(won_at) == {True, False}


def test_a_hint_that_is_renamed_twice_is_set(memory):
    """The client of the store has missed the reply, repeats the call, and finds its temporary file gone."""
    counting = CrashingCalls(memory)
    _io(counting).replace("/root/LATEST", b"0", "x")
    calls = CrashingCalls(memory, counting.log.index("rename") + 1, Mode.REPEATED)
    _io(calls).replace("/root/LATEST", b"1", "x")
    assert memory.read("/root/LATEST") == b"1"
    rename = memory.rename
    memory.rename = lambda source, target: (memory.unlink(source), rename(source, target))  # somebody has swept it
    with pytest.raises(FileNotFoundError):
        _io(CrashingCalls(memory)).replace("/root/LATEST", b"2", "x")
