"""What a start does beside its questions: the server is tried out, and what nobody waits for is done."""

import json

import pytest

from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.storage.s3 import S3FileIO
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from tests.protocol.query import QUERY
from tests.storage.memory_s3 import IgnoringS3Calls, MemoryS3Calls
from tests.storage.test_round_trips import ROOT, SCHEMA, _rows

JOURNAL = f"{ROOT}/streamsink/streamsink"


def _driver(**options):
    return MicroBatchDriver(ROOT, SCHEMA, _rows, SinkOptions.of(ROOT, options))


def _start(calls, checkpoint=None, **options):
    return _driver(**options).start(
        S3FileIO(calls, IdSource().new_id, ROOT), checkpoint or SparkCheckpoint(QUERY, [10])
    )


def test_a_server_that_ignores_conditions_is_refused_before_anything_is_written():
    """It is found out by a file of its own, because it would replace what another start has made."""
    calls = IgnoringS3Calls()
    with pytest.raises(Misuse, match="lock.missing|this store cannot create a file only when it is absent"):
        _start(calls)
    assert calls._objects == {}


def test_of_a_start_that_is_refused_nothing_stays():
    """The server was being tried out when the table turned out to be another one than was asked for."""
    calls = MemoryS3Calls()
    calls.put(f"{ROOT}/notes.txt", b"mine")
    with pytest.raises(Misuse, match="not a table and not empty"):
        _start(calls)
    with pytest.raises(Misuse, match="not a Paimon table"):
        _start(calls, create=False)
    assert list(calls._objects) == [f"{ROOT}/notes.txt"]


def test_a_journal_has_its_identity_before_its_first_record(monkeypatch):
    """It is made beside the questions of the first batch; the record names it."""
    calls, made = MemoryS3Calls(), []
    plain = calls.put_new

    def put_new(path, data, unique):
        made.append(path.rpartition("/")[2])
        return plain(path, data, unique)

    monkeypatch.setattr(calls, "put_new", put_new)
    checkpoint = SparkCheckpoint(QUERY, [10])
    driver = _driver()
    sink = driver.start(S3FileIO(calls, IdSource().new_id, ROOT), checkpoint)
    sink.batch(driver.describe(checkpoint, 0))
    sink.close()
    assert made.index("owner-1") < made.index("journal-1") < made.index("record-1.json")
    identity = json.loads(calls.read(f"{JOURNAL}/journal-1"))["id"]
    assert identity in calls.read(f"{JOURNAL}/record-1.json").decode()


def test_a_hold_is_there_when_the_start_is_done_and_owners_of_long_ago_are_not():
    """Both go along with the questions behind the claim."""
    calls = MemoryS3Calls()
    for _ in range(3):
        _start(calls).close()
    names = {name for name, _, _ in calls.entries(JOURNAL)}
    assert {"owner-2", "owner-3", "hold-3"} <= names and not {"owner-1", "hold-1"} & names


def test_a_start_whose_listing_is_older_than_two_others_lists_again(monkeypatch):
    """The owner that it has listed is gone by then."""
    calls = MemoryS3Calls()
    _start(calls).close()
    plain, others = calls.read, []

    def read(path):
        if path == f"{JOURNAL}/owner-1" and not others:
            others.append(True)
            monkeypatch.setattr(calls, "read", plain)
            for _ in range(2):
                _start(calls).close()
        return plain(path)

    monkeypatch.setattr(calls, "read", read)
    _start(calls).close()
    assert others and f"{JOURNAL}/owner-4" in calls._objects


def test_an_announcement_that_fails_does_not_end_the_batch_that_it_goes_along_with(monkeypatch):
    """Also when the client says that its keys or the bucket are gone: the record itself says so, or is there."""
    calls = MemoryS3Calls()
    checkpoint = SparkCheckpoint(QUERY, [10, 20, 30])
    driver = _driver()
    driver.is_small = True
    sink = driver.start(S3FileIO(calls, IdSource().new_id, ROOT), checkpoint)
    plain = calls.put

    def put(path, data):
        if "/at-" in path and path.split("/")[-2] == "1-2" and not refused:
            refused.append(path)
            raise Misuse("no keys", kind="storage.no-credentials")
        plain(path, data)

    refused: list[str] = []
    monkeypatch.setattr(calls, "put", put)
    for number in range(3):
        sink.batch(driver.describe(checkpoint, number))
    sink.close()
    assert refused and {f"{ROOT}/snapshot/snapshot-{number}" for number in (1, 2, 3)} <= calls._objects.keys()
