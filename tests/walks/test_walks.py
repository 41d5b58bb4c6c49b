"""Walks of accidents: random sequences of what operators, users and the world do.
README.md beside this file says what they are."""

import itertools
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.walks.events import KINDS, NOT_YET
from tests.walks.several_walker import KINDS as OF_SEVERAL
from tests.walks.shown import SHOWN
from tests.walks.walking import ELSEWHERE, ON_S3, SEVERAL, draw, outcome, shrink, tell, walk_all

IN_THE_GATE, IN_THE_SOAK = 170, 20_000
# How many walks over several tables the gate has.
OF_SEVERAL_IN_THE_GATE = 75
# How many walks on S3 the gate has: of one table, and of several.
ON_S3_IN_THE_GATE = {"": 30, SEVERAL: 15}
# How many walks into each destination that is no table of Paimon, and of a kind whose commits take long.
ELSEWHERE_IN_THE_GATE, OF_LAKES_IN_THE_GATE = 32, {"delta": 10, "iceberg": 10, "fanout": 12}
# So many kinds of events, of those that are drawn seldom, may be missing among the walks of a gate.
_MISSED = 2
_ALL = {"": {name for name in KINDS if name not in NOT_YET}, SEVERAL: set(OF_SEVERAL)}
_PIECE = 250
# One walk again, alone: STREAMSINK_WALK=<seed>-<number>.
ONE = os.environ.get("STREAMSINK_WALK")


def _report(wrong: list[tuple[str, str, str]], counts: Counter) -> None:
    """Print the counts of all kinds; fail with the shortest form of the first walk that went wrong."""
    print("events: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    if wrong:
        seed, what, more = wrong[0]
        walk = shrink(draw(seed), what)
        others = "".join(f"\n{seed}: {what}" for seed, what, _ in wrong[1:])
        pytest.fail(
            f"walk {seed} (again: STREAMSINK_WALK={seed}): {more}\nThe shortest walk that ends in the same, for "
            f"walking.outcome: {tell(walk)}{others}",
            pytrace=False,
        )


# Walks that went wrong once, each with what was wrong. Those that show a defect are in shown.py.
_JUDGED = {
    "a partition expires, and the table goes back to before its rows came, and nothing of that is left": [
        ("s3", 1, 0, 0, 0, 0, 0),
        ("run", 0, 0),
        ("run", 0, 1),
        ("job_call", 0, 2, 4),
        ("own_partition_expiry", 0, 0),
        ("rollback", 1, 0),
        ("night", 0, 0),
    ],
    "the client of the store repeats the call by which a mark is written once more": [
        ("files", 0, 1, 0, 0, 0, 2),
        ("produce", 0, 0, 0),
        ("batch", 0, 0),
        ("drop", 1),
        ("partition", 0, 0),
        ("call", 0, 0, 573, 4),
    ],
    "a directory is dropped while a driver sleeps, which goes on, so that the next start alone finds it out": [
        ("files", 0, 1, 0, 0, 0, 0),
        ("produce", 0, 4, 0),
        ("batch", 0, 0),
        ("pause_at", 0, 0, 120, 5),
        ("drop", 1),
    ],
    "a backup of the database is restored that has no table yet, and a record waits for it": [
        ("database", 0, 0, 0, 0, 0, 2),
        ("produce", 0, 0, 0),
        ("pause", 0, 0, 2),
        ("copy", 2, 0),
        ("batch", 0, 0),
        ("restore", 0, 0),
    ],
    "a stateful query overlaps, so position columns are no way on": [
        ("database", 0, 2, 0, 0, 2, 3),
        ("produce", 0, 1, 0),
        ("batch", 0, 0),
        ("lose_journal", 0),
        ("copied_job", 0, 1, 1, 1),
    ],
    "a copy of the table is restored beside its journal, of which nothing is left when the application starts next": [
        ("setup", 0, 1, 0, 0, 0, 0),
        ("produce", 0, 1, 0),
        ("batch", 0, 0),
        ("copy", 2, 0),
        ("batch", 0, 0),
        ("restore", 0, 0),
        ("foreign_append", 0),
        ("foreign_append", 0),
        ("expiry", 0),
    ],
    "without a journal one table alone had a batch, and has forgotten it": [
        ("several", 0, 0, 0, 0, 1, 0),
        ("half_published", 0, 0, 0),
        ("lose_journal", 0),
        ("foreign_append", 0, 0),
        ("foreign_append", 0, 0),
        ("expiry", 0, 0),
    ],
    "a table is dropped, and its topic is created again, before the query comes back under another name": [
        ("setup", 0, 1, 0, 0, 0, 0),
        ("produce", 0, 0, 0),
        ("batch", 0, 0),
        ("drop", 0),
        ("rename_at_once", 0),
        ("recreate", 0, 0, 0),
    ],
    "a checkpoint comes back from before its topic was created again": [
        ("setup", 0, 1, 0, 0, 0, 0),
        ("produce", 0, 3, 0),
        ("batch", 0, 3),
        ("recreate", 0, 0, 0),
        ("batch", 0, 0),
        ("copy", 0, 0),
        ("heal", 0, 0),
        ("produce", 0, 0, 0),
        ("batch", 0, 0),
        ("restore", 0, 0),
        ("batch", 0, 0),
        ("heal", 0, 0),
    ],
    "the same, of a record that has its mark": [
        ("setup", 4, 0, 0, 0, 0, 0),
        ("produce", 0, 4, 0),
        ("batch", 0, 0),
        ("produce", 0, 2, 0),
        ("foreign_prepare", 0),
        ("batch", 0, 0),
        ("compaction",),
        ("foreign_rename",),
        ("foreign_append", 0),
        ("produce", 0, 2, 0),
        ("kill", 0),
        ("pause", 0, 0, 80),
        ("rollback", 0, 0),
        ("wake",),
    ],
    "a snapshot behind that of a published record was replaced, and the record's mark is in no journal": [
        ("setup", 0, 1, 0, 0, 0, 0),
        ("produce", 0, 4, 0),
        ("batch", 0, 0),
        ("pause_at", 0, 0, 15, 0),
        ("copy", 1, 0),
        ("foreign_prepare", 0),
        ("batch", 0, 0),
        ("foreign_append", 0),
        ("restore", 0, 0),
        ("foreign_rename",),
        ("power",),
    ],
    "a third writer had built on the first name's snapshot before that was replaced": [
        ("setup", 0, 1, 0, 0, 0, 0),
        ("produce", 0, 1, 0),
        ("batch", 0, 0),
        ("foreign_prepare", 0),
        ("batch", 0, 0),
        ("rename_at_once", 0),
        ("produce", 0, 0, 0),
        ("crash", 0, 0, 12, 0),
        ("foreign_append", 0),
        ("foreign_rename",),
        ("expiry", 1),
    ],
    "on S3 the word that an error asks for is of a journal whose identity was not written": [
        ("s3", 0, 0, 0, 0, 0, 0),
        ("produce", 0, 0, 0),
        ("batch", 0, 0),
        ("foreign_append", 0),
        ("foreign_append", 0),
        ("expiry", 0),
    ],
    "a destination is dropped while its first record waits": [
        ("kept", 1, 0, 0, 0, 2, 0),
        ("produce", 0, 0, 0),
        ("crash", 0, 0, 0, 0),
        ("drop", 1),
        ("rename", 0),
    ],
    "manifests and journal of a directory are lost, and its files are there": [
        ("files", 0, 1, 0, 0, 0, 0),
        ("produce", 0, 2, 0),
        ("crash", 0, 0, 0, 0),
        ("batch", 0, 0),
        ("lose_journal", 0),
        ("lose_known", 1),
    ],
    "manifests of a directory are lost, also those of a sink that has written the second part of a batch and ended": [
        ("files", 0, 0, 0, 0, 0, 0),
        ("produce", 0, 1, 0),
        ("at_once", 0, 0, 503),
        ("heal", 0, 0),
        ("lose_known", 1),
    ],
    "a topic is another one, and the broker tells no id any more before anybody has looked": [
        ("files", 0, 5, 0, 0, 0, 0),
        ("produce", 0, 0, 0),
        ("batch", 0, 0),
        ("recreate", 0, 0, 0),
        ("ids", 0, 3),
    ],
    "a Delta table is an older copy, and the files of what it has lost are gone with it": [
        ("delta", 0, 0, 0, 0, 0, 0),
        ("produce", 0, 0, 0),
        ("batch", 0, 0),
        ("copy", 2, 0),
        ("produce", 0, 0, 0),
        ("batch", 0, 0),
        ("restore", 0, 0),
    ],
    "a Delta table is restored to a version further back than the journal remembers": [
        ("delta", 0, 0, 0, 0, 0, 0),
        ("produce", 0, 0, 0),
        ("batch", 0, 0),
        ("produce", 0, 0, 0),
        ("batch", 0, 0),
        ("produce", 0, 2, 1),
        ("crash", 0, 0, 0, 0),
        ("batch", 0, 0),
        ("roll_back", 0),
    ],
    "an Iceberg table is dropped when its query goes on under another name behind what is there": [
        ("iceberg", 0, 1, 0, 0, 0, 0),
        ("produce", 0, 2, 0),
        ("crash", 0, 0, 0, 0),
        ("rename", 0),
        ("batch", 0, 0),
        ("heal", 0, 1),
        ("drop", 1),
    ],
    "an Iceberg table goes back, and what describes the files of what it has lost is gone": [
        ("iceberg", 0, 0, 1, 0, 2, 0),
        ("produce", 7, 0, 0),
        ("pause_at", 8, 0, 0, 0),
        ("wake",),
        ("produce", 0, 0, 0),
        ("at_once", 0, 0, 82),
        ("begin_at_latest", 7),
        ("roll_back", 1),
    ],
    "a lost checkpoint is told where to begin by the error itself": [
        ("files", 0, 1, 0, 1, 3, 0),
        ("produce", 0, 0, 0),
        ("batch", 0, 0),
        ("lose_checkpoint", 0),
    ],
    "what is noted of the first name is lost, and the record that goes on from it is given up": [
        ("notes", 0, 0, 0, 0, 0, 0),
        ("produce", 0, 0, 0),
        ("crash", 0, 0, 0, 0),
        ("rename", 0),
        ("produce", 0, 0, 0),
        ("batch", 0, 0),
        ("heal", 0, 1),
        ("pause_at", 0, 0, 799, 0),
        ("drop", 1),
    ],
    "a directory is dropped while a driver sleeps between a manifest and its marker": [
        ("files", 0, 0, 0, 0, 3, 0),
        ("produce", 0, 1, 1),
        ("batch", 0, 0),
        ("pause", 0, 0, 189),
        ("drop", 0),
        ("pause_at", 0, 0, 0, 0),
    ],
    "a driver sleeps before the first hint, while its table is dropped": [
        ("setup", 0, 0, 0, 0, 0, 0),
        ("produce", 0, 0, 0),
        ("pause_at", 0, 0, 456, 0),
        ("drop", 0),
    ],
}


@pytest.mark.parametrize("judged", _JUDGED)
def test_a_walk_that_once_went_wrong(judged):
    """Rows were lost or doubled, or an error named no way on. In the first one the model was wrong."""
    assert outcome(_JUDGED[judged]) == ("", "")


def test_no_walk_is_recorded_twice():
    """Those that show a defect are walked by test_teeth.py."""
    assert [judged for judged, walk in _JUDGED.items() if walk in SHOWN.values()] == []


def test_walks_of_accidents(seed):
    """In some hundred walks, other ones in each run, every row is there once,
    or an error's advice leads there, and readers can always read."""
    seeds = [ONE] if ONE else [f"{seed}-{number}" for number in range(IN_THE_GATE)]
    wrong, counts = walk_all(seeds)
    _report(wrong, counts)
    assert ONE or len(_ALL[""] - set(counts)) <= _MISSED


def test_walks_of_accidents_to_several_tables(seed):
    """The same holds for queries into several tables, of which each row belongs to one."""
    wrong, counts = walk_all([f"{SEVERAL}{seed}-{number}" for number in range(OF_SEVERAL_IN_THE_GATE)])
    _report(wrong, counts)
    assert len(_ALL[SEVERAL] - set(counts)) <= _MISSED


def test_walks_of_accidents_on_s3(seed):
    """The same holds where requests are made at once, and files have their final names when they are written."""
    wrong, _ = walk_all([f"{ON_S3}{of}{seed}-{n}" for of, number in ON_S3_IN_THE_GATE.items() for n in range(number)])
    _report(wrong, Counter())


@pytest.mark.parametrize("kind", list(ELSEWHERE))
def test_walks_of_accidents_into_other_destinations(seed, kind):
    """The same holds for directories of files, a database, sinks in Flink's form, a Delta and an Iceberg table, and
    several of them at once, by what outside readers see."""
    wrong, counts = walk_all(
        [f"{kind}-{seed}-{number}" for number in range(OF_LAKES_IN_THE_GATE.get(kind, ELSEWHERE_IN_THE_GATE))]
    )
    _report(wrong, counts)
    assert counts["batch"] and any(counts[name] for name in ("drop", "restore", "roll_back", "crash", "kill"))


@pytest.mark.soak
@pytest.mark.parametrize("tables", ["", SEVERAL, ON_S3, ON_S3 + SEVERAL, *(f"{kind}-" for kind in ELSEWHERE)])
def test_walks_of_accidents_for_long(seed, tables):
    """WALKS=100000 says how many; they use all cores."""
    number = int(os.environ.get("WALKS") or IN_THE_SOAK)
    seeds = [f"{tables}{seed}-{n}" for n in range(number)]
    pieces = [seeds[start : start + _PIECE] for start in range(0, number, _PIECE)]
    wrong, counts = [], Counter()
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for some_wrong, some_counts in pool.map(walk_all, pieces):
            wrong += some_wrong
            counts += some_counts
    print(f"RESULT walks: {number} of {tables or 'one table'}, wrong {len(wrong)}, seed {seed}")
    _report(wrong, counts)
    assert number < IN_THE_SOAK or _ALL.get(tables, set()) <= set(counts)


def test_a_walk_is_the_same_each_time(seed):
    """The same seed draws the same events, and they do the same, so that a failure can be repeated."""
    for of, number in itertools.product(("", ON_S3), range(2)):
        walk = draw(f"{of}{seed}-{number}")
        assert walk == draw(f"{of}{seed}-{number}")
        assert trace(walk) == trace(walk)


def trace(walk) -> list:
    """Every I/O call of a walk, of all processes, in order."""
    said: list = []
    outcome(walk, said)
    return said
