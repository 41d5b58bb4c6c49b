"""Defects of Iceberg's metadata beside a table's own: rows that its readers would miss, or see twice, without an error."""

from tests.sabotage.defect import Defect

_FOLDER = "tests/iceberg_metadata"
_FOLLOW, _CRASH, _RACES = f"{_FOLDER}/test_follow.py", f"{_FOLDER}/test_crash.py", f"{_FOLDER}/test_races.py"
_MIRROR, _CHANGES = "table/iceberg_metadata/mirror.py", "table/iceberg_metadata/changes.py"

OF_ICEBERG_METADATA = (
    Defect("a commit makes no Iceberg metadata", "table/commit/table_commit.py:TableCommit._settle",
           "self.iceberg.follow()", "pass", (_FOLLOW,)),
    Defect("a start makes no Iceberg metadata", "sinks/paimon/restoring.py:Live.sweep",
           "Following(self._table).start()", "pass", (_CRASH,)),
    Defect("a batch fails because of Iceberg metadata", "table/iceberg_metadata/following.py:Following._quietly",
           "except Exception as failed:", "except ZeroDivisionError as failed:", (_CRASH,)),
    Defect("Iceberg metadata of a history that went back is a base", f"{_MIRROR}:_is_of",
           "identity is None or identity == _identity(snapshot)", "True", (f"{_FOLLOW}::test_a_number_that_has_come_again_while_nobody_made_metadata",)),
    Defect("nobody counts the rows of Iceberg metadata", f"{_MIRROR}:Mirror._made_on",
           "sum(each.live_rows for each in current) != snapshot.total_record_count", "False", (_RACES,)),
    Defect("Iceberg metadata of a dropped table is a base", f"{_MIRROR}:Mirror._is_of_this_table",
           "return not self._table.snapshots.exists(1)", "return True", (_FOLLOW,)),
    Defect("Iceberg's hint goes back", f"{_MIRROR}:Mirror._show",
           "if self._table.snapshots.exists(number + 1):", "if False:", (_RACES,)),
    Defect("Iceberg metadata above the newest snapshot stays", f"{_MIRROR}:Mirror._show",
           "if found > number and not self._table.snapshots.exists(found)", "if False", (f"{_FOLLOW}::test_a_rollback_of_paimon_that_deletes_snapshots",)),
    Defect("files expire that Iceberg metadata names", "table/care/expire_snapshots.py:expire",
           "if planned.snapshots and not Following(table).forget(planned.snapshots):", "if False:", (_FOLLOW,)),
    Defect("a manifest goes that a later Iceberg snapshot has", "table/iceberg_metadata/expiry.py:only_needed_by",
           "if path not in needed", "", (_FOLLOW,)),
    Defect("a file that went stays in Iceberg's manifests", f"{_CHANGES}:_kept", "if _name(entry) in gone:", "if False:", (_FOLLOW,)),
    Defect("what a loser has written for Iceberg stays", f"{_MIRROR}:Mirror._follow", "self._folder.drop_round()", "pass", (_RACES,)),
    Defect("files for readers of Iceberg say no field ids", "table/write/parquet_output.py:Encoding.of",
           "makes_iceberg(options)", "False", (_FOLLOW,)),
    Defect("files without field ids are not found by names", f"{_MIRROR}:Mirror._metadata",
           "{NAME_MAPPING: json.dumps(mapping)}", "{}", (_FOLLOW,)),
    Defect("manifests of Iceberg are named before they are durable", f"{_MIRROR}:Mirror._follow", "group.flush()", "pass", (_CRASH,)),
)
