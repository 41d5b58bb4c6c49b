"""The check of a snapshot beside the creation of the next one: when it is made beside that, and what it is told of it.

Whole restarts are tried in ``tests/crash/test_restarts_on_s3.py`` and ``test_pairs_on_s3.py``.
"""

from dataclasses import replace

import pytest

from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.format.snapshot import APPEND, Snapshot
from streamsink.storage.reading import Questions
from streamsink.storage.s3 import S3FileIO
from streamsink.table.commit.late import Settling
from tests.storage.memory_s3 import MemoryS3Calls

ROOT = "s3://bucket/shop.db/orders"
ASKED = f"{ROOT}/snapshot/snapshot-4"


def _following(number) -> Snapshot:
    some = Snapshot(
        id=number,
        schema_id=0,
        base_manifest_list="base",
        delta_manifest_list="delta",
        commit_user="user",
        commit_identifier=1,
        commit_kind=APPEND,
        time_millis=0,
        total_record_count=0,
        delta_record_count=0,
    )
    return replace(some, id=number)


class _Refusing(MemoryS3Calls):
    def read(self, path):
        raise Misuse(f"{path}: no keys", kind="s3.keys")


def _settling(happened, calls=None):
    def check(following):
        happened.append(("check", following and following.id))
        return False

    file_io = S3FileIO(calls or MemoryS3Calls(), IdSource().new_id, ROOT)
    return Settling(file_io, 5, Questions(read=(ASKED,)), check)


def test_the_next_snapshot_is_created_beside_the_check_which_knows_of_it():
    happened = []
    outcome = _settling(happened).beside(lambda: happened.append("created") or "won", _following(6))
    assert outcome() == "won" and happened == ["created", ("check", 6)]


def test_a_snapshot_on_another_writers_is_created_behind_the_check():
    """The check takes the two for one, which they are not: another writer's snapshot is between."""
    happened = []
    create = _settling(happened).beside(lambda: happened.append("created"), _following(7))
    assert happened == [("check", None)]
    create()
    assert happened == [("check", None), "created"]


def test_a_check_that_comes_after_an_error_knows_what_may_have_been_created():
    """Else a snapshot of ours would prove the one below it."""
    happened = []
    settling = _settling(happened, _Refusing())
    with pytest.raises(Misuse):
        settling.beside(lambda: happened.append("created"), _following(6))
    assert happened == ["created"] and not settling.is_tried
    settling()
    assert happened[1:] == [("check", 6)]


def test_the_check_is_made_once():
    happened = []
    settling = _settling(happened)
    assert settling() is settling() is False and happened == [("check", None)]
