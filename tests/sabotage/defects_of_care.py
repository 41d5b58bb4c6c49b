"""Defects of the care of a table: what expires although somebody needs it, and what is left when it dies."""

from tests.sabotage.defect import Defect

_EXPIRY, _TAGS = "tests/table/test_expire_snapshots.py", "tests/table/test_tags.py"
_BESIDE, _BACKGROUND = "tests/crash/test_expire_beside.py", "tests/protocol/test_maintenance.py"
_ORPHANS, _LISTS = "tests/crash/test_orphan_files.py", "tests/table/test_removal.py"
_PLAN, _REMOVAL = "table/care/expire_snapshots.py", "table/care/removal.py"

OF_CARE = (
    Defect("tags of the table keep nothing", "table/history/retained.py:roots",
           "yield from (tag for tag in _tags_below(table.file_io, branch, root) if tag.snapshot.id >= least)", "yield from ()", (_EXPIRY,)),
    Defect("what is in branches keeps nothing", "table/history/retained.py:branches",
           '[name for name in table.file_io.names(folder) if name.startswith(_BRANCH)]', "[]", (_EXPIRY,)),
    Defect("a consumer keeps nothing", f"{_PLAN}:_needed", "() if only_changelogs else consumers(table)", "()", (_EXPIRY,)),
    Defect("the newest state of applications expires", f"{_PLAN}:_needed",
           "return needed.with_other(Needed(stated, why))", "return needed", (_EXPIRY,)),
    Defect("files that a pending record names go", f"{_REMOVAL}:unnamed", "needed | staying.names", "staying.names", (_EXPIRY,)),
    Defect("what comes back for a while keeps nothing", f"{_REMOVAL}:protecting", "frozenset(between)", "frozenset()", (_LISTS,)),
    Defect("a list names files of the table that was copied", "table/care/named.py:DataFile.of",
           "table.layout.relative(data_file_path(table, table.known_schema, entry))", "data_file_path(table, table.known_schema, entry)", (_LISTS,)),
    Defect("snapshots since a pending record was made expire", "sinks/paimon/care/needed.py:_pending",
           "Needed(_base(table, place, record), ", "Needed(None, ", (_BESIDE,)),
    Defect("a record that comes again needs nothing", "sinks/paimon/care/needed.py:_pending",
           "(sequence <= published or of_tables or is_certain(journal, sequence))", "True", (_BESIDE,)),
    Defect("journals of several tables are not asked", "sinks/paimon/care/needed.py:_places",
           "yield from _above(table, root, states)", "pass", (_BESIDE,)),
    Defect("the journal of dead letters is not asked", "sinks/paimon/care/needed.py:_places",
           'everywhere or any("@" in name and not name.endswith(SUFFIX) for name in states)', "everywhere", (_BESIDE,)),
    Defect("what is retained is not asked again when the snapshots are gone", f"{_REMOVAL}:_carry_out",
           "unnamed(table, removal, protecting(table, removal.end), needing().files)", "(removal.data, removal.metadata)", (_EXPIRY,)),
    Defect("no list is durable before the first file goes", f"{_REMOVAL}:remove",
           "table.file_io.create_if_absent(path, removal.to_json())", "pass", (_EXPIRY,)),
    Defect("what a dead expiry has left is not finished", f"{_PLAN}:expire",
           "finish(table, everyone)", "finish(table, everyone) if False else type('Nothing', (), {'snapshots': ()})", (_EXPIRY,)),
    Defect("a snapshot that a rollback went back to stays gone", f"{_REMOVAL}:_Heads.delete",
           "self._put_back(gone)", "pass", (f"{_EXPIRY}::test_a_rollback_to_a_snapshot_that_is_just_going",)),
    Defect("a tag is not looked after when it is made", "table/care/tags.py:create_tag",
           "table.snapshots.load(snapshot.id) != snapshot", "False", (_TAGS,)),
    Defect("files of records that are pending are orphans", "table/care/orphan_files.py:_is_needed",
           " or name in needed.files", "", (_ORPHANS,)),
    Defect("files of records that are being made are orphans", "table/care/orphan_files.py:_is_needed",
           "any(attempt in name for attempt in needed.attempts)", "False", (_ORPHANS,)),
    Defect("orphans of any age go", "table/care/orphan_files.py:plan", "at_ms is not None and at_ms < limit", "at_ms is not None", (_ORPHANS,)),
    Defect("a journal that is not found has nothing pending", "sinks/paimon/care/needed.py:needed_of_all", "if missing:", "if False:", (_ORPHANS,)),
    Defect("a journal of the same name is that of the table", "sinks/paimon/care/needed.py:_is_of",
           "return not state.journal_id and bool(journal.retained())", "return True", (_ORPHANS,)),
    Defect("only manifests with names such as ours are read", "table/care/orphan_files.py:_named", "in manifests - read",
           "in {name for name in manifests - read if name.startswith('manifest-') and 'list' not in name}", (_ORPHANS,)),
    Defect("a list outlives the tag that goes with nothing", "table/care/removal.py:remove",
           "not (removal.data or removal.metadata) and", "False and", (_TAGS,)),
    Defect("a table without snapshots keeps nothing of what it went back to", f"{_REMOVAL}:_has_snapshots",
           "not heads or table.snapshots.ids()", "True", (_LISTS,)),
    Defect("journals behind a link are not asked", "sinks/paimon/care/needed.py:_real", "os.path.realpath(path)", "path", (_BESIDE,)),
    Defect("an error of maintenance in the background is not told", "sinks/paimon/care/background.py:BackgroundCare.check",
           "self._error is not None", "False", (_BACKGROUND,)),
    Defect("a query that stops soon never looks after its table", "sinks/paimon/care/background.py:BackgroundCare._wait",
           "self._is_due and self._error is None", "self._is_due and not self._is_stopping and self._error is None", (_BACKGROUND,)),
)
