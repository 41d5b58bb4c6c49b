"""Defects of Iceberg's metadata beside a table's own: rows that its readers would miss, or see twice, without an error."""

from tests.sabotage.defect import Defect

_FOLDER = "tests/iceberg_metadata"
_FOLLOW, _CRASH, _RACES = f"{_FOLDER}/test_follow.py", f"{_FOLDER}/test_crash.py", f"{_FOLDER}/test_races.py"
_OF_OTHERS, _COLUMNS = f"{_FOLDER}/test_origin.py", f"{_FOLDER}/test_columns.py"
_BEHIND, _METRICS = f"{_FOLDER}/test_behind.py", "test_metrics_say_that_metadata_does_not_follow_and_when_it_does_again"
_LACK = "table/iceberg_metadata/behind.py:what_readers_lack"
_FOLLOWING = "table/iceberg_metadata/following.py:Following"
_ORIGIN = "table/iceberg_metadata/origin.py"
_MIRROR, _CHANGES = "table/iceberg_metadata/mirror.py", "table/iceberg_metadata/changes.py"
_TOOK_OUT = "test_what_a_rollback_of_paimon_took_out_is_not_deleted_under_readers"

OF_ICEBERG_METADATA = (
    Defect("a commit makes no Iceberg metadata", "table/commit/table_commit.py:TableCommit._settle",
           "self.iceberg.follow()", "pass", (_FOLLOW,)),
    Defect("a start makes no Iceberg metadata", "sinks/paimon/restoring.py:Live.sweep",
           "self._iceberg.start()", "pass", (_CRASH,)),
    Defect("a batch fails because of Iceberg metadata", "table/iceberg_metadata/following.py:Following._quietly",
           "except Exception as failed:", "except ZeroDivisionError as failed:", (_CRASH,)),
    Defect("Iceberg metadata of a history that went back is a base", f"{_ORIGIN}:is_of",
           "found.time_ms >= snapshot.time_millis if said is None else said == identity(snapshot)", "True", (f"{_FOLLOW}::test_a_number_that_has_come_again_while_nobody_made_metadata",)),
    Defect("nobody counts the rows of Iceberg metadata", f"{_MIRROR}:Mirror._made_on",
           "sum(each.live_rows for each in current) != snapshot.total_record_count", "False", (_RACES,)),
    Defect("Iceberg metadata of a dropped table is a base", f"{_ORIGIN}:of_this_table",
           "return has_one_of(metadata, table) or not table.snapshots.exists(1)", "return True", (_FOLLOW,)),
    Defect("metadata of a table of Iceberg's own is replaced", f"{_ORIGIN}:check_ours",
           "elif found is None and any(folder.is_of_iceberg(each) for each in versions):", "elif False:", (_OF_OTHERS,)),
    Defect("metadata of another writer of Iceberg is heeded by nobody", f"{_ORIGIN}:check_ours",
           "if folder.others:", "if False:", (_OF_OTHERS,)),
    Defect("Iceberg metadata that came with a copy is a base", f"{_MIRROR}:Mirror._earlier",
           "is_here(found, self._table.root) and of_this_table(found, self._table)", "of_this_table(found, self._table)", (_OF_OTHERS,)),
    Defect("readers of Iceberg miss rows of a column that got another type", "table/iceberg_metadata/columns.py:columns_of",
           "_check_types(table, newest, schemas)", "pass", (_COLUMNS,)),
    Defect("a column that Iceberg cannot describe is added", "table/table.py:Table.evolve",
           "check_iceberg_types(target)", "pass", (_COLUMNS,)),
    Defect("Iceberg's hint goes back", f"{_MIRROR}:Mirror._show",
           "if self._table.snapshots.exists(number + 1):", "if False:", (_RACES,)),
    Defect("Iceberg metadata above the newest snapshot stays", f"{_MIRROR}:Mirror._show",
           "if found > number and not self._table.snapshots.exists(found)", "if False", (f"{_FOLLOW}::test_a_rollback_of_paimon_that_deletes_snapshots",)),
    Defect("files expire that Iceberg metadata names", "table/care/expire_snapshots.py:expire",
           "if planned.snapshots and not Following(table).forget(planned.snapshots):", "if False:", (_FOLLOW,)),
    Defect("files go that Iceberg metadata names which could follow", f"{_FOLLOWING}.read_still",
           "frozenset() if self.follow()", "frozenset() if True", (f"{_FOLLOW}::{_TOOK_OUT}",)),
    Defect("files go that Iceberg metadata names which cannot follow", f"{_FOLLOWING}.read_still",
           "else names_read(self._table)", "else frozenset()", (f"{_FOLLOW}::{_TOOK_OUT}",)),
    Defect("orphans go that Iceberg metadata names", "table/care/orphan_files.py:remove_orphans",
           "Following(table).read_still()", "()", (f"{_FOLLOW}::{_TOOK_OUT}",)),
    Defect("files of a tag go that Iceberg metadata names", "table/care/tags.py:delete_tags",
           "Following(table).read_still() if planned.removals", "frozenset[str]() if planned.removals", (f"{_FOLLOW}::{_TOOK_OUT}",)),
    Defect("files go that an earlier snapshot of Iceberg metadata names", "table/iceberg_metadata/expiry.py:names_read",
           "for snapshot in metadata.snapshots if metadata else ():", "for snapshot in metadata.snapshots[-1:] if metadata else ():",
           (f"{_BEHIND}::test_snapshots_that_iceberg_metadata_still_has_keep_their_files",)),
    Defect("nobody says that Iceberg metadata is behind", "commands/verify.py:verify", "if lacking:", "if False:", (_BEHIND,)),
    Defect("Iceberg metadata of another snapshot is that of the newest one", f"{_LACK}",
           "number == newest.id and is_made_of(shown, newest, folder)", "number == newest.id", (_BEHIND,)),
    Defect("Iceberg metadata of another table is that of this one", f"{_LACK}",
           "shown is not None and is_here(shown, table.root)", "shown is not None", (_BEHIND,)),
    Defect("a command says that Iceberg metadata is made, and makes none", "table/iceberg_metadata/behind.py:catch_up",
           "Mirror(table).start()", "pass", (_BEHIND,)),
    Defect("a driver that lives is told to make Iceberg metadata", "operations/doctor.py:_of_behind",
           "\"\" if runs else command", "command", (_BEHIND,)),
    Defect("no listener hears that Iceberg metadata is behind", f"{_FOLLOWING}._quietly",
           "self.told(self.failures, f\"{type(failed).__name__}: {failed}\")", "pass", (f"{_BEHIND}::{_METRICS}",)),
    Defect("Iceberg metadata that has caught up is behind for ever", f"{_FOLLOWING}._quietly",
           "self.told(0, \"\")", "pass", (f"{_BEHIND}::{_METRICS}",)),
    Defect("a manifest goes that a later Iceberg snapshot has", "table/iceberg_metadata/expiry.py:only_needed_by",
           "if path not in needed", "", (_FOLLOW,)),
    Defect("a file that went stays in Iceberg's manifests", f"{_CHANGES}:_kept", "if _name(entry) in gone:", "if False:", (_FOLLOW,)),
    Defect("what a loser has written for Iceberg stays", f"{_MIRROR}:Mirror._follow", "self._folder.drop_round()", "pass", (_RACES,)),
    Defect("files for readers of Iceberg say no field ids", "table/write/parquet_output.py:Encoding.of",
           "makes_iceberg(options)", "False", (_FOLLOW,)),
    Defect("files without field ids are not found by names", f"{_MIRROR}:Mirror._metadata",
           "{NAME_MAPPING: json.dumps(columns.mapping)}", "{}", (_FOLLOW,)),
    Defect("manifests of Iceberg are named before they are durable", f"{_MIRROR}:Mirror._written", "group.flush()", "pass", (_CRASH,)),
)
