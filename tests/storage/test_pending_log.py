"""A pending record that is torn, truncated or altered is refused by name;
nothing in it could run code or show a value."""

import dataclasses
import json

import pytest

from streamsink import faults
from streamsink.clock import IdSource
from streamsink.errors import Corrupt, Fenced
from streamsink.journal.file_journal import FileJournal
from streamsink.journal.record_format import decode_record
from streamsink.storage.file_io import FileIO
from streamsink.testing.faults import InjectedCrash, arm, crash
from streamsink.testing.memory import MemoryCalls
from tests.crash.world import memory_world
from tests.storage.test_known_files import FOLDER, Journal

RECORD = "/lake/shop.db/orders/streamsink/streamsink/record-1.json"


@pytest.fixture
def world():
    """A world that died between pre-commit and publishing."""
    made = memory_world()
    arm("precommit.saved", 1, crash)
    with pytest.raises(InjectedCrash):
        made.run()
    faults.arm(None)
    made.die()
    return made


def _record(world):
    return world.calls.read(RECORD)


def test_every_truncation_is_refused(world):
    """It is truncated at each length short of the whole."""
    data = _record(world)
    for length in range(len(data)):
        with pytest.raises(Corrupt) as caught:
            decode_record(data[:length], RECORD)
        assert RECORD in str(caught.value)


def test_every_altered_byte_is_refused(world):
    """One bit is flipped, at each place."""
    data = _record(world)
    for place in range(len(data)):
        altered = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        try:
            record = decode_record(altered, RECORD)
        except Corrupt:
            continue
        # Only white space or the name of an unknown header key may change without a trace.
        assert record == decode_record(data, RECORD)


def test_a_damaged_record_stops_the_start_and_says_the_way_out(world):
    """Nothing is guessed: nothing is published and nothing deleted."""
    data = _record(world)
    world.calls._names[RECORD].data = data[:-10]
    before = sorted(world.calls._names)
    with pytest.raises(Corrupt, match="give_up") as caught:
        world.run()
    assert caught.value.kind == "journal.corrupt"
    assert [n for n in before if n not in world.calls._names] == []
    assert world.ids() == []


def test_a_newer_version_is_refused(world):
    """A record of a later library is not guessed at."""
    header, body = _record(world).split(b"\n", 1)
    newer = {**json.loads(header), "version": 99}
    with pytest.raises(Corrupt, match="version is 99") as refused:
        decode_record(json.dumps(newer).encode() + b"\n" + body, RECORD)
    assert refused.value.kind == "journal.newer"


def test_a_record_is_json_without_row_values(world):
    """It has paths, counts and positions only: the statistics, which are values, stay in the manifest."""
    body = json.loads(_record(world).split(b"\n", 1)[1])
    assert set(body) == {"application", "files", "payload", "state", "watermark_ms"}
    assert set(body["files"][0]) == {"staged", "final", "size", "rows"}
    assert set(body["payload"]["manifest"]) == {"staged", "final", "size", "sha256"}


def test_an_altered_manifest_of_a_pending_checkpoint_is_refused(world):
    """Its checksum is in the record."""
    manifest = json.loads(_record(world).split(b"\n", 1)[1])["payload"]["manifest"]["staged"]
    path = f"/lake/shop.db/orders/{manifest}"
    data = world.calls.read(path)
    world.calls._names[path].data = data[:-1] + bytes([data[-1] ^ 1])
    with pytest.raises(Corrupt) as caught:
        world.run()
    assert caught.value.kind == "pending.manifest"
    assert world.ids() == []


def test_a_missing_file_of_a_pending_checkpoint_stops_the_start(world):
    """filter_and_commit checks that every named file still exists."""
    staged = json.loads(_record(world).split(b"\n", 1)[1])["files"][0]["staged"]
    FileIO(world.calls, IdSource().new_id).delete(f"/lake/shop.db/orders/{staged}")
    with pytest.raises(Corrupt) as caught:
        world.run()
    assert caught.value.kind == "pending.files-gone"
    assert world.ids() == []


@pytest.mark.parametrize("keep", [False, True], ids=["", "keep-staging"])
def test_a_sweep_keeps_the_files_of_records_that_are_not_published(world, keep):
    """Whenever it is called it deletes only what no record names, and,
    of published records, what is not needed to mend a rollback."""
    root, io = world.driver.root, FileIO(world.calls, IdSource().new_id)
    record = decode_record(_record(world), RECORD)
    named = sorted(
        [*(f"{root}/{file.staged}" for file in record.files), f"{root}/{record.payload['manifest']['staged']}"]
    )
    log = FileJournal(io, root, "streamsink", 2, keep_staging=keep)
    writer = log.claim(world.checkpoint.query, 0)
    orphan = f"{log.staging(2, writer)}/data-of-nobody.parquet"
    io.write(orphan, b"x")
    assert log.sweep(writer) == [orphan]
    assert [io.exists(path) for path in (orphan, *named)] == [False] + [True] * len(named)
    log.mark_published(record)
    assert log.sweep(writer) == ([] if keep else named)
    assert all(io.exists(path) is keep for path in named)
    log.release()


@pytest.mark.parametrize("published", [False, True])
def test_a_sweep_takes_what_other_epochs_staged_for_the_number_of_a_record(world, published):
    """It does so even where the files of published records are kept:
    a power failure may bring back what their writer had deleted."""
    root, io = world.driver.root, FileIO(world.calls, IdSource().new_id)
    record = decode_record(_record(world), RECORD)
    log = FileJournal(io, root, "streamsink", 2, keep_staging=True)
    writer = log.claim(world.checkpoint.query, 0)
    assert writer.epoch != record.state.epoch
    brought_back = f"{log.staging(1, writer)}/manifest-of-nobody-0"
    io.write(brought_back, b"x")
    if published:
        log.mark_published(record)
    assert log.sweep(writer) == [brought_back]
    assert not io.exists(brought_back)
    assert all(io.exists(f"{root}/{file.staged}") for file in record.files)
    log.release()


def test_a_driver_whose_journal_was_removed_owns_nothing_of_the_next_one():
    """The next journal counts its epochs anew. Formerly, with the same number, the driver was taken for the owner, and
    deleted what the other driver had staged."""
    io = FileIO(MemoryCalls(), IdSource().new_id)
    first, second = (FileJournal(io, "/lake/t", "app", 2) for _ in range(2))
    writer = first.claim("query", 0)
    folder = first.staging(1, writer)
    io.delete_tree(first.place)
    assert second.claim("query", 0) == writer and second.staging(1, writer) == folder
    io.write(f"{folder}/data-of-the-second.parquet", b"x")
    with pytest.raises(Fenced):
        first.check_owner(writer)
    first.discard(folder)
    assert io.exists(f"{folder}/data-of-the-second.parquet")
    second.check_owner(writer)
    second.discard(folder)
    assert not io.exists(f"{folder}/data-of-the-second.parquet")


def test_a_record_that_is_not_marked_stays_and_so_does_all_after_it(world):
    """Whatever the journal retains, there are no holes, and nothing that may be pending is deleted."""
    record = decode_record(_record(world), RECORD)
    io = FileIO(world.calls, IdSource().new_id)
    log = FileJournal(io, world.driver.root, "streamsink", 2)
    log.claim(world.checkpoint.query, 0)
    for sequence in range(2, 6):
        later = dataclasses.replace(record, state=dataclasses.replace(record.state, sequence=sequence))
        with io.flush_group() as group:
            log.stage_record(later, group)
            group.flush()
        log.create_record(later)
        log.mark_published(later)
    log.forget([2, 3, 4, 5])
    assert log.retained() == [1, 2, 3, 4, 5]
    log.mark_published(record)
    log.forget([1])
    assert log.retained() == [4, 5]
    log.release()


def test_a_list_that_a_paused_driver_has_made_stale_is_dropped_under_the_lock():
    """Otherwise the publishing thread, which merges files meanwhile, may find no list where it has just made one."""
    journal, seen = Journal(2), []
    journal.record(1, 40)
    log = journal.log._files

    class Lock:
        def __enter__(self):
            return self

        def __exit__(self, kind, *raised):
            seen.append(log._segments is None)

    journal.inner.unlink(f"{FOLDER}/{journal.names('files-.*')[3]}")
    log._changing = Lock()
    journal.known()
    assert seen == [True, False]
