"""Defects of a query into several destinations."""

from tests.sabotage.defect import Defect

_STEPS, _ODD = "tests/sinks/test_fan_out.py", "tests/sinks/test_fan_out_accidents.py"
_WHICH = "tests/sinks/test_fan_out_destinations.py"
_JOURNAL, _MEMBERSHIP = "sinks/fan_out/journal.py:FanOutJournal", "sinks/fan_out/membership.py:Membership"
_COMMITTER, _WRITING = "sinks/fan_out/committer.py", "sinks/fan_out/writing.py"
_LAGGING, _BEHIND = "sinks/fan_out/lagging.py:LaggingBranch", "tests/sinks/test_fan_out_lagging.py"
_OPEN = "sinks/fan_out/sink.py:OpenFanOut"

OF_FAN_OUT = (
    Defect("what is recorded and not published does not count when the journal is lost",
           "sinks/fan_out/branch.py:Branch.last_recorded",
           "return newest.state if newest is not None and is_newer else said", "return said",
           (f"{_WHICH}::test_without_the_journal_what_the_destinations_have_recorded_counts",)),
    Defect("a record is marked that a destination lacks", f"{_JOURNAL}.mark_published",
           "if any(branch.published < part.number for branch, part in own):", "if False:",
           (f"{_BEHIND}::test_the_record_is_not_marked_while_one_lacks_it",)),
    Defect("a destination stays behind without a bound", f"{_LAGGING}.check_room",
           "if self._failed is None or self._pending() < self._most:", "if True:",
           (f"{_BEHIND}::test_it_is_bounded",)),
    Defect("a destination that is behind goes on with the newest record", f"{_LAGGING}.publish_up_to",
           "self._try(self._catch_up, OSError, StreamsinkError)",
           "self._begin_anew(); self._queue.begin_behind(self._last); self._failed = None", (_BEHIND,)),
    Defect("a failed publishing is not looked up before the next one", f"{_LAGGING}._catch_up", "self._begin_anew()",
           "pass", (_BEHIND,)),
    Defect("what a dead driver has recorded is not given to the destinations", f"{_MEMBERSHIP}._catch_up",
           "branch.deliver(part, record)", "pass", (_STEPS,)),
    Defect("a part that was published long ago is recorded once more", f"{_MEMBERSHIP}._catch_up",
           " and not self._is_marked(record.state.sequence)", "",
           (f"{_ODD}::test_a_destination_that_is_put_back_with_its_journal_is_noticed",)),
    Defect("a destination that joins again is given what was given up", "sinks/fan_out/membership.py:_since_it_joined",
           "break", "continue",
           (f"{_BEHIND}::test_what_was_given_up_does_not_come_when_the_destination_joins_again",)),
    Defect("an error behind the record lets its files be deleted", f"{_JOURNAL}.create_record",
           "raise OutcomeUnknown(", "raise failed if isinstance(failed, StreamsinkError) else OutcomeUnknown(",
           (f"{_ODD}::test_a_destination_that_is_taken_over_behind_the_record_takes_nothing_from_the_others",)),
    Defect("only the first destination is given a record", f"{_COMMITTER}:FanOutCommitter.publish",
           "in self._parts(committable):", "in self._parts(committable)[:1]:", (_STEPS,)),
    Defect("a mark counts although a destination has lost the record", f"{_JOURNAL}.is_marked",
           " and (self.settled is None or sequence <= self.settled)", "",
           (f"{_ODD}::test_a_snapshot_that_another_writer_replaced_comes_again",)),
    Defect("a destination joins without a word", f"{_MEMBERSHIP}._check_joining",
           "if word in words_of(self._options.accept_as_new):", "if True:", (_WHICH,)),
    Defect("a destination leaves with rows pending", f"{_MEMBERSHIP}._check_leaving",
           "if word not in words_of(self._options.accept_as_seen):", "if False:", (_WHICH,)),
    Defect("what another query has written is taken for ours", f"{_MEMBERSHIP}._catch_up",
           "if mine and (mine[-1][0].number != has or not branch.has(mine[-1][0])):", "if False:", (_ODD,)),
    Defect("without the journal the first destination speaks for all", f"{_MEMBERSHIP}.from_destinations",
           "if _batch(state) != _batch(first):", "if False:", (_ODD,)),
    Defect("one destination has two names", f"{_OPEN}._check_identities", "if other != branch.name:", "if False:",
           (_WHICH,)),
    Defect("two destinations share a journal", "sinks/fan_out/sink.py:FanOut._check_apart", "if other != name:",
           "if False:", (_WHICH,)),
    Defect("what destinations have staged is not flushed", f"{_WRITING}:FanOutGroup.flush", "(*self._groups, self.own)",
           "(self.own,)", (_STEPS,)),
    Defect("what a task has written into another store is not flushed", f"{_WRITING}:FanOutWriter.close", "own.flush()",
           "pass", (f"{_ODD}::test_tasks_flush_what_they_write_into_another_store",)),
    Defect("a running query does not look at each destination", f"{_COMMITTER}:FanOutCommitter.history",
           "branch.look()", "pass",
           (f"{_ODD}::test_a_destination_that_went_back_under_the_query_is_noticed_before_the_next_batch",)),
    Defect("another owner of a destination is not asked about", "sinks/fan_out/branch.py:Branch.check_before_record",
           "self.journal.check_before_record(self._writer, begun.number)", "pass",
           (f"{_ODD}::test_a_query_that_takes_over_a_destination_stops_the_fan_out",)),
)
