"""Defects of sinks that write in transactions."""

from tests.sabotage.defect import Defect

_FORM = "tests/sinks/test_two_phase_commit_sink.py"
_WRITING, _TIMEOUTS = "sinks/transactions/writing.py", "sinks/transactions/timeouts.py"

_FILES = "tests/sinks/test_file_sink.py"
_KAFKA, _REFUSALS = "tests/sinks/test_kafka_sink.py", "tests/sinks/test_kafka_refusals.py"
_PUBLISHING = "sinks/kafka/publishing.py:Publishing"
_DIRECTORY = "sinks/directory/file_sink.py:DirectoryCommitter"

OF_SINKS = (
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
           "            self._mark(record.application, record.state)\n", "            pass\n", (_FILES,)),
    Defect("files get their names when they are visible already", f"{_DIRECTORY}.publish",
           "            place_files(self._io, self._sink.path, committable)\n", "", (_FILES,)),
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
)
