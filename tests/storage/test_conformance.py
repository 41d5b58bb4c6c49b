"""What a store promises, as tests that every back end passes:
what is atomic, what is durable, what a missing name means."""

import collections
import json
import subprocess

import pytest

from streamsink.clock import Clock, IdSource
from streamsink.storage.file_io import FileIO
from streamsink.storage.reading import FileStatus, Questions
from streamsink.testing.memory import MemoryCalls
from tests.services.forking import Forked
from tests.storage.back_ends import ALL, DATABASES, LOCKED, REMOTE, SECOND_S3, back_end

RACERS, NAMES, MANY_NAMES = 8, 40, 20_000


@pytest.fixture(params=[*ALL, LOCKED, SECOND_S3, *DATABASES])
def made(request):
    """Each back end, also one whose names are created under a lock."""
    return back_end(request.param, request)


@pytest.fixture
def store(made):
    """The (FileIO, root folder) of each back end."""
    return made.io(), made.root


def test_create_if_absent_makes_its_folders_and_wins_once(store):
    """The second call gets False, and the first one's bytes stay. No temporary file is left."""
    io, root = store
    path = f"{root}/a/b/snapshot-1"
    assert io.create_if_absent(path, b"first") is True
    assert io.create_if_absent(path, b"second") is False
    assert io.read(path) == b"first"
    assert io.entries(f"{root}/a/b") == [FileStatus("snapshot-1", 5, False)]


def _race(made, names):
    """Let processes race to create these names. Each name has one winner, whose bytes are the ones that are there."""
    told, pipes = json.dumps(dict(made.options)), {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    racers = [Forked("tests.storage.racer", made.root, made.place, told, me, names, **pipes) for me in range(RACERS)]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [json.loads(racer.communicate(timeout=3600)[0]) for racer in racers]
    assert collections.Counter(name for mine in won for name in mine) == dict.fromkeys(range(names), 1)
    winner = {name: str(me).encode() for me, mine in enumerate(won) for name in mine}
    io = made.io()
    assert {name: io.read(f"{made.root}/race/{name}") for name in range(names)} == winner
    assert [e.name for e in io.entries(f"{made.root}/race") if e.name.startswith(".")] == []


@pytest.mark.in_turn("races of processes for names", 2)
@pytest.mark.parametrize("kind", ["local", *REMOTE, SECOND_S3, *DATABASES])
def test_of_many_racing_processes_one_wins(kind, request):
    """Eight processes race for 40 names."""
    _race(back_end(kind, request), NAMES)


@pytest.mark.soak
@pytest.mark.parametrize("kind", REMOTE)
def test_of_many_racing_processes_one_wins_for_long(kind, request):
    """Eight processes race for 20,000 names."""
    _race(back_end(kind, request), MANY_NAMES)


def test_write_refuses_a_taken_name(store):
    """A file is never written over."""
    io, root = store
    io.write(f"{root}/x", b"1")
    with pytest.raises(FileExistsError):
        io.write(f"{root}/x", b"2")
    assert io.read(f"{root}/x") == b"1"


def test_adopt_is_idempotent_and_keeps_the_source_when_asked(store):
    """Done twice it ends in the same state. When both names are gone it says so."""
    io, root = store
    for keep in (False, True):
        source, target = f"{root}/staged-{keep}", f"{root}/dt=1/bucket-0/data-{keep}"
        io.write(source, b"rows")
        io.place(source, target, keep)
        io.place(source, target, keep)
        assert io.read(target) == b"rows"
        assert io.exists(source) or not keep
        assert [e.name for e in io.entries(f"{root}/dt=1/bucket-0")] == [f"data-{k}" for k in (False, True)][: keep + 1]
    with pytest.raises(FileNotFoundError):
        io.place(f"{root}/nothing", f"{root}/nowhere", False)


def test_replace_replaces(store):
    """A hint is set again and again."""
    io, root = store
    io.replace(f"{root}/h/LATEST", b"1", "x")
    io.replace(f"{root}/h/LATEST", b"2", "x")
    assert io.read(f"{root}/h/LATEST") == b"2"
    assert [e.name for e in io.entries(f"{root}/h")] == ["LATEST"]


def test_missing_names(store):
    """What is not there is None, False or empty; reading it raises FileNotFoundError."""
    io, root = store
    assert (io.size(f"{root}/x"), io.exists(f"{root}/x"), io.entries(f"{root}/x")) == (None, False, [])
    io.delete(f"{root}/x")
    io.delete_tree(f"{root}/x")
    with pytest.raises(FileNotFoundError):
        io.read(f"{root}/x")


def test_when_a_file_was_written(store):
    """By the store's own clock, where it tells that; of what is not there nothing is known."""
    io, root = store
    before = Clock().now_ms()
    io.replace(f"{root}/m/LATEST", b"1", "x")
    told = io.modified_ms(f"{root}/m/LATEST")
    assert told is None or abs(told - before) < 60_000
    assert io.modified_ms(f"{root}/m/none") is None


def test_folders_are_listed_as_such_and_have_no_bytes(store):
    """A folder is not a file of some bytes. Whether a folder without files is there is the store's own affair."""
    io, root = store
    io.make_dir(f"{root}/d/e")
    io.write(f"{root}/d/e/file", b"1")
    assert not io.size(f"{root}/d/e")
    assert io.entries(f"{root}/d") == [FileStatus("e", 0, True)]
    assert io.names(f"{root}/d") == ["e"]


def test_names_of_every_kind(store):
    """These are names that partition values become:
    with blanks, percent signs, letters of the world, and signs that URIs and patterns know."""
    io, root = store
    names = ["dt=2026-01-01 00%3A00", "ü#?*[x]&+", "a=b'c"]
    for name in names:
        io.write(f"{root}/n/staged/{name}", name.encode())
        io.place(f"{root}/n/staged/{name}", f"{root}/n/final/{name}", False)
    assert sorted(e.name for e in io.entries(f"{root}/n/final")) == sorted(names)
    assert [io.read(f"{root}/n/final/{name}").decode() for name in names] == names


@pytest.mark.in_turn("long listings", 6)
def test_a_long_listing_is_whole(store):
    """It has more entries than an object store lists at once. Deleting the folder leaves none."""
    io, root = store
    for number in range(1_100):
        io.mark(f"{root}/l/{number:05}")
    assert [e.name for e in io.entries(f"{root}/l")] == [f"{number:05}" for number in range(1_100)]
    assert io.names(f"{root}/l") == [f"{number:05}" for number in range(1_100)]
    io.delete_tree(f"{root}/l")
    assert io.entries(f"{root}/l") == io.names(f"{root}/l") == []


@pytest.mark.in_turn("outputs of a size", 6)
@pytest.mark.parametrize("size", [0, 10, 40_000_000])
def test_an_output_is_whole_once_it_is_closed(store, size):
    """It is written in pieces of any size, and ``tell`` counts."""
    io, root = store
    io.make_dir(f"{root}/o")
    stream = io.open_output(f"{root}/o/data")
    piece = b"0123456789" * 100_000
    for at in range(0, size, len(piece)):
        stream.write(memoryview(piece)[: size - at])
    assert stream.tell() == size
    io.close_output(stream)
    assert io.size(f"{root}/o/data") == size
    assert io.read(f"{root}/o/data") == (piece * (size // len(piece) + 1))[:size]


@pytest.mark.in_turn("outputs that are given up", 5)
def test_an_output_that_is_given_up_can_be_deleted(made):
    """It is closed by itself, as an aborted task does, and then deleted:
    nothing is there, and nothing is left unfinished."""
    io, root = made.io(), made.root
    io.make_dir(f"{root}/g")
    stream = io.open_output(f"{root}/g/data")
    stream.write(b"x" * 20_000_000)
    stream.close()
    io.delete(f"{root}/g/data")
    assert io.entries(f"{root}/g") == []
    assert not hasattr(made.calls, "unfinished") or made.calls.unfinished(root) == []


def test_delete_tree_leaves_nothing(store):
    """No file is left at any depth, and no folder."""
    io, root = store
    io.write(f"{root}/t/a", b"1")
    io.write(f"{root}/t/s/b", b"2")
    io.delete_tree(f"{root}/t")
    assert [io.exists(f"{root}/{path}") for path in ("t", "t/a", "t/s/b")] == [False, False, False]


def test_an_empty_folder_goes_and_is_made_again(store):
    """One in which something is stays. A writer that has made sure of a folder, and has no file in it yet, goes on."""
    io, root = store
    staging, folder = f"{root}/staging", f"{root}/t/part=x/bucket-0"
    for number in range(2):
        io.make_dir(staging)
        io.write(f"{staging}/data-{number}", b"1")
        with io.flush_group() as group:
            io.begin_names(folder, staging, group)
            for path in (folder, f"{root}/t/part=x", f"{root}/t/never"):
                io.delete_empty_folder(path)
            group.flush()
        # On S3 there are no folders, though a server may go on listing one.
        assert not io.names(folder) and (io.names_at_once or io.entries(f"{root}/t") == [])
        io.place(f"{staging}/data-{number}", f"{folder}/data-{number}", keep_source=False)
        io.sync_dir(folder)
        io.delete_empty_folder(folder)
        assert io.names(folder) == [f"data-{number}"]
        io.delete(f"{folder}/data-{number}")
        io.delete_empty_folder(folder)
        io.delete_empty_folder(f"{root}/t/part=x")


def test_some_of_a_folder_by_the_beginnings_of_their_names(store):
    """They are listed, and deleted together with one that does not exist."""
    io, root = store
    io.make_dir(f"{root}/bucket-0")
    names = ["data-1-a", "data-1-b", "data-10", "data-2", "other"]
    for name in names:
        io.write(f"{root}/bucket-0/{name}", b"x")
    assert io.names_beginning(f"{root}/bucket-0", "data-1-") == ["data-1-a", "data-1-b"]
    assert io.names_beginning(f"{root}/bucket-0", "none") == io.names_beginning(f"{root}/nowhere", "d") == []
    io.delete_all([f"{root}/bucket-0/{name}" for name in ("data-1-a", "data-1-b", "never")])
    io.delete_all([])
    assert io.names(f"{root}/bucket-0") == ["data-10", "data-2", "other"]


def test_what_is_asked_ahead_is_as_of_the_beginning_once(store):
    """The second question is asked anew; a file that is missing, or an error, is an answer too."""
    io, root = store
    there, later = f"{root}/there", f"{root}/later"
    io.write(there, b"one")
    questions = Questions(read=(there, later), size=(there, later))
    with io.asking(questions):
        io.delete(there)
        io.write(there, b"three")
        io.write(later, b"x")
        if io.is_distant:
            assert (io.read(there), io.size(there), io.exists(later)) == (b"one", 3, False)
            with pytest.raises(FileNotFoundError):
                io.read(later)
        assert (io.read(there), io.size(there), io.read(later), io.exists(later)) == (b"three", 5, b"x", True)
    with io.asking_to_keep(Questions(read=(there,))):
        io.read(there)
    none = f"{root}/none"
    io.ask_beside(lambda: io.write(f"{root}/beside", b""), Questions(size=(none,)))
    io.delete(there)
    io.write(none, b"")
    with io.asked_recently(Questions(read=(there,), size=(none,))) as asked_ms:
        if io.is_distant:
            assert (io.read(there), io.size(none)) == (b"three", None) and asked_ms is not None
        assert not io.exists(there) and io.exists(none) and io.exists(f"{root}/beside")
    with io.asked_recently(Questions(size=(none,))):
        assert io.size(none) == 0


def test_power_failure_forgets_what_was_not_flushed():
    """This tests the model of the memory back end itself: names need their folder synced, and bytes need a flush."""
    calls = MemoryCalls()
    io = FileIO(calls, IdSource().new_id)
    io.make_dir("/t")
    io.write("/t/unsynced-name", b"1")
    calls.power_failure()
    assert not io.exists("/t/unsynced-name")
    io.write("/t/kept", b"1")
    io.sync_dir("/t")
    stream = calls.open_new("/t/torn")
    stream.write(b"abc")
    calls.close(stream, flush=False)
    io.sync_dir("/t")
    calls.power_failure()
    assert io.read("/t/kept") == b"1"
    assert io.read("/t/torn") == b""


def test_a_mark_is_set_once_and_again(store):
    """Its name is the message, and setting it twice is fine."""
    io, root = store
    io.mark(f"{root}/m/done-1")
    io.mark(f"{root}/m/done-1")
    assert io.entries(f"{root}/m") == [FileStatus("done-1", 0, False)]
