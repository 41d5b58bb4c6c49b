"""Defects of tables of other lake formats, and of what these share."""

from tests.sabotage.defect import Defect

_FILES, _ICEBERG = "tests/lake_tables/test_files.py", "tests/iceberg/test_accidents.py"
_TABLES, _SUITE = "tests/iceberg/test_tables.py", "tests/iceberg/test_conformance.py"
_WRITER, _PLACES = "sinks/lake_tables/writing.py:LakeWriter", "sinks/lake_tables/attempts.py:Places"
_BACK = "tests/iceberg/test_put_back.py"
_VALUES, _STATISTICS = "tests/iceberg/test_values.py", "sinks/iceberg/statistics.py"
_STATE, _COMMIT = "sinks/iceberg/table_state.py", "sinks/iceberg/commit.py"
_COMMITTER = "sinks/iceberg/committer.py:IcebergCommitter"

OF_LAKES = (
    Defect("an attempt is announced behind its files", f"{_WRITER}._file", "self._announce()",
           "self._io.begin_dir(self._of.folder)", (_FILES,)),
    Defect("an announcement of an attempt is not durable", f"{_WRITER}._announce",
           "self._journal_io.sync_dir(self._of.staging)", "pass", (_FILES,)),
    Defect("a writer goes on whose attempt was swept", f"{_WRITER}._check_announced",
           "not self._journal_io.exists(self._announced)", "False", (_FILES,)),
    Defect("a record's own files are swept", f"{_PLACES}.sweep",
           "record is not None and record.state.record_id == attempt", "False", (_FILES,)),
    Defect("files that the table may name are swept", f"{_PLACES}.sweep",
           "record is None and may_be_named(number, attempt)", "False", (_FILES,)),
    Defect("a description that was changed is believed", f"{_PLACES}.described",
           'hashlib.sha256(data).hexdigest() != described["sha256"]', "False", (_FILES,)),
    Defect("a property counts whatever the table has", f"{_STATE}:standing",
           "_is_lost(table, lineage, said, is_whole=is_whole)", "False", (_ICEBERG,)),
    Defect("a rollback is hidden by another writer", f"{_STATE}:_is_lost",
           "is_whole or any(each.sequence_number <= said.order for each in lineage)", "is_whole", (_ICEBERG,)),
    Defect("a table that was replaced is taken for one whose past has expired", f"{_STATE}:_is_lost",
           "if said.snapshot_id not in log:", "if False:", (_ICEBERG,)),
    Defect("a property that was removed is none", f"{_STATE}:standing", "if mine[0]:", "if False:", (_ICEBERG,)),
    Defect("a record is committed over any other", f"{_COMMITTER}._check_expected", "found != expect", "False",
           (_SUITE,)),
    Defect("a published record is committed again", f"{_COMMITTER}.publish",
           "newest is None or newest.record_id != state.record_id", "True", (_ICEBERG, _SUITE)),
    Defect("who owns the application is not asked", f"{_COMMITTER}.publish", "            fence()\n", "", (_SUITE,)),
    Defect("a commit names files that are gone", f"{_COMMITTER}._missing", "        if gone:", "        if False:",
           (_ICEBERG,)),
    Defect("files are looked for where new ones are written", f"{_COMMITTER}._missing",
           'table_path(str(more.get(DATA_URI, "")))', '""', (_BACK,)),
    Defect("a record that was cherry-picked is published again", f"{_COMMITTER}._missing",
           "table_state.was_picked(table, record)", "False", (_BACK,)),
    Defect("files that somebody has added are added again", f"{_COMMITTER}._missing",
           "names_in(table, folder, more.get(BEHIND))", "set()", (_BACK,)),
    Defect("a commit is made whatever came before it", f"{_COMMIT}:commit", "*transaction._requirements", "*()",
           (_ICEBERG, _SUITE)),
    Defect("a refusal is believed although the commit is there", f"{_COMMIT}:commit",
           "if not _is_there(to, producer.snapshot_id):\n            producer", "if True:\n            producer",
           (_ICEBERG,)),
    Defect("a commit without an answer is taken for done", f"{_COMMIT}:commit",
           "if not _is_there(to, producer.snapshot_id):\n            raise OutcomeUnknown", "if False:\n            raise OutcomeUnknown",
           (_ICEBERG,)),
    Defect("files get the partitions that the table has now", f"{_COMMIT}:_as_of",
           "metadata.default_spec_id != spec_id", "False", (_TABLES,)),
    Defect("files have no ids of fields", "sinks/iceberg/columns.py:_field",
           ", {_ID: str(field.field_id).encode()}", "", (_TABLES,)),
    Defect("partitions by transforms are written as they are", "sinks/iceberg/columns.py:check",
           'str(field.transform) != "identity"', "False", (_TABLES,)),
    Defect("a table is created anew for a query with a past", "sinks/iceberg/sink.py:IcebergSink._check_creation",
           "batch.batch_id not in (0, END_OF_INPUT, options.adopt_from_batch)", "False", (_ICEBERG,)),
    Defect("an older copy of the journal takes files of the table", "sinks/iceberg/sink.py:OpenIceberg._may_be_named",
           "number <= said.state.sequence", "False", (_ICEBERG,)),
    Defect("what an attempt leaves is not swept", "sinks/iceberg/sink.py:OpenIceberg._abandoned",
           "self._places.sweep(folder, record, self._may_be_named)", "True", (_ICEBERG,)),
    Defect("bounds of some row groups count for all", f"{_STATISTICS}:_unbounded", "not found.has_min_max", "False",
           (_VALUES,)),
    Defect("a value that Python does not know keeps its record from being published", f"{_STATISTICS}:_unbounded",
           "_ = found.min, found.max", "pass", (_VALUES,)),
    Defect("a partition that cannot be told is recorded", "sinks/iceberg/columns.py:check_partitions",
           "value.as_py()", "pass", (_VALUES,)),
    Defect("metadata is not durable", "sinks/iceberg/file_io.py:DurableStream.close",
           "self._io.close_output(stream)", "stream.close()", (_SUITE,)),
)
