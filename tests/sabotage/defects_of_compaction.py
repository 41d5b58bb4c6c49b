"""Defects of compaction: rows that are there twice or not at all, and files that go too early or never."""

from tests.sabotage.defect import Defect

_COMPACTOR = "tests/compaction/test_compactor.py"
_DEATHS = "tests/compaction/test_deaths.py"
_BY_HAND = "tests/compaction/test_by_hand.py"
_PLAN = "tests/compaction/test_plan.py"
_BESIDE = "tests/compaction/test_beside.py"

OF_COMPACTION = (
    Defect("a dead compaction's snapshot stays above a free number", "compaction/compactor.py:Compactor.settle",
           "self._take_back_above(newest, users)", "pass",
           (f"{_DEATHS}::test_a_rollback_at_the_instant_of_its_commit_counts_although_it_dies_then",)),
    Defect("nobody checks the snapshot of a dead compaction", "compaction/compactor.py:Compactor.settle",
           "if newest is not None and newest.commit_user in users:", "if False:",
           (f"{_DEATHS}::test_a_snapshot_of_a_dead_compaction_in_another_history_is_taken_back",)),
    Defect("an input of a compaction stays in the table", "compaction/compactor.py:Compactor._commit_once",
           "for entry in each.task.files]", "for entry in each.task.files[1:]]", (_COMPACTOR,)),
    Defect("an input of a compaction is written twice", "compaction/rewrite.py:_written",
           "for entry in task.files:", "for entry in (*task.files, task.files[0]):", (_COMPACTOR,)),
    Defect("what is lost while rows are written again is not noticed, and rows of the first file are left out",
           "compaction/rewrite.py:_written", "            how.pace()", "            how.pace(); break", (_BY_HAND,)),
    Defect("an input that is gone is committed nevertheless", "compaction/compactor.py:Compactor._commit_once",
           "Changes((*deletes, *adds))", "Changes(tuple(adds))", (_COMPACTOR,)),
    Defect("a compaction is an append", "compaction/compactor.py:Compactor._commit_once",
           "            COMPACT,", '            "APPEND",', (_COMPACTOR,)),
    Defect("of a group all tasks are lost with one", "compaction/compactor.py:Compactor._publish",
           "len(kept) in (0, len(done))", "True",
           (f"{_COMPACTOR}::test_of_a_group_only_the_tasks_are_lost_whose_files_others_have_removed",)),
    Defect("new files are swept while their commit may come", "compaction/attempts.py:_can_come_no_more",
           "number > table.snapshots.known_id()", "False",
           (f"{_COMPACTOR}::test_a_try_that_may_come_is_not_swept",)),
    Defect("who is taken for dead commits nevertheless", "compaction/attempts.py:AttemptGuard.fence",
           "if not _create(self._table, note, _note(self.number)) or not io.exists(_path(self._table, self._attempt.id)):",
           "_create(self._table, note, _note(self.number))\n        if False:", (f"{_COMPACTOR}::test_who_is_taken_for_dead_commits_nothing",)),
    Defect("a sleeper does not look whether its announcement is gone", "compaction/attempts.py:AttemptGuard.fence",
           " or not io.exists(_path(self._table, self._attempt.id))", "",
           (f"{_COMPACTOR}::test_a_try_that_may_come_is_not_swept",)),
    Defect("new files are deleted although a snapshot names them", "table/history/deletion.py:delete_of_compaction",
           "for manifest in _manifests_since(table, since) if unnamed else ():", "for manifest in ():",
           (f"{_COMPACTOR}::test_what_was_committed_and_not_forgotten_stays",)),
    Defect("what a dead compaction has left stays for ever", "compaction/compactor.py:Compactor.settle",
           "attempts.sweep(table, self._own, self._abandoned_ms)", "pass",
           (f"{_COMPACTOR}::test_what_was_committed_and_not_forgotten_stays",)),
    Defect("a compaction that runs elsewhere is swept", "compaction/attempts.py:sweep",
           "Clock().now_ms() - attempt.at_ms < abandoned_ms", "False",
           (f"{_COMPACTOR}::test_what_is_young_is_not_swept",)),
    Defect("a file that a rollback has taken is damage", "compaction/compactor.py:Compactor._do_group",
           "isinstance(failed, Corrupt) and", "False and",
           (f"{_COMPACTOR}::test_a_file_that_others_have_taken_out_while_it_was_to_be_read_is_no_damage",)),
    Defect("a file with an index is compacted", "compaction/plan.py:_is_small",
           "and not file.extra_files", "", (_PLAN,)),
    Defect("a file that only Java can read is compacted", "compaction/plan.py:plan",
           "and is_readable(entry.file.schema_id)", "", (_PLAN,)),
    Defect("a byte is written again with each few batches", "compaction/plan.py:_at_least",
           "filled >= factor * size", "True", (_PLAN,)),
    Defect("an error beside the query is never seen", "compaction/beside.py:Beside.check",
           "if self._failed is not None:", "if False:", (_BESIDE,)),
    Defect("compaction has no budget", "compaction/beside.py:Beside._round_of",
           "if not self._bytes.may_use(task.bytes):", "if False:", (_BESIDE,)),
)
