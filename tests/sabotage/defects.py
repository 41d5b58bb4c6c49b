"""One-line defects, each of which takes away a guard of the promise. Anchored by function and guard, never by line.

A defect that no longer applies is a failure: then the guard has moved, and so must the defect.
"""

import ast
import textwrap
from dataclasses import dataclass
from pathlib import Path

PROTOCOL, STORAGE, TABLE, SINKS = "protocol", "storage", "table", "sinks"


@dataclass(frozen=True)
class Defect:
    """name: what is broken. at: file below ``streamsink/`` and function in it, as "protocol/x.py:Class.method".

    guard: text that stands exactly once in that function. instead: what takes its place. caught_by: the tests to ask, fastest first.
    """

    name: str
    at: str
    guard: str
    instead: str
    caught_by: tuple[str, ...]

    @property
    def file(self) -> str:
        return self.at.partition(":")[0]

    def applied(self, text: str) -> str:
        """The module's text with the defect in it. Raises LookupError when function or guard are not there, or not once."""
        start, end = _span(ast.parse(text), self.at.partition(":")[2].split("."))
        lines = text.splitlines(keepends=True)
        body = "".join(lines[start:end])
        if body.count(self.guard) != 1:
            raise LookupError(f"{self.name}: '{self.guard}' stands {body.count(self.guard)} times in {self.at}")
        changed = body.replace(self.guard, self.instead)
        ast.parse(textwrap.dedent(changed))
        return "".join([*lines[:start], changed, *lines[end:]])


def _span(tree: ast.AST, names: list[str]) -> tuple[int, int]:
    """First and last line of the function, as a slice."""
    node = tree
    for name in names:
        found = [child for child in ast.iter_child_nodes(node) if getattr(child, "name", None) == name]
        if len(found) != 1:
            raise LookupError(f"there is no '{'.'.join(names)}'")
        node = found[0]
    return node.lineno - 1, node.end_lineno


def read(root: Path, defect: Defect) -> str:
    """The module that the defect is for."""
    return (root / "streamsink" / defect.file).read_text(encoding="utf-8")


_STEPS = "tests/crash/test_every_step.py"
_CALLS = "tests/crash/test_every_call.py"
_RANGES, _PROOF = "tests/table/test_position_ranges.py", "tests/spark/test_position_proof.py"
_TWO_PHASE = "tests/protocol/test_two_phase.py"
_PUBLISHING = "tests/protocol/test_publishing.py"
_KNOWN = "tests/protocol/test_what_is_known.py"
_ONCE = "tests/protocol/test_once_a_run.py"
_ADMISSION = "tests/protocol/test_admission.py"
_IDENTITY = "tests/protocol/test_identity.py"
_POSITIONS = "tests/protocol/test_positions.py"
_OFFSETS = "tests/table/test_starting_offsets.py"
_EARLIER = "tests/compat/test_earlier_code.py"
_RENAMED = "tests/protocol/test_renamed.py"
_RETIRE = "tests/protocol/test_retire.py"
_COPIES = "tests/protocol/test_copies.py"
_SAME = "tests/protocol/test_same_query.py"
_PLAN_TEXT = "tests/protocol/test_plan_text.py"
_LEFTOVERS = "tests/table/test_leftovers.py"
_LATE = "tests/table/test_expired_base.py"
_SLEEPERS = "tests/protocol/test_sleepers.py"
_LOST_NAMES = "tests/storage/test_lost_replies.py"
_FILES = "tests/protocol/test_files.py"
_FILE_LOG = "tests/protocol/test_file_log.py"
_RUNS = "tests/protocol/test_runs.py"
_KNOWN_FILES = "tests/storage/test_known_files.py"
_LOST = "tests/crash/test_lost_checkpoints_of_files.py"
_NAMES = "tests/crash/test_names.py"
_PLACES = "tests/crash/test_places.py"
_HANDED = "tests/crash/test_handed_over.py"
_ROOM = "tests/crash/test_no_room.py"
_GIVE_UP = "tests/crash/test_give_up.py"
_GIVE_UP_TABLES = "tests/crash/test_give_up_tables.py"
_WAITS = "tests/protocol/test_waits.py"
_TABLE_OPTIONS = "tests/protocol/test_table_options.py"
_REPLACED = "tests/table/test_replaced_snapshots.py"
_WHOLE = "tests/table/test_whole.py"

DEFECTS = (
    # -- the order of a batch
    Defect("the replay is written again", "protocol/micro_batch.py:QueryRun._settle",
           "decision.verdict is Verdict.SKIP", "decision is None", (_STEPS, _ADMISSION)),
    Defect("published before the record", "protocol/micro_batch.py:QueryRun._settle",
           "self.protocol.pre_commit(checkpoint, files, payload, group)", "self.protocol.commit()", (_STEPS,)),
    Defect("the record is never published", "protocol/micro_batch.py:QueryRun._settle",
           "        self.protocol.commit()\n", "", (_STEPS, _PUBLISHING)),
    Defect("a failed batch leaves its files", "protocol/micro_batch.py:QueryRun._settle",
           "                self.protocol.abort(checkpoint, group)\n", "", (_TWO_PHASE, "tests/crash/test_errors_and_torn_writes.py")),
    Defect("a start does not restore", "protocol/micro_batch.py:QueryRun.start",
           "protocol.restore(query, IdSource().new_id)", "protocol._writer", (_STEPS,)),
    Defect("A1: the second part of a batch is a replay", "protocol/micro_batch.py:QueryRun._check_once",
           "batch.batch_id > self._returned", "batch.batch_id >= 0", (_ONCE,)),
    Defect("A1: calls at one time", "protocol/micro_batch.py:QueryRun.micro_batch",
           "not self._one_call.acquire(blocking=False)", "self._one_call.acquire(blocking=False) and False", (_ONCE,)),
    # -- admission
    Defect("rows of an overlap are taken for new", "protocol/admission.py:_admit_numeric",
           "if not relation.overlap:", "if True:", (_ADMISSION,)),
    Defect("a gap is passed over", "protocol/admission.py:_admit_numeric",
           "if relation.gap or relation.unread:", "if relation.unread:", (_ADMISSION,)),
    Defect("whatever comes is the next batch", "protocol/admission.py:_admit_opaque",
           "is_next = _follows(batch, last)", "is_next = True", (_ADMISSION,)),
    Defect("batches may be left out", "protocol/admission.py:_follows",
           "(before.query, before.checkpoint_id + 1) == (batch.query, batch.batch_id)", "before.query == batch.query", (_ADMISSION,)),
    Defect("a replay with other positions", "protocol/admission.py:_replay_of",
           "if same_ranges(batch.sources, last.sources) else None", "", (_ADMISSION,)),
    Defect("a first batch in the middle of a checkpoint", "protocol/admission.py:_admit_first",
           "options.adopt_from_batch == batch.batch_id", "batch.batch_id >= 0", (_ADMISSION,)),
    Defect("a token accepts every accident", "protocol/admission.py:_accepted",
           "options.accept_as_new == word", "options.accept_as_new", (_ADMISSION, "tests/e2e/test_accidents_checkpoint.py")),
    Defect("A6: a run that nobody knows is new", "protocol/admission.py:_admit_job",
           "if published is None:", "if False:", (_KNOWN, _RUNS)),
    Defect("A6: a new journal answers for runs before it", "protocol/two_phase.py:TwoPhaseCommit._run_published",
           "self._journal.began == 0", "True", (_KNOWN, _RUNS)),
    Defect("A11: a name is the identity of a query", "protocol/admission.py:_check_not_renamed",
           "last.query != batch.query", "True", (_RENAMED,)),
    Defect("A11: a published batch may be adopted", "protocol/admission.py:_check_not_renamed",
           "options.adopt_from_batch == batch.batch_id == following", "options.adopt_from_batch == batch.batch_id", (_RENAMED,)),
    # -- positions and their identity
    Defect("A2: a topic that is another one is the same", "protocol/continuity.py:changes",
           "if change is not None:", "if False:", (_IDENTITY,)),
    Defect("A2: a topic's id is not compared", "protocol/recorded.py:TopicRecord.agrees",
           "same_id(self.topic_id, source.topic_id(self.topic))", "True", (_IDENTITY,)),
    Defect("A2: a cluster's id is not compared", "protocol/recorded.py:TopicRecord.agrees",
           "same_id(self.cluster, source.cluster)", "True", (_IDENTITY,)),
    Defect("A2: an id that is not known is another one", "protocol/positions.py:same_id",
           "not one or not other or ", "", (_IDENTITY, _POSITIONS)),
    Defect("A2: ids are not recorded", "protocol/recorded.py:_moved",
           "return TopicRecord(key, topic, cluster, topic_id,", "return TopicRecord(key, topic, '', '',", (_POSITIONS, _IDENTITY)),
    Defect("A2: a batch of another topic is a replay", "protocol/admission.py:admit",
           "if not any(change.other_topic for change in changed):", "if True:", (_IDENTITY,)),
    Defect("A2: an end below its start is passed over", "protocol/continuity.py:_shrunk",
           "if not backwards and not behind:", "if not behind:", (_IDENTITY,)),
    Defect("A2: a newest offset below the record is passed over", "protocol/continuity.py:_shrunk",
           "if not backwards and not behind:", "if not backwards:", (_IDENTITY,)),
    Defect("A2: a topic recreated within a run is recorded", "protocol/micro_batch.py:QueryRun._settle",
           "                self._check_sources(batch, rows.looked_at_again(batch))\n", "", (_IDENTITY,)),
    Defect("A2: a reset drops every topic's record", "protocol/continuity.py:reset",
           "recorded = recorded.without(change.records)", "recorded = Recorded()", (_IDENTITY,)),
    Defect("A2: a reset outlives its accident", "protocol/admission.py:reset_token",
           "past.last.record_id if past.last", "'' if past.last", (_IDENTITY,)),
    Defect("A2b: an unknown partition may begin anywhere", "protocol/admission.py:_admit_numeric",
           "if relation.gap or relation.unread:", "if relation.gap:", (_IDENTITY,)),
    Defect("A8: sources of one topic share a record", "protocol/recorded.py:Recorded.known",
           "if record.source == key]", "if False]", (_IDENTITY,)),
    Defect("A8: rows of several sources are filtered by one position", "protocol/admission.py:_admit_numeric",
           "if relation.ambiguous:", "if False:", (_IDENTITY,)),
    Defect("A8: starting_offsets takes one source's position for all", "sinks/offsets.py:_text",
           "if known.setdefault(part, at) != at:", "if known.setdefault(part, at) is None:", (_OFFSETS,)),
    Defect("recorded positions go back", "protocol/recorded.py:Recorded.advanced",
           "self._with_ends(sources, max)", "self.ending_with(sources)", (_ADMISSION,)),
    # -- owners and fences
    Defect("no look at the owner before a batch", "protocol/two_phase.py:TwoPhaseCommit.admit",
           "        self._store.check_owner(self._writer)\n", "", (_TWO_PHASE, "tests/storage/test_accidents.py")),
    Defect("publishing without the fence", "protocol/publisher.py:Publisher._publish",
           "fence=lambda: self._store.check_owner(self._writer)", "fence=lambda: None", (_TWO_PHASE,)),
    Defect("an epoch is given twice", "storage/owners.py:Owners.claim",
           "max(epochs[-1] if epochs else 0, above) + 1", "max(epochs[-1] if epochs else 0, above)", (_TWO_PHASE, _STEPS)),
    Defect("an epoch that a new journal gives again is ownership", "storage/owners.py:Owners._is_mine",
           "self._mine is None or self._mine == (epoch, found)", "True", ("tests/storage/test_pending_log.py",)),
    Defect("a second query of the name is let in", "storage/owners.py:Owners.claim",
           "if not self._hold.allows(rival):", "if self._hold.allows(rival) is None:", (_TWO_PHASE, "tests/storage/test_hold.py")),
    Defect("a taken record number is overwritten", "storage/pending_log.py:PendingLog.prepare",
           "if not created:", "if False:", (_TWO_PHASE,)),
    Defect("a higher epoch in the table fences nobody", "sinks/filter_of.py:is_published",
           "if found.epoch > mine.epoch:", "if False:", (_TWO_PHASE, "tests/table/test_commit.py")),
    # -- the filter
    Defect("the filter does not know its own record", "sinks/filter_of.py:is_published",
           "if found.record_id == mine.record_id:", "if False:", ("tests/crash/test_restart.py", "tests/crash/test_dead_publishers.py")),
    Defect("records are published in any order", "sinks/filter_of.py:is_published",
           "if found.sequence != expect:", "if False:", (_TWO_PHASE, _PUBLISHING)),
    Defect("files of a restored record may be in the table", "sinks/paimon.py:PaimonCommitter._publish",
           "check = self._restoring.presence if self._restoring else Presence(self._table.manifests)", "check = None",
           ("tests/protocol/test_restart_cost.py", "tests/table/test_presence.py")),
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
    Defect("A6: an older copy of the journal keeps its identity", "storage/journal_identity.py:identify",
           "behind and known.began < published", "False", (_KNOWN, _COPIES)),
    Defect("the journal of another table is taken", "protocol/two_phase.py:TwoPhaseCommit._identify",
           "published is None or", "True or", (_COPIES,)),
    Defect("an application with pending rows is retired", "sinks/retire.py:retire",
           "        _check_settled(root, journal, last)\n", "", (_RETIRE,)),
    # -- deleting
    Defect("C1: a sweep does not look whether a file is named", "table/deletion.py:delete",
           "_unnamed(table, made, look)", "set(made)", (_LEFTOVERS,)),
    Defect("C1: tags are not looked at", "table/deletion.py:_retained",
           'entry.name.startswith("tag-")', "False", (_LEFTOVERS,)),
    Defect("C1: branches are not looked at", "table/deletion.py:_retained",
           'if name.startswith("branch-")', "if False", (_LEFTOVERS,)),
    Defect("C1: what cannot be read names nothing", "table/deletion.py:_unnamed",
           "        return set()\n    return", "        pass\n    return", (_LEFTOVERS, "tests/table/test_deletion.py")),
    Defect("C1: a lost try's manifests go though others built on them", "table/deletion.py:_named_since",
           "if listed else ()", "if False else ()", ("tests/table/test_unanswered.py",)),
    Defect("C2: a taken name is not read back", "storage/file_io.py:FileIO.create_new",
           'raise FileExistsError(errno.EEXIST, "the name was taken, and is not there any more", path)', "return False", (_LOST_NAMES,)),
    Defect("C2: two names of one file are not compared", "storage/calls.py:PosixCalls.link",
           "return _is_one_file(source, target)", "return False", (_LOST_NAMES,)),
    Defect("C5: what is built on a snapshot does not count", "table/late.py:_check_in_time",
           "following is not None and", "False and", (_LATE,)),
    Defect("C5: another writer's snapshot is taken back", "table/late.py:_check_in_time",
           "table.snapshots.load(snapshot.id) != snapshot", "False", (_LATE,)),
    Defect("a snapshot on one that was rolled back meanwhile stays", "table/late.py:is_base_kept",
           "found.time_millis > snapshot.time_millis", "False", (_LATE,)),
    Defect("a snapshot behind a hole that a rollback made stays", "table/late.py:_check_in_time",
           "ids[0] != snapshot.id or", "False or", (_LATE,)),
    Defect("a first snapshot whose lists are gone stays", "table/late.py:_check_in_time",
           "not table.file_io.exists(table.layout.manifest(snapshot.delta_manifest_list))", "False", (_LATE,)),
    Defect("a late snapshot whose lists are swept stays", "table/late.py:_check_in_time",
           "            delete_late_snapshot(table, snapshot)  # nobody can read it", "            pass  # nobody can read it", (_LATE,)),
    Defect("a table that another one makes between two looks is a strange folder", "table/table.py:create_table",
           " and not is_table(file_io, root):", ":", ("tests/table/test_creation.py",)),
    Defect("a journal says that it knows runs whose records it pruned", "storage/journal_identity.py:go_back",
           "    if pruned:", "    if False:", (_RUNS,)),
    Defect("a journal of which all was given up is taken for an older copy", "storage/journal_identity.py:identify",
           "max(last, known.ended if known else 0)", "last", (_RUNS,)),
    Defect("runs that are given up stay published", "sinks/give_up.py:_unknown_runs",
           "return sorted(given_up)", "return []", (_RUNS,)),
    Defect("C5: a snapshot that came too late stays", "table/late.py:_is_built_on",
           "manifests.identities_of(below) == has", "True", (_LATE,)),
    Defect("a rollback behind expired history is taken for published", "protocol/restore.py:_rolled_back_since",
           "committer.was_rolled_back(mark)", "False", ("tests/protocol/test_what_is_known.py",)),
    Defect("a batch that ends behind the broker's offsets is written", "protocol/continuity.py:beyond",
           "at < end", "False", ("tests/protocol/test_identity.py",)),
    Defect("what another epoch staged for a record's number stays", "storage/staging.py:Staging.orphans",
           "writers.get(number, epoch) == epoch", "True", ("tests/storage/test_pending_log.py",)),
    Defect("B3: what a record may yet name is swept", "storage/staging.py:Staging.orphans",
           "numbers[folder] > last and", "False and", (_SLEEPERS,)),
    Defect("B3: nobody looks who owns the application when all is flushed", "protocol/two_phase.py:TwoPhaseCommit.pre_commit",
           "            self._store.check_owner(self._writer)\n", "", (_SLEEPERS,)),
    Defect("B3: an earlier driver's record stops its successor", "storage/pending_log.py:_taken",
           "other.state.epoch < mine.epoch", "False", (_SLEEPERS,)),
    Defect("B3: what no record can name any more stays", "storage/staging.py:Staging.take",
           "self._left.pop(sequence, [])", "[]", (_SLEEPERS,)),
    Defect("C4: files are published without their schema", "table/commit.py:TableCommit._try_once",
           "if attempt == 1:", "if attempt == 0:", ("tests/protocol/test_missing_schemas.py",)),
    # -- the commit
    Defect("a snapshot that another writer won is taken for ours", "table/publish.py:publish",
           "return Outcome.LOST", "return Outcome.WON", ("tests/table/test_many_writers.py", "tests/table/test_commit.py")),
    Defect("the lists are not flushed before the snapshot", "table/commit.py:TableCommit._try_once",
           "            group.flush()\n", "", (_CALLS, _STEPS)),
    Defect("the record is named before its files are flushed", "protocol/two_phase.py:TwoPhaseCommit.pre_commit",
           "            group.flush()\n", "", (_CALLS, _STEPS, "tests/protocol/test_waits.py")),
    Defect("a recreated table is not noticed", "table/table.py:Table.check_identity",
           "self.schemas.identity() != self.table_id", "False", ("tests/table/test_commit.py", "tests/storage/test_accidents.py")),
    Defect("version 2 looks like version 1 to earlier code", "protocol/committable.py:AppState.to_json",
           '"query_id": self.query', '"query_id": self.query, "query": self.query', (_EARLIER,)),
    # -- the same query
    Defect("A3: rows of another query are filtered", "protocol/admission.py:admit",
           "decision.verdict is Verdict.FILTER", "False", (_SAME,)),
    Defect("A3: an upgraded query is asked what it is", "protocol/query_rules.py:check_same",
           "batch.query == last.query or ", "", (_SAME,)),
    Defect("A3: any token takes a query for the same", "protocol/query_rules.py:check_same",
           "options.accept_as_same == word", "options.accept_as_same", (_SAME,)),
    Defect("A3: what cannot be compared is the same", "protocol/same_query.py:Comparison.same",
           "not self.differs and not self.unknown", "not self.differs", (_SAME,)),
    Defect("A3: the plan is not compared", "protocol/same_query.py:compare",
           '("sources", "schema", "plan") if', '("sources", "schema") if', (_SAME,)),
    Defect("A3: a record does not say which query wrote it", "protocol/two_phase.py:TwoPhaseCommit.pre_commit",
           "fingerprint=batch.fingerprint", "fingerprint=None", (_SAME,)),
    Defect("A3: accepted as new for one batch only", "protocol/query_rules.py:recorded_as_new",
           "last is None or", "True or", (_SAME,)),
    Defect("A3: columns of a plan are all the same", "spark/plan_text.py:canonical",
           '"#{}"', '"#"', (_PLAN_TEXT,)),
    Defect("A4: a lost state goes on", "protocol/query_rules.py:check_state",
           "if not batch.stateful:", "if True:", (_SAME,)),
    Defect("A4: a stateful query may filter", "protocol/query_rules.py:check_query",
           "batch.stateful and given", "False", (_SAME,)),
    Defect("A4: the replay of a stateful query is not computed", "protocol/micro_batch.py:QueryRun._settle",
           "if batch.stateful and", "if False and", (_SAME,)),
    Defect("A4: a join with a static table keeps state", "spark/plan_text.py:is_stateful",
           "_streaming_inputs(plan, index) > 1", "_streaming_inputs(plan, index) > 0", (_PLAN_TEXT,)),
    Defect("A13: results that change are appended", "protocol/query_rules.py:check_query",
           "batch.output_mode == APPEND or", "True or", (_SAME,)),
    # -- files as positions
    Defect("A12: one answer lets the rest of a replay through", "protocol/admission.py:_admit_opaque",
           "is_next and not last.replaying", "is_next", (_FILES, _LOST)),
    Defect("A12: nobody remembers that a batch was accepted as seen", "protocol/admission.py:_accepted",
           "batch.batch_id != END_OF_INPUT and not all_numeric(batch.sources)", "False", (_LOST,)),
    Defect("files are taken for a proof that nothing is missing", "protocol/admission.py:_is_gap",
           "return batch.batch_id != 0 and", "return False and", (_FILES,)),
    Defect("files of another query are taken as seen", "protocol/admission.py:_admit_by_files",
           "    check_same(batch, past.last, past.table, options, word)\n", "", (_LOST,)),
    Defect("files of an earlier query count after accept_as_new", "protocol/files.py:accepted_as_new",
           "return batch.batch_id != END_OF_INPUT, False", "return False, False", (_LOST,)),
    Defect("a path alone is a file", "protocol/files.py:_entry",
           'f"{file.modified_ms}|{text}"', 'f"{text}"', (_FILES,)),
    Defect("what one source has read the other has read too", "protocol/files.py:KnownFiles.look_up",
           "alone and ", "", (_FILES,)),
    Defect("a folder that was moved is new data", "protocol/files.py:check",
           "parts.moved and not parts.seen", "False", (_FILES, _LOST)),
    Defect("the files of an adopted query's past are known", "protocol/files.py:recorded_files",
           "last is not None or batch.batch_id == 0", "True", (_LOST,)),
    Defect("an older copy of the journal knows all files", "protocol/two_phase.py:TwoPhaseCommit._known_files",
           "whole = self._journal.began == 0", "whole = True", (_LOST,)),
    Defect("files of pruned records are forgotten", "storage/pending_log.py:PendingLog.forget",
           "pruned = self._files.keep(self._beyond_retained)", "pruned = self._beyond_retained()[0]", (_KNOWN_FILES, _LOST)),
    Defect("a hole in the files goes unnoticed", "storage/known_files.py:FilesLog._gather",
           "rest != list(range(covered + 1, covered + 1 + len(rest)))", "False", (_KNOWN_FILES,)),
    Defect("files that count are kept with those that do not", "storage/known_files.py:FilesLog._put_together",
           "start - first if first < start <= lot[-1] else len(lot)", "len(lot)", (_KNOWN_FILES,)),
    Defect("a number that Spark left behind has no files", "spark/file_log.py:of_batch",
           "min(before, last - 1)", "last - 1", (_FILE_LOG,)),
    Defect("a row of no file of the batch is new", "spark/file_rows.py:of_new_files",
           "F.raise_error(F.lit(_NO_FILE_OF_THE_BATCH))", "F.lit(True)", ("tests/e2e/test_accidents_files.py",)),
    Defect("A7: rows are not compared with their batch", "table/position_ranges.py:PositionRanges.outside",
           "or self._hold_one_partition(rows)", "or True", (_RANGES,)),
    Defect("A7: nulls are overlooked beside other rows", "table/position_ranges.py:PositionRanges._hold_one_partition",
           "topic.null_count or partition.null_count or offset.null_count", "False", (_RANGES,)),
    Defect("A7: the end of a batch belongs to it", "table/position_ranges.py:_Layer.fits",
           "pc.less(offset, self._end", "pc.less_equal(offset, self._end", (_RANGES,)),
    Defect("A7: a topic's partitions reach into the next topic's", "table/position_ranges.py:_Layer.fits",
           "pc.less(partition, self._size.take(known))", "True", (_RANGES,)),
    Defect("A7: sources without positions are asked for them", "protocol/row_ranges.py:row_ranges",
           "if not all_numeric(sources):", "if not sources:", (_RANGES,)),
    Defect("A7: rows outside are counted and go on", "sinks/position_check.py:judge", "if outside:", "if False:", (_RANGES,)),
    Defect("A7: a task does not look at its rows", "spark/position_proof.py:ProvenWriter.write",
           "self._ranges.outside(batch)", "0", (_PROOF,)),
    Defect("A7: what the JVM says is not counted", "spark/position_proof.py:ProvenWriter.write",
           "pc.sum(batch.column(OUTSIDE)).as_py() or 0", "0", (_PROOF,)),
    Defect("B7: nested arrays keep missing offsets", "table/conform.py:Conform._column",
           "_with_offsets(column)", "column", ("tests/table/test_missing_offsets.py",)),
    # -- the record is a promise
    Defect("B1: names may be as long as they like", "table/folders.py:Folders.of",
           "refused is not None", "False", (_NAMES,)),
    Defect("B1: the writer asks for no folder before it writes", "sinks/promise.py:check",
           "table.file_io.begin_names(folder, staging, group)", "pass", (_PLACES,)),
    Defect("B1: rows without a folder are no dead letters", "table/dead_letters.py:Screen.__call__",
           "if unfit:", "if False:", (f"{_NAMES}::test_such_a_row_is_a_dead_letter",)),
    Defect("B1: a mount is known by its device only", "storage/calls.py:_mount",
           'next((line for line in said if line.startswith("mnt_id:")), "")', '""', (_PLACES,)),
    Defect("B1: a folder is looked at in each batch", "storage/file_io.py:FileIO.begin_names",
           "if folder in self._takes_names:", "if False:", (_WAITS,)),
    Defect("B1: a new folder is durable some time later", "storage/file_io.py:FileIO._begin_names",
           "group.made_dir(missing)", "pass", (_WAITS,)),
    Defect("B1: files grow beyond what the store copies", "table/write.py:_FileSeries.append",
           "self._roll_bytes", "self.spec.target_file_bytes", (f"{_HANDED}::test_files_roll_below_what_the_store_can_copy",)),
    Defect("B1: a file that is too large is recorded", "sinks/promise.py:_check_sizes",
           "most is not None and", "False and", (f"{_HANDED}::test_a_file_that_cannot_be_copied_is_an_error_before_the_record",)),
    Defect("B1: without room publishing fails for good", "sinks/trouble.py:explained",
           "failed.errno not in _KINDS", "True", (_ROOM,)),
    Defect("B1: options of a commit are read after the record", "sinks/paimon.py:PaimonCommitter._check_schema",
           "self._commit.check_options()", "pass", (_TABLE_OPTIONS,)),
    Defect("B4: what tasks say is taken for true", "sinks/promise.py:see",
           "if wrong:", "if False:", (_HANDED,)),
    Defect("B4: sizes of what tasks hand over are not compared", "sinks/promise.py:see",
           "!= file.meta.file_size]", "is None]", (_HANDED,)),
    Defect("B5: a missing number is not noticed", "protocol/restore.py:plan_restore",
           "if missing is not None:", "if False:", (_GIVE_UP,)),
    Defect("B5: what is in the table is published again", "sinks/restoring.py:Restoring._in_the_table",
           "if seen.issuperset(added)", "if False", (_REPLACED,)),
    Defect("B5: what a compaction rewrote is published again", "sinks/restoring.py:Restoring._in_the_table",
           "seen |= named_since(self._table, min(bases), wanted)", "pass", (_REPLACED,)),
    Defect("B8: verify does not look for files of pending records", "sinks/verify.py:_Journal._pending",
           "if not gone:", "if True:", (_GIVE_UP,)),
    Defect("B8: what a snapshot names is given up", "sinks/give_up.py:_check_unpublished",
           "if places:", "if False:", (_GIVE_UP, _GIVE_UP_TABLES)),
    Defect("B8: giving up claims nothing", "sinks/give_up.py:give_up",
           "writer = journal.claim(_CLAIMED_BY, state.epoch if state else 0)", 'writer = type("W", (), {"epoch": max(journal._numbers("owner-", ""))}); journal.read_listing()', (_GIVE_UP,)),
    Defect("B8: a mark outlives its record", "storage/pending_log.py:PendingLog.give_up",
           "self._io.delete(self._done(sequence))", "pass", (_GIVE_UP,)),
    Defect("B8: records before the bad one are given up too", "sinks/give_up.py:_Look._from",
           "return ahead[good:]", "return ahead if good < len(ahead) else []", (_GIVE_UP,)),
    Defect("A14: manifests are not looked for at a start", "table/whole.py:Whole._broken",
           "self._any_broken(newest, metas) or", "", (f"{_WHOLE}::test_a_start_finds_any_manifest_that_is_gone",)),
    Defect("A14: data files are not looked for at a start", "table/whole.py:Whole._broken",
           " or self._data_file_missing(newest, metas)", "", (f"{_WHOLE}::test_a_start_finds_data_files_that_are_gone",)),
    Defect("A14: a running query looks for no manifest", "table/whole.py:Whole._one_broken",
           "if not self._in_turn:", "if True:", (f"{_WHOLE}::test_a_running_query_finds_it_within_as_many_commits_as_there_are_manifests",)),
    Defect("A14: what expires meanwhile is an alarm", "table/whole.py:Whole.look",
           "newest == before or not left", "True", (f"{_WHOLE}::test_files_that_another_writer_removes_rightly_meanwhile_are_no_alarm",)),
    Defect("A14: sizes of lists are not compared", "table/whole.py:Whole._compare",
           "wanted is not None and found != wanted", "False", (f"{_WHOLE}::test_a_start_finds_a_list_that_was_cut",)),
)
