"""Orphan cleaning beside a compaction, whose new files nothing names before its commit."""

from datetime import datetime, timedelta, timezone

from streamsink import maintenance
from streamsink.compaction.compactor import Compactor
from streamsink.table.care import orphan_files
from tests.compaction.beside import BEFORE, compact, files_of
from tests.crash.world import expected, posix_world


def test_orphan_cleaning_keeps_the_new_files_of_a_compaction(tmp_path, monkeypatch):
    world = posix_world(tmp_path, restore="restore-and-continue")
    world.run(boundaries=BEFORE)
    monkeypatch.setattr(orphan_files, "_LEAST_AGE_MS", -(10**15))
    publish, cleaned = Compactor._publish, []

    def cleans_before(self, attempt, done):
        later = datetime.now(timezone.utc) + timedelta(days=1)
        cleaned.append(maintenance.remove_orphan_files(world.driver.root, later, dry_run=False))
        publish(self, attempt, done)

    monkeypatch.setattr(Compactor, "_publish", cleans_before)
    compact(world)
    assert [each.paths for each in cleaned] == [()]
    assert world.ids() == expected(BEFORE)
    assert set(files_of(world).values()) == {1}
