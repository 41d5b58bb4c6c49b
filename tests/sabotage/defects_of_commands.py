"""Defects of the command line: of the replay of dead letters, and of what is done beside a query that lives."""

from tests.sabotage.defect import Defect

_PLANS, _TESTS = "operations/letters/plans.py", "tests/cli/test_replay.py"
_ACCIDENTS = "tests/cli/test_replay_accidents.py"
_ONE_FILE = "tests/cli/test_one_file.py"
_ONCE = f"{_TESTS}::test_letters_that_fit_after_a_fix_are_written_once"
_DIED = f"{_TESTS}::test_a_replay_that_died_anywhere_is_ended_by_the_next_one"
_LOST = f"{_TESTS}::test_a_lost_journal_of_replays_is_an_error_and_its_backup_helps"
_MENDING = "tests/cli/test_mending.py::test_nothing_is_done_while_the_driver_lives"

OF_COMMANDS = (
    Defect("letters of a record that a restore took out are replayed without a question", "operations/letters/replay.py:_wanted",
           "unknown_record(target, table, states, _states(target)) if of_one else 0", "0",
           (f"{_ACCIDENTS}::test_a_table_that_was_restored_has_letters_in_two_tables",)),
    Defect("letters of two tables of one name are replayed without a question", "operations/letters/replay.py:_wanted",
           "len(ids_of(states, chosen.target, chosen.application)) < 2", "True", (f"{_ACCIDENTS}::test_a_table_that_was_loaded_again_has_letters_of_two",)),
    Defect("nobody remembers which letters were replayed", f"{_PLANS}:_add",
           "done.update(_read_plan(file_io, os.path.join(folder, run_id)))", "pass", (_ONCE,)),
    Defect("a plan counts whose run was never recorded", f"{_PLANS}:_add",
           "if is_published or run_id in pending:", "if True:", (_DIED,)),
    Defect("a replay that is pending is announced once more", f"{_PLANS}:_add",
           "if is_published or run_id in pending:", "if is_published:", (_DIED,)),
    Defect("a replay whose run has no mark yet is not known", f"{_PLANS}:_add",
           "is_last or bool(", "bool(", (_DIED,)),
    Defect("a lost journal of replays is taken for a new one", f"{_PLANS}:done_by_all",
           "if name in replays | {application} and published != base and name not in lost:", "if False:",
           (_LOST,)),
    Defect("another name hides the lost journal of a replay", f"{_PLANS}:done_by_all",
           "if name in replays | {application} and", "if name == application and",
           (f"{_ACCIDENTS}::test_another_name_does_not_hide_a_lost_journal",)),
    Defect("a replay is retired, and its letters are written again", "commands/retire.py:check_no_replays",
           "if journal.replays() or is_of_replay(last):", "if False:",
           (f"{_ACCIDENTS}::test_a_replay_is_not_retired",)),
    Defect("a replay whose journal is lost is retired", "commands/retire.py:check_no_replays",
           "if journal.replays() or is_of_replay(last):", "if journal.replays():",
           (f"{_ACCIDENTS}::test_a_replay_is_not_retired",)),
    Defect("of letters that are alike one counts for all", "operations/letters/selection.py:left",
           "still[letter.digest] -= 1", "pass", (f"{_TESTS}::test_letters_that_are_alike_are_counted_one_by_one",)),
    Defect("a column that is added makes other letters", "operations/letters/selection.py:_letter",
           "if each[1] is not None", "if True",
           (f"{_TESTS}::test_a_letter_stays_the_same_when_its_table_gets_a_column",)),
    Defect("bytes in a dead letter come back as their mark's text", "operations/letters/from_json.py:_atom",
           'return base64.b64decode(value["base64"], validate=True), pa.binary()', 'return value["base64"], pa.string()',
           ("tests/cli/test_letters_json.py",)),
    Defect("a replayed number is rounded", "operations/letters/from_json.py:_atom", "and _is_single(value)", "",
           ("tests/cli/test_letters_json.py",)),
    Defect("a journal that knows what was replayed is discarded", "operations/discarding.py:_why_not_journals",
           "if file_io.names(os.path.join(place, JOURNAL_DIR, name, REPLAYS)) and is_table(file_io, place):", "if False:",
           (f"{_ONE_FILE}::test_a_journal_that_knows_what_was_replayed_stays",)),
    Defect("a journal is discarded while its driver lives", "operations/discarding.py:_why_not_journals",
           "if look.state in (ALIVE, UNKNOWN):", "if False:",
           (f"{_ONE_FILE}::test_a_journal_goes_only_without_a_driver_and_says_what_goes_with_it",)),
    Defect("what is whole and needed is discarded", "operations/discarding.py:discard", "if kept:", "if False:",
           (f"{_ONE_FILE}::test_what_is_needed_or_is_not_ours_stays",)),
    Defect("a torn copy is taken for a backup", "operations/restoring.py:restore", "if problem:", "if False:",
           (f"{_ONE_FILE}::test_what_is_whole_is_not_replaced_nor_is_a_torn_copy_taken",)),
    Defect("a whole file is replaced by another copy", "operations/restoring.py:restore",
           "if here != data and not problem_with(here, target):", "if False:",
           (f"{_ONE_FILE}::test_what_is_whole_is_not_replaced_nor_is_a_torn_copy_taken",)),
    Defect("the checkpoint of a stateful query is rewound", "operations/checkpoints.py:rewind",
           "if file_io.entries(os.path.join(checkpoint, _STATE)):", "if False:",
           (f"{_ONE_FILE}::test_a_checkpoint_is_rewound_where_its_rows_are_planned_again",)),
    Defect("the hold of a driver that lives is released", "operations/holds.py:_not_alive",
           "if found.state == ALIVE:", "if False:", (_MENDING,)),
)
