"""Walks, shrunk or written by hand, that find defects which drawn walks seldom find. ``test_teeth.py`` walks each with
its defect and without.

They are not drawn. That a walk finds these defects is shown here; how soon drawn walks find one is what the soak
reports.
"""

from tests.walks.elsewhere.shown import ELSEWHERE
from tests.walks.shown_several import OF_SEVERAL
from tests.walks.shown_written import WRITTEN
from tests.walks.walker import Walk

_TOPIC, _REPUBLISH, _FOLDER = ("setup", 1, 1, 1, 1, 0, 1), ("setup", 1, 1, 1, 1, 0, 3), ("setup", 1, 6, 1, 1, 0, 1)
_BATCH = [("produce", 0, 4, 0), ("batch", 0, 3)]
_OTHERS = [("foreign_append", 0), ("foreign_append", 0)]
_EXPIRY = [*_OTHERS, ("expiry", 0)]
# The same in tables 1 and 2 of several.
_EXPIRY_OF_TWO = [(name, table, number) for table in (1, 2) for name, number in _EXPIRY]
_BEFORE_FILTER, _BEFORE_PUBLISH = 13, 15


def _asleep(at: int, calls: int, *meanwhile: tuple, before: list = _OTHERS) -> Walk:
    """A walk with a driver that stands still in its second batch."""
    return [
        _TOPIC, *_BATCH, *before, ("produce", 0, 3, 0), ("pause_at", 0, 1, at, calls), *meanwhile, ("wake",),
        ("produce", 0, 2, 0), ("batch", 0, 3),
    ]


# Another program's job with a copy of the checkpoint.
_COPIED_JOB = ("copied_job", 0, 0, 0, 0)
_COPIED = [("setup", 1, 1, 0, 1, 0, 0), ("produce", 0, 1, 0), _COPIED_JOB, ("produce", 0, 1, 0), ("batch", 0, 0)]
_TWO_TAKEN = [
    ("produce", 0, 1, 0), ("batch", 0, 0), ("produce", 0, 2, 0), ("produce", 0, 2, 0), ("copied_job", 0, 1, 0, 0),
    ("produce", 0, 1, 0), ("batch", 0, 0), ("batch", 0, 0),
]
# The name of a defect, and the walk that goes wrong with it.
SHOWN: dict[str, Walk] = {
    **OF_SEVERAL,
    **ELSEWHERE,
    **WRITTEN,
    "an older mark denies what is published behind a record that came again": [
        ("setup", 4, 0, 0, 1, 0, 3), ("produce", 0, 3, 0), ("batch", 0, 1), ("produce", 0, 3, 0), ("batch", 0, 1),
        ("produce", 0, 3, 0), ("lost_race", 0, 2, 1, 1), ("compaction",), ("batch", 0, 0), ("stop", 0),
        ("rollback", 5, 0), ("produce", 0, 0, 0), ("crash", 0, 0, 20, 0), ("foreign_append", 0), ("foreign_append", 0),
        ("expiry", 0), ("produce", 0, 1, 0), ("batch", 0, 0), ("heal", 0, 1), ("batch", 0, 0), ("rollback", 1, 0),
        ("foreign_append", 0), ("expiry", 0), ("produce", 0, 0, 0), ("batch", 0, 1),
    ],
    "a new checkpoint forgets the name before": [
        ("setup", 4, 1, 0, 1, 0, 3), ("produce", 0, 3, 0), ("batch", 0, 0), ("produce", 0, 2, 0), ("batch", 0, 0),
        ("rename_at_once", 0), ("produce", 0, 2, 0), ("batch", 0, 3), ("lose_checkpoint_behind", 0),
        ("produce", 0, 2, 0), ("batch", 0, 3), ("produce", 0, 2, 0), ("batch", 0, 3), ("produce", 0, 2, 0),
        ("batch", 0, 3), ("produce", 0, 2, 0), ("batch", 0, 3), ("stop", 0), ("rollback", 1, 0), ("lose_checkpoint", 0),
        ("produce", 0, 2, 0), ("batch", 0, 0), ("heal", 0, 0), ("batch", 0, 0), ("heal", 0, 0), ("batch", 0, 3),
    ],
    "A2: topics that are read no longer stay in startingOffsets": [
        ("setup", 1, 35, 1, 4, 0, 1), *_BATCH, ("leave_topic", 0), ("batch", 0, 3), ("heal", 0, 1), ("batch", 0, 3),
    ],
    "the journal of another table is taken": [
        _TOPIC, ("run", 0, 1), ("copy", 3, 0), ("lose_journal", 4), ("run", 2, 1), ("copy", 1, 4), ("restore", 0, 1),
        ("run", 4, 1), ("restore", 1, 1),
    ],
    "a journal that went on in another way than the table is taken": [
        _TOPIC, ("run", 0, 1), ("copy", 4, 0), ("run", 2, 1), ("copy", 2, 0), ("restore", 0, 1), ("run", 4, 1),
        ("restore", 1, 1),
    ],
    "a snapshot on one that was rolled back meanwhile stays": _asleep(
        _BEFORE_PUBLISH, 0, ("rollback", 1, 0), ("foreign_append", 0),
    ),
    "a rollback while a commit is prepared is not seen": _asleep(
        _BEFORE_FILTER, 4, ("rollback", 1, 0), ("foreign_append", 0),
    ),
    "a late snapshot that nobody can read stays": _asleep(_BEFORE_PUBLISH, 0, *_EXPIRY, before=[("foreign_append", 0)]),
    "C5: a snapshot that came too late stays": _asleep(
        _BEFORE_PUBLISH, 0, ("foreign_append", 0), ("compaction",), ("foreign_append", 0), ("expiry", 1),
    ),
    "an older copy of the journal knows all files": [
        _FOLDER, *_BATCH, ("copy", 1, 0), *_BATCH, ("restore", 0, 1), ("lose_checkpoint", 0), ("batch", 0, 3),
        ("heal", 0, 0), ("batch", 0, 3),
    ],
    "letters: recorded under a number that their table has": [
        _REPUBLISH, ("letters", 0, 1), *_BATCH, *_BATCH, *_BATCH, ("lose_journal", 0), *_EXPIRY,
        *_BATCH, ("heal", 0, 0), *_BATCH, ("heal", 0, 0), *_BATCH, ("heal", 0, 0), *_BATCH,
    ],
    "A2: a cluster that moved while its batch was written is the same": [
        ("setup", 0, 5, 0, 0, 0, 0), ("produce", 0, 0, 0), ("pause_at", 0, 0, 3, 2), ("recreate", 0, 0, 1), ("wake",),
        ("pause_at", 0, 0, 0, 0),
    ],
    "letters: a pending record's table may be another one": [
        _REPUBLISH, ("letters", 0, 1), *_BATCH, ("produce", 0, 4, 0), ("crash", 0, 3, 12, 0), ("drop_letters", 0),
        ("batch", 0, 3),
    ],
    "the word for one table ends the word for another": [
        ("several", 1, 1, 1, 1, 0, 1), *[("produce", 0, 4, 0)] * 3, ("batch", 0, 3), ("batch", 0, 3),
        ("half_published", 0, 7, 0), *_EXPIRY_OF_TWO, ("batch", 0, 3), ("heal", 0, 0), ("batch", 0, 3), ("heal", 0, 0),
        ("batch", 0, 3),
    ],
    "a sleep before the base was read is not seen": [
        ("setup", 0, 1, 0, 0, 0, 0), ("produce", 0, 2, 0), ("batch", 0, 0), ("batch", 0, 0), ("copy", 2, 0),
        ("pause", 0, 0, 917), ("restore", 0, 0),
    ],
    "A14: data files are not looked for at a start": [
        ("setup", 0, 1, 0, 0, 0, 0), ("produce", 0, 2, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("batch", 0, 0),
        ("copy", 2, 0), ("pause", 0, 1, 916), ("restore", 0, 0),
    ],
    "a hint of a snapshot that was rolled back stays": [
        ("setup", 1, 1, 0, 0, 0, 0), ("produce", 0, 2, 0), ("produce", 0, 1, 0), ("batch", 0, 0), ("batch", 0, 0),
        ("batch", 0, 0), ("pause", 0, 1, 430), ("rollback", 0, 0),
    ],
    "a journal says that it knows runs whose records it pruned": [
        ("setup", 0, 0, 0, 0, 0, 0), ("run", 0, 0), ("run", 0, 1), ("run", 0, 1), ("run", 0, 1), ("run", 0, 1),
        ("rollback", 1, 0), ("expiry", 0),
    ],
    "a mark that does not say where proves that its record is there": [
        ("setup", 0, 1, 0, 0, 0, 0), ("produce", 0, 2, 0), ("batch", 0, 0), ("batch", 0, 0), ("batch", 0, 0),
        ("power",), ("rollback", 0, 0), ("foreign_append", 0), ("expiry", 0),
    ],
    "a torn mark is doubted when nothing speaks against it": [
        ("setup", 4, 1, 1, 1, 0, 1), ("produce", 0, 4, 0), ("batch", 0, 0), ("batch", 0, 0), ("power",),
        ("compaction",), ("foreign_append", 0), ("expiry", 0),
    ],
    "a mark that does not say where stays so": [
        ("setup", 0, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("crash", 0, 0, 12, 0), ("foreign_append", 0),
        ("crash", 0, 0, 21, 0), ("batch", 0, 0), ("rollback", 0, 0), ("foreign_append", 0), ("foreign_append", 0),
        ("expiry", 1),
    ],
    "a record that is found published is marked without a place": [
        ("setup", 0, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("crash", 0, 0, 12, 0), ("foreign_append", 0),
        ("crash", 0, 0, 21, 0), ("batch", 0, 0), ("rollback", 0, 0), ("foreign_append", 0), ("foreign_append", 0),
        ("expiry", 1),
    ],
    "records that were pruned before a rollback are taken for published": [
        ("setup", 0, 1, 0, 0, 0, 3), ("produce", 0, 3, 0), ("batch", 0, 0), ("batch", 0, 0), ("batch", 0, 0),
        ("batch", 0, 0), ("rollback", 0, 0), ("foreign_append", 0), ("expiry", 0),
    ],
    "B3: nobody looks who owns the application when all is flushed": [
        ("setup", 0, 0, 0, 0, 4, 0), ("produce", 0, 3, 1), ("batch", 0, 0), ("pause", 0, 0, 433),
        ("call", 0, 0, 83, 0),
    ],
    "files are taken for a proof that nothing is missing": [
        ("setup", 0, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("batch", 0, 0), ("copy", 2, 0), ("produce", 0, 0, 0),
        ("batch", 0, 0), ("restore", 0, 0),
    ],
    "files of records that are given up stay known": [
        ("setup", 0, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("produce", 0, 2, 1), ("batch", 0, 0), ("batch", 0, 0),
        ("batch", 0, 0), ("rollback", 0, 1), ("lose_checkpoint", 0),
    ],
    "the files of an adopted query's past are known": [
        ("setup", 494, 6, 1, 1, 0, 1), ("produce", 0, 437, 202), ("produce", 0, 661, 637), ("batch", 0, 0),
        ("rename", 0), ("batch", 0, 704), ("heal", 0, 1), ("batch", 0, 267), ("lose_checkpoint", 0),
    ],
    "letters: what is published again is not the last record": [
        ("setup", 494, 1, 1, 1, 0, 1), ("letters", 0, 0), ("produce", 0, 4, 202), ("produce", 0, 4, 661),
        ("produce", 0, 4, 637), ("batch", 0, 0), ("letters", 0, 1), ("foreign_prepare", 704), ("batch", 0, 3),
        ("foreign_rename",), ("batch", 0, 3),
    ],
    "B5: what a compaction rewrote is published again": [
        ("setup", 4, 1, 1, 1, 0, 1), ("produce", 0, 0, 0), ("batch", 0, 0), ("produce", 0, 2, 0),
        ("lost_race", 0, 3, 0, 2), ("batch", 0, 3),
    ],
    "B5: what is in the table is published again": [
        ("setup", 4, 1, 1, 1, 0, 1), ("produce", 0, 0, 0), ("batch", 0, 0), ("produce", 0, 2, 0),
        ("lost_race", 0, 3, 0, 1), ("batch", 0, 3),
    ],
    "B8: a mark outlives its record": [
        ("setup", 0, 1, 0, 0, 0, 0), ("produce", 0, 0, 0), ("produce", 0, 3, 0), ("batch", 0, 0), ("batch", 0, 0),
        ("batch", 0, 0), ("rollback", 0, 0), ("batch", 0, 0), ("heal", 0, 1), ("batch", 0, 0), ("heal", 0, 0),
        ("batch", 0, 0), ("crash", 0, 0, 12, 0),
    ],
    "B8: what the user has found before a rollback is given up with it": [
        ("setup", 4, 1, 1, 1, 0, 1), ("run", 0, 1), ("produce", 0, 4, 704), ("produce", 0, 4, 267), ("batch", 0, 0),
        ("compaction",), ("batch", 0, 0), ("rollback", 2, 566), ("foreign_append", 0), ("expiry", 0),
        ("batch", 0, 473), ("heal", 0, 1), ("heal", 0, 575), ("heal", 0, 598),
    ],
    "A3: without position columns another query is not told": [
        ("setup", 3, 1, 0, 0, 0, 0), ("produce", 0, 1, 0), _COPIED_JOB, ("lose_checkpoint", 0),
    ],
    "A3: a gap behind another query is one as any": [
        ("setup", 1, 1, 0, 0, 0, 0), ("produce", 0, 1, 0), ("batch", 0, 0), ("produce", 0, 1, 0), _COPIED_JOB,
        ("produce", 0, 1, 0), ("begin_at_latest", 0), ("produce", 0, 1, 0), ("batch", 0, 0),
    ],
    "A3: rows of another query are filtered": [
        ("setup", 1, 1, 0, 1, 0, 0), ("produce", 0, 1, 0), _COPIED_JOB, ("lose_checkpoint", 0),
    ],
    "a copy of a checkpoint is its original": _COPIED,
    "replays of a copied checkpoint are not asked for": _COPIED,
    "a batch that a copy has taken is a replay whatever is said": _COPIED,
    "positions that a copy has taken are the first job's": [("setup", 1, 1, 0, 1, 0, 1), *_TWO_TAKEN],
    "files that a copy has taken are the first job's": [("setup", 1, 6, 0, 1, 0, 1), *_TWO_TAKEN],
    "where the rows of a record are is not told": [
        ("setup", 1, 0, 0, 1, 292, 0), ("produce", 0, 2, 1), ("batch", 0, 0), ("batch", 0, 0), ("night", 1, 0),
        ("lose_checkpoint_behind", 0),
    ],
    "the word of a refused start is of a journal without an identity": [
        ("s3", 0, 0, 0, 0, 0, 0), *_BATCH, ("foreign_append", 0), ("foreign_append", 0), ("expiry", 0),
    ],
    "a probe hides the way on from what a dropped table has left": [
        ("s3", 0, 0, 0, 0, 0, 0), ("produce", 0, 0, 0), ("pause_at", 0, 0, 0, 1), ("drop", 0),
    ],
    "lists that were written for another base are used": [
        ("s3", 10, 0, 0, 0, 0, 0), *_BATCH, ("produce", 0, 0, 0), ("pause_at", 0, 0, 6, 0), ("foreign_append", 0),
        ("wake",),
    ],
    "a state alone among those of a group is one with its rows": [
        ("setup", 4, 1, 0, 0, 3, 7), ("produce", 0, 3, 0), ("batch", 0, 1), ("produce", 0, 2, 0),
        ("lost_race", 0, 2, 0, 2), ("foreign_prepare", 0), ("batch", 0, 0), ("foreign_rename",), ("produce", 0, 0, 0),
        ("lost_race", 0, 3, 2, 2), ("stop", 0), ("rollback", 2, 0), ("foreign_append", 0), ("expiry", 0),
        ("produce", 0, 2, 0), ("batch", 0, 0),
    ],
}
