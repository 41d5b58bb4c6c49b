"""Defects of sinks that write in transactions."""

from tests.sabotage.defect import Defect

_FORM = "tests/sinks/test_two_phase_commit_sink.py"
_WRITING, _TIMEOUTS = "sinks/transactions/writing.py", "sinks/transactions/timeouts.py"

_FILES = "tests/sinks/test_file_sink.py"
_DIRECTORY = "sinks/directory/file_sink.py:DirectoryCommitter"

OF_SINKS = (
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
