"""Defects of sinks that write in transactions."""

from tests.sabotage.defect import Defect

_FORM = "tests/sinks/test_two_phase_commit_sink.py"
_WRITING, _TIMEOUTS = "sinks/transactions/writing.py", "sinks/transactions/timeouts.py"

_ODD = "tests/sinks/test_transactions_accidents.py"

_FILES, _ODD_FILES = "tests/sinks/test_file_sink.py", "tests/sinks/test_file_sink_accidents.py"
_KAFKA, _REFUSALS = "tests/sinks/test_kafka_sink.py", "tests/sinks/test_kafka_refusals.py"
_PUBLISHING = "sinks/kafka/publishing.py:Publishing"
_DIRECTORY = "sinks/directory/file_sink.py:DirectoryCommitter"

_DEATHS, _REFUSED = "tests/databases/test_deaths.py", "tests/databases/test_refused.py"
_ROWS = "tests/databases/test_rows.py"
_DATABASE = "sinks/databases/sink.py:DatabaseSink"
_REMEMBERED = "sinks/databases/remembered.py:Remembered"

OF_SINKS = (
    Defect("rows are gone that a database may lack later", "sinks/transactions/sink.py:OpenTransactions.__init__",
           "keep_staging=keeps", "keep_staging=False", (f"{_DEATHS}::test_a_replica_that_lagged_is_promoted",)),
    Defect("an instant is written as a clock of Spark's session shows it", "sinks/databases/changes.py:plain",
           "return rows if schema == rows.schema else rows.cast(schema)", "return rows",
           (f"{_ROWS}::test_instants_are_in_utc_whatever_the_zone_of_the_session",)),
    Defect("a database commits rows before it remembers them", f"{_DATABASE}.commit_checkpoint",
           "remembered.store(run, checkpoint)", "run.connection.commit(); remembered.store(run, checkpoint)", (_DEATHS,)),
    Defect("a database commits behind any other record", f"{_DATABASE}.commit_checkpoint",
           "if number != checkpoint.expect:", "if False:", (_DEATHS,)),
    Defect("a database commits a record again whose reply was lost", f"{_DATABASE}.commit_checkpoint",
           "if record_id == checkpoint.record_id:", "if False:", (_DEATHS,)),
    Defect("two drivers look at what a database remembers at once", f"{_REMEMBERED}.lock",
           "ask = asked + self.dialect.for_update", "ask = asked", (_DEATHS,)),
    Defect("of two first drivers nobody waits", f"{_REMEMBERED}.lock",
           "found = run(ask, self.target, application).fetchone()\n        return", "found = (0, '')\n        return",
           (_DEATHS,)),
    Defect("a database that was made anew is taken for the same", f"{_REMEMBERED}.identity",
           "return str(run(ask).fetchone()[0])", "return 'the same'", (_REFUSED,)),
    Defect("rows go into a table without transactions", "sinks/databases/fitting.py:Fitting.table_for", "if info.wrong:", "if False:",
           (_REFUSED,)),
    Defect("a change is overtaken by an earlier one", "sinks/databases/changes.py:last_of_keys",
           'aggregate([(_PLACE, "max")])[f"{_PLACE}_max"]', 'aggregate([(_PLACE, "min")])[f"{_PLACE}_min"]', (_ROWS,)),
    Defect("a database is given rows that were not tried", f"{_DATABASE}.check_transactions",
           "check_values(self._data(rows), info, dialect, self.path)", "pass", (_REFUSED,)),
    Defect("the marker is outside of the transaction", f"{_PUBLISHING}._end",
           "        producer.produce(self.target.marker_topic,",
           "        producer.commit_transaction(60)\n        producer.begin_transaction()\n"
           "        producer.produce(self.target.marker_topic,",
           (f"{_KAFKA}::test_an_outcome_that_is_not_known_is_looked_up",)),
    Defect("the marker is not read again behind init_transactions", f"{_PUBLISHING}._publisher",
           "self.markers.newest(number, application, lambda: None)",
           "(self.markers._partitions.get(number) and self.markers._partitions[number].markers.get(application)) "
           "or self.markers.newest(number, application, lambda: None)",
           (f"{_KAFKA}::test_an_outcome_that_is_not_known_is_looked_up",)),
    Defect("a record is known by its number alone", f"{_PUBLISHING}._lacking",
           "marker.record_id == checkpoint.record_id", "marker.number == checkpoint.number",
           (f"{_REFUSALS}::test_a_journal_that_is_lost_while_a_record_is_published_is_noticed",)),
    Defect("publisher 0 is the first one to publish", f"{_PUBLISHING}._commit",
           "sorted(lacking.items(), reverse=True)", "sorted(lacking.items())",
           (f"{_KAFKA}::test_a_driver_that_dies_at_a_call_of_the_client_loses_and_doubles_nothing",)),
    Defect("a part that is published is published again", f"{_PUBLISHING}._lacking",
           "marker.part_rows if marker.part_of == checkpoint.record_id else 0", "0",
           (f"{_KAFKA}::test_a_record_that_is_too_large_for_one_transaction_goes_into_several",)),
    Defect("markers are read to the first open transaction only", "sinks/kafka/markers.py:Markers._read",
           "hidden <= offset", "True", (f"{_KAFKA}::test_the_open_transaction_of_another_hides_no_marker",)),
    Defect("another topic of markers is taken for the first one", "sinks/kafka/sink.py:KafkaSink.identity",
           "ids.append(prepare(self.path, admin, self.marker_topic, self.publishers).topic_id)",
           "prepare(self.path, admin, self.marker_topic, self.publishers)",
           (f"{_REFUSALS}::test_markers_that_were_created_again_say_nothing",)),
    Defect("markers that were deleted are not missed", "sinks/kafka/markers.py:Markers.newest",
           "if known.low:", "if False:", (f"{_REFUSALS}::test_deleted_markers_are_noticed",)),
    Defect("a checkpoint is marked by its own driver alone", f"{_DIRECTORY}.sweep",
           "            self._mark(record.application, record.state.sequence)\n", "            pass\n", (_FILES,)),
    Defect("files get their names when they are visible already", f"{_DIRECTORY}.publish",
           "            place_files(self._io, self._sink.path, committable, keep=self._keeps)\n", "", (_FILES,)),
    Defect("a manifest that was made by somebody else is not seen", "sinks/manifest_log.py:ManifestLog.newest",
           "last is not None and not self._io.exists(self._name(application, last + 1))", "last is not None", (_FILES,)),
    Defect("what a dead driver began stays open", f"{_WRITING}:abort_all",
           "for name in file_io.names(folder):", "for name in ():", (_FORM,)),
    Defect("what could not be aborted is forgotten", f"{_WRITING}:abort_all", "done = False", "done = True", (_FORM,)),
    Defect("a transaction begins unannounced", f"{_WRITING}:TransactionWriter._begin",
           'create_if_absent(self._announced, b"")', "exists(self._announced)", (_FORM,)),
    Defect("a task that outlives its batch leaves a transaction", f"{_WRITING}:TransactionWriter.close",
           "if not self._context.file_io.exists(self._announced):", "if False:", (_FORM,)),
    Defect("a transaction is given up within its timeout", f"{_TIMEOUTS}:Timeouts.heeded",
           "not limit or age < limit", "False", (_FORM,)),
    Defect("a transaction is given up unasked", f"{_TIMEOUTS}:Timeouts.heeded",
           "not of.ignore_failures_after_transaction_timeout", "False", (_FORM,)),
    Defect("a checkpoint is committed over any other", "sinks/transactions/committer.py:TransactionCommitter.publish",
           "if not self._memory.is_published(committable, expect):", "if True:", (_FORM,)),
    Defect("a committed checkpoint is not remembered", "sinks/transactions/committer.py:TransactionCommitter.publish",
           "            self._memory.create(committable, {})\n", "", (_FORM,)),
    Defect("a query of another destination is taken for this one",
           "sinks/transactions/committer.py:TransactionCommitter.others",
           "if last.state.table_id == self._to.table_id", "", (_FORM,)),
    Defect("a journal of another destination is taken", "sinks/transactions/sink.py:OpenTransactions._check_destination",
           "before not in (None, self._sink.path)", "False", (_FORM,)),
    Defect("the folder of a batch goes before its transactions are aborted", "journal/staging.py:Staging._may_go",
           "return self._abandoned(folder, record)", "return True", (_FORM,)),
    Defect("the user context of a try without a record is handed on",
           "sinks/transactions/sink.py:OpenTransactions._before", "if number < checkpoint.sequence", "", (_ODD,)),
    Defect("an author changes what a record keeps", "sinks/transactions/sink.py:_copy",
           "json.loads(json.dumps(context))", "context", (_ODD,)),
    Defect("a slow clock of a task is believed", "sinks/transactions/sink.py:_by_our_clock",
           "min(max(each.begun_ms, begun), now)", "each.begun_ms", (_ODD,)),
    Defect("another table of a database is taken for this one",
           "sinks/transactions/committer.py:TransactionCommitter.history", "state is not None and", "False and", (_ODD,)),
    Defect("a lost journal makes a stranger of a database", "sinks/transactions/sink.py:OpenTransactions.__init__",
           "sink.remembers and identity != sink.path", "False", (_ODD,)),
    Defect("a lost identity is made anew", "sinks/files.py:open_folder",
           'below.startswith("../")', "False", (_ODD_FILES,)),
    Defect("a row is an empty line", "sinks/directory/file_formats.py:_Lines.write",
           "rows.num_columns == 1 and", "False and", (_ODD_FILES,)),
    Defect("files of a lost journal stay beside those of the record", f"{_DIRECTORY}._begin",
           "in sorted(left)", "in ()", (_ODD_FILES,)),
    Defect("files become larger than the store can name", "sinks/directory/file_sink.py:OpenDirectory.writing",
           "int(_ENDS_AT * largest) if largest else sys.maxsize", "sys.maxsize", (_ODD_FILES,)),
)
