"""Defects of restores, and of what another writer's rename has put in the place of a snapshot of ours."""

from tests.sabotage.defect import Defect

_STEPS = "tests/crash/test_every_step.py"
_PUBLISHING = "tests/protocol/test_publishing.py"
_KNOWN = "tests/protocol/test_what_is_known.py"
_RETIRE = "tests/protocol/test_retire.py"
_COPIES = "tests/protocol/test_copies.py"
_RUNS = "tests/protocol/test_runs.py"
_LOST_NAMES = "tests/storage/test_lost_replies.py"
_REPLACED = "tests/table/test_replaced_snapshots.py"
_UNANSWERED = "tests/table/test_unanswered.py"
_ALONE = "tests/advice/test_state_alone.py"
_MARKS = "tests/table/test_alone_marks.py"

OF_RESTORES = (
    # -- restore
    Defect("pending records are left alone", "protocol/restore.py:plan_restore",
           "ahead = [s for s in retained if s > base]", "ahead = []", (_STEPS,)),
    Defect("a rollback is not noticed", "protocol/restore.py:plan_restore",
           "len(replaced) < len(lost) and options.on_rollback != ON_ROLLBACK_REPUBLISH", "False",
           (_PUBLISHING, "tests/table/test_replaced_snapshots.py")),
    Defect("C3: records of another table are published", "protocol/restore.py:_check_identity",
           "state.table_id != to.table_id", "False", (_KNOWN, _RUNS)),
    Defect("A9: files that are there prove that a record is pending", "protocol/restore.py:_decide",
           "committer.sees_all_since(unsure[0])", "True", (_KNOWN, _RUNS)),
    Defect("A9: the base of a record is not looked at", "sinks/history_of.py:is_retained_since",
           "base is not None and _are_whole(table.snapshots.ids(), base)", "True", (_KNOWN, _RUNS)),
    Defect("A10: an overwrite deletes what others wrote since", "sinks/history_of.py:still_meant",
           "        _check_unchanged(table, committable, covers, word)\n", "        pass\n", (_KNOWN, _RUNS)),
    Defect("A10: our own commits are taken for others'", "sinks/history_of.py:_is_of",
           "if said is None:", "if said is not None:", (_KNOWN, _RUNS)),
    Defect("A5: what expired unread is complete", "table/states.py:StatesReader._was_complete",
           "return said == _COMPLETE", "return True", (_KNOWN, _RUNS)),
    Defect("A5: the next commit forgets that it is incomplete", "table/states.py:States.properties",
           "_COMPLETE if self.complete else _INCOMPLETE", "_COMPLETE", (_KNOWN, _RUNS)),
    Defect("states of others are not carried forward", "table/states.py:States.properties",
           "if name != application", "if False", ("tests/table/test_many_writers.py", _RETIRE)),
    Defect("A6: a journal without its identity knows all", "storage/journal_identity.py:identify", "published if behind or anew else 0", "published if behind else 0", (_RUNS,)),
    Defect("A6: an older copy of the journal keeps its identity", "storage/journal_identity.py:identify",
           "behind and known.began < published", "False", (_KNOWN, _COPIES)),
    Defect("the journal of another table is taken", "protocol/two_phase.py:TwoPhaseCommit._check_journal",
           "elif own is not None or not is_named:", "elif own is not None and is_named:", (_COPIES,)),
    Defect("a lost table of several is told as one table's", "sinks/chains.py:Chains.check_there",
           'if lost.kind not in ("table.gone", "table.recreated"):', "if True:", ("tests/advice/test_lost_tables.py",)),
    Defect("the warehouse's journals are not asked for other names", "sinks/name_before.py:NameBefore.others",
           "if last is not None and (", "if False and (", ("tests/advice/test_lost_tables.py",)),
    Defect("one of several tables speaks for all of them", "sinks/name_before.py:NameBefore.others",
           "known.state.sequence <= last.state.sequence and", "known.state.sequence < last.state.sequence and", ("tests/crash/test_many_accidents.py",)),
    Defect("one of several tables speaks for all of them where the journal is lost", "protocol/renamed.py:may_lead_on",
           "not other.is_whole or ", "", ("tests/crash/test_many_accidents.py",)),
    Defect("a journal that went on in another way than the table is taken", "protocol/two_phase.py:TwoPhaseCommit._check_journal",
           "elif own is not None or not is_named:", "elif not is_named:", (_COPIES,)),
    Defect("an application with pending rows is retired", "sinks/retire.py:retire",
           "        _check_settled(root, journal, last)\n", "", (_RETIRE,)),
    Defect("a query into several tables with pending rows is retired", "sinks/retire.py:_of_several_tables",
           "        _check_settled(folder, journal, None)\n", "", (_RETIRE,)),
    Defect("a word for the first of several records is one for all", "protocol/restore.py:_from_journal",
           "is_all = known >= len(unsure)", "is_all = True", ("tests/advice/test_history.py",)),
    Defect("a running query does not know what it has not published", "protocol/restore.py:_from_journal",
           " and c.state.sequence not in untried", "", ("tests/protocol/test_what_is_known.py",)),
    Defect("where the rows of a record are is not told", "protocol/restore.py:places_of_rows",
           "record.files and not gone", "False", ("tests/advice/test_history.py",)),
    Defect("two words of one record take turns", "protocol/restore.py:_decide",
           "{token_of(record, MAY_OVERWRITE) for record in unsure}", "set()",
           ("tests/advice/test_history.py::test_an_overwrite_of_which_nobody_knows_whether_it_was_published_and_others_have_written",)),
    # -- no reply to publishing, and another writer's rename over it
    Defect("files that others built on are added again after a lost reply", "table/commit.py:TableCommit._try_once",
           "tries.unanswered and is_built_on(", "False and is_built_on(", (_UNANSWERED, _REPLACED)),
    Defect("a name that was replaced before it was read back is lost", "storage/file_io.py:is_there",
           "found != data and replaceable and", "False and", (_LOST_NAMES, _REPLACED)),
    Defect("what cannot be told after a lost reply is published", "table/unanswered.py:is_built_on",
           "if seen or not _is_unknown_since(table, wanted, first, newest.id):", "if False:", (_UNANSWERED,)),
    Defect("a snapshot that is gone names nothing", "table/unanswered.py:_is_unknown_since",
           "snapshot is None or", "snapshot is not None and", (_UNANSWERED,)),
    # -- a state that was published alone, and went
    Defect("a state that was published alone is one with its rows", "sinks/paimon.py:PaimonCommitter._publish",
           'alone=done.may_be_alone or committable.payload.get("alone", False)', "alone=False", (_ALONE,)),
    Defect("a state that is found where the mark was torn is one with its rows", "sinks/history_of.py:where_is",
           "alone=_says_state_alone(table, found, committable)", "alone=False", (_ALONE,)),
    Defect("rows went with the state that had been published alone", "protocol/restore.py:_without_their_state",
           "if sequence not in marks or marks[sequence].alone", "if False", (_ALONE,)),
    Defect("one file that is there is not a proof for all of its record", "protocol/restore.py:_without_their_state",
           "if committer.mentions(alone[number - 1])", "if False", (_ALONE,)),
    Defect("what is there without its state is given up unasked", "sinks/give_up.py:_Look._alone",
           "not self._committer.mentions(record) and not self._committer.sees_all_since(record)", "False", (_ALONE,)),
    Defect("a state alone among those of a group is one with its rows", "sinks/records.py:_as_one",
           'any(c.payload.get("alone") for c in run)', "False", (_MARKS,)),
    Defect("rows that were there are not looked for when a group is published", "sinks/records.py:_as_one",
           '({"held": held} if held else {})', "{}", (_MARKS,)),
    Defect("a state alone after a reply that was lost is one with its rows", "table/commit.py:TableCommit._try_once",
           "request, is_alone = without_files(request), True", "request = without_files(request)", (_MARKS,)),
    Defect("a state alone whose snapshot was replaced is published with its rows", "protocol/restore.py:_from_journal",
           "_without_their_state(sorted({*lost, *replaced}),", "_without_their_state(lost,", (_MARKS,)),
    Defect("a mark of an earlier publishing is one of this", "protocol/publisher.py:Publisher._filter_and_commit",
           "            self._doubt_marks(group)\n", "", (_MARKS,)),
    Defect("a mark that does not say where is one with the rows", "protocol/restore.py:_without_their_state",
           "sequence not in marks or marks[sequence].alone", "sequence in marks and marks[sequence].alone", (_MARKS,)),
    Defect("what a user has seen has its rows in that snapshot", "protocol/committable.py:Committable.without_files",
           '"alone": bool(self.files)', '"alone": held', (_MARKS,)),
    Defect("dead letters do not come again with a state alone", "protocol/committable.py:Committable.without_files",
           "if DEAD_LETTERS in self.payload", "if False", (_MARKS,)),
    Defect("another name takes rows for lost whose state has gone", "sinks/history_of.py:is_undone",
           " and not (mark.alone and were_named(table, names))", "", (_ALONE,)),
    Defect("what a user has seen is asked for in the snapshots", "protocol/restore.py:_states_of",
           "committable.without_files()", "committable.without_files(held=True)", (_ALONE,)),
)
