"""Which files are in the table, asked of one snapshot after another: the answer is always that of a whole reading."""

import random
import uuid

from streamsink.table.commit.changes import Changes
from streamsink.table.history.presence import Presence
from streamsink.testing.memory import MemoryCalls
from tests.table.entries import add, commit, new_table, part

# Files are named as our writers name them, which is looked for in bytes. Another writer's name makes every manifest be
# decoded.
_WANTED = [add(f"data-{uuid.uuid4()}-0.parquet", part(name)) for name in ("x", "y", None, "x")] + [add("w", part("z"))]


class _Reading(MemoryCalls):
    """Remembers the paths that were read."""

    def __init__(self):
        super().__init__()
        self.paths: list[str] = []

    def read(self, path):
        self.paths.append(path)
        return super().read(path)


def _some_commit(table, chance, number):
    """A commit that adds files, wanted ones among them;
    or deletes some, as a compaction or an overwrite does; or is taken back."""
    newest = table.snapshots.latest()
    live = list(table.manifests.entries_of(newest)) if newest else []
    there = {e.identity for e in live}
    free = [e for e in _WANTED if e.identity not in there]
    gone = tuple(e.deleting for e in chance.sample(live, min(len(live), chance.randint(1, 3))))
    new = tuple(chance.sample(free, min(len(free), chance.randint(0, 1)))) + (
        add(f"n{number}", part(chance.choice("xyz"))),
    )
    what = chance.choice(["append", "append", "compact", "overwrite", "rollback"])
    if what == "rollback" and newest and newest.id > 2:
        for snapshot_id in range(chance.randint(2, newest.id), newest.id + 1):
            table.file_io.delete(table.layout.snapshot(snapshot_id))
    elif what == "append" or not gone:
        commit(table, Changes(new))
    else:
        commit(table, Changes(gone + new), kind={"compact": "COMPACT"}.get(what, "OVERWRITE"))


def test_it_says_what_a_whole_reading_says(rng):
    """Random histories have deletions, rollbacks and merged manifests;
    snapshots are asked in any order, and partitions are pruned."""
    hits = 0
    for _ in range(25):
        chance = random.Random(rng.random())
        table = new_table(MemoryCalls(), options={"manifest.merge-min-count": str(chance.choice([2, 3, 1000]))})
        presence = Presence(table.manifests, (e.identity for e in _WANTED[:3]))
        for number in range(15):
            _some_commit(table, chance, number)
            ids = table.snapshots.ids()
            snapshot = table.snapshots.load(chance.choice(ids + ids[-1:] * 3)) if ids else None
            asked = _WANTED if chance.random() < 0.1 else chance.sample(_WANTED[:3], 2)
            live = {e.identity for e in table.manifests.entries_of(snapshot)} if snapshot else set()
            assert presence.of(asked, snapshot) == live & {e.identity for e in asked}
            hits += len(live & {e.identity for e in asked})
    assert hits > 25


def test_each_manifest_is_read_once():
    """This holds however many snapshots are asked about. Manifests of other partitions are not read at all."""
    calls = _Reading()
    table = new_table(calls, options={"manifest.merge-min-count": "1000"})
    presence = Presence(table.manifests, [_WANTED[0].identity])
    for number in range(10):
        commit(table, Changes((add(f"n{number}", part("x" if number % 2 else "q")),)))
        assert presence.of(_WANTED[:1], table.snapshots.latest()) == set()
    manifests = [path for path in calls.paths if "/manifest-" in path and "manifest-list-" not in path]
    assert len(manifests) == len(set(manifests)) == 5
    commit(table, Changes((_WANTED[0],)))
    assert presence.of(_WANTED[:1], table.snapshots.latest()) == {_WANTED[0].identity}
