"""Bounded runs: each is written once, whatever became of the journal and of the table's history."""

import dataclasses
import re

import pytest

from streamsink.errors import Misuse, StreamsinkError
from streamsink.table.table import open_table
from tests.crash.giving_up import follow
from tests.crash.world import memory_world
from tests.protocol import bounded_runs, history
from tests.protocol.bounded_runs import forget_record, run_job, set_fingerprint, word_in
from tests.protocol.history import expire, expire_before, io_of, mine_of, newest_of, roll_back
from tests.table.foreign import Prepared


@pytest.fixture
def jobs():
    """Three runs of one application, each with rows of its own."""
    world = memory_world(application="batch", restore="restore-and-continue")
    ends = {"monday": (0, 3), "tuesday": (3, 6), "wednesday": (6, 9)}
    for run_id, rows in ends.items():
        run_job(world, run_id, rows)
    return world, ends


def test_a_run_is_found_in_the_table_when_the_journal_was_deleted(jobs):
    """A6: formerly an old run id was written a second time although every snapshot was there."""
    world, ends = jobs
    io_of(world).delete_tree(f"{world.driver.root}/streamsink/batch")
    for run_id, rows in ends.items():
        run_job(world, run_id, rows)
    assert world.ids() == list(range(9))
    run_job(world, "thursday", (9, 12))
    run_job(world, "monday", (0, 3))  # The new journal does not know it either, and its identity says so.
    assert world.ids() == list(range(12))


def test_a_journal_whose_identity_was_deleted_does_not_answer_for_runs_that_it_never_knew(jobs):
    """The journal was removed, and began anew.
    Then the file that said so was damaged and deleted, as its error advises."""
    world, ends = jobs
    io_of(world).delete_tree(f"{world.driver.root}/streamsink/batch")
    run_job(world, "thursday", (9, 12))
    io_of(world).delete(f"{world.driver.root}/streamsink/batch/journal-1")
    for run_id, rows in ends.items():
        run_job(world, run_id, rows)
    assert world.ids() == list(range(12))


def test_nor_does_it_where_the_table_says_nothing_of_the_application_any_more(jobs):
    """Found by a walk:
    the journal's own records were taken for all that there ever were, and such a run was written a second time."""
    world, ends = jobs
    io_of(world).delete_tree(f"{world.driver.root}/streamsink/batch")
    run_job(world, "thursday", (9, 12))
    table = open_table(io_of(world), world.driver.root, for_writing=False)
    expire_before(table, history.snapshot_of_another(table))
    io_of(world).delete(f"{world.driver.root}/streamsink/batch/journal-1")
    for run_id, rows in ends.items():
        with pytest.raises(Misuse) as refused:
            run_job(world, run_id, rows)
        assert refused.value.kind == "run.undecidable"
    run_job(world, "thursday", (9, 12))
    assert world.ids() == list(range(12))


def test_a_run_is_found_in_the_table_when_the_journal_is_an_older_copy(jobs):
    """A6: the copy does not know the runs since, and formerly nothing said that it was a copy."""
    world, ends = jobs
    io, root = io_of(world), f"{world.driver.root}/streamsink/batch"
    for name in ("record-2.json", "record-3.json", "done-2", "done-3", "runs/tuesday", "runs/wednesday"):
        io.delete(f"{root}/{name}")
    for run_id, rows in ends.items():
        run_job(world, run_id, rows)
    assert world.ids() == list(range(9))


def test_a_run_that_nobody_can_know_is_an_error_with_a_way_on(jobs):
    """A6: the journal is gone and the run's snapshot has expired.
    The token either writes the run or takes it as seen."""
    world, ends = jobs
    io_of(world).delete_tree(f"{world.driver.root}/streamsink/batch")
    expire(world, 1, 2)
    with pytest.raises(Misuse) as refused:
        run_job(world, "monday", (0, 3))
    assert refused.value.kind == "run.undecidable"
    assert world.ids() == list(range(9))
    token = word_in(refused)
    world.driver.options = dataclasses.replace(world.driver.options, accept_as_seen=token)
    run_job(world, "monday", (0, 3))
    assert world.ids() == list(range(9))


@pytest.mark.parametrize("damaged", [[3], [2], [2, 3]], ids=str)
def test_runs_of_damaged_records_that_are_given_up_after_a_rollback_are_written_again(jobs, damaged):
    """Nobody knows any more whose records they were. Formerly their runs were skipped in silence."""
    world, ends = jobs
    for to in range(newest_of(world) - 1, 0, -1):
        roll_back(world, to)
    for number in damaged:
        io_of(world).replace(f"{world.driver.root}/streamsink/batch/record-{number}.json", b"torn", "torn")
    with pytest.raises(StreamsinkError) as refused:
        run_job(world, "wednesday", ends["wednesday"])
    assert refused.value.kind == ("journal.corrupt" if 3 in damaged else "table.rolled-back")
    said = str(follow(world, refused.value))
    assert "un the job" in said and "offsets" not in said
    _run_each(world, ends)
    assert world.ids() == list(range(max(end for _, end in ends.values())))


def test_each_run_that_is_given_up_is_named(jobs):
    """Formerly the text named only the first one, and who ran that again lost the others."""
    world, ends = jobs
    for to in range(newest_of(world) - 1, 0, -1):
        roll_back(world, to)
    with pytest.raises(StreamsinkError) as refused:
        run_job(world, "thursday", (9, 12))
    given_up = follow(world, refused.value)
    assert given_up.runs == ("tuesday", "wednesday") and given_up.checkpoints == ()
    named = re.findall(r"streamsink\.write\(\.\.\., '(\w+)'\)", str(given_up))
    assert named == ["tuesday", "wednesday"]
    for run_id in (*named, "thursday"):
        run_job(world, run_id, {**ends, "thursday": (9, 12)}[run_id])
    assert world.ids() == list(range(12))


def test_a_run_that_is_published_is_not_forgotten_with_a_damaged_record(jobs):
    """Its snapshot has expired, and the record behind it is damaged. Formerly the run was written a second time."""
    world, ends = jobs
    roll_back(world, newest_of(world) - 1)
    expire(world, 1, 1)
    io_of(world).replace(f"{world.driver.root}/streamsink/batch/record-3.json", b"torn", "torn")
    with pytest.raises(StreamsinkError) as refused:
        run_job(world, "wednesday", ends["wednesday"])
    follow(world, refused.value)
    with pytest.raises(Misuse) as asked:
        run_job(world, "monday", ends["monday"])
    assert asked.value.kind == "run.undecidable"
    run_job(world, "tuesday", ends["tuesday"])
    assert world.ids() == list(range(6))


def _run_each(world, ends) -> None:
    """Repeat each run, as new where nobody can tell."""
    for run_id, rows in ends.items():
        try:
            run_job(world, run_id, rows)
        except Misuse as undecidable:
            assert undecidable.kind == "run.undecidable" and run_id != "monday"
            token = re.search(r"accept_as_new='(\w+)'", str(undecidable))[1]
            world.driver.options = dataclasses.replace(world.driver.options, accept_as_new=token)
            run_job(world, run_id, rows)


@pytest.mark.parametrize("pruned", [False, True], ids=["", "records between are pruned"])
def test_runs_that_are_given_up_after_a_rollback_are_written_again(jobs, pruned):
    """Formerly their marks said that they are published, so that each was skipped in silence.
    Nobody knows whose record a pruned one was."""
    world, ends = jobs
    if pruned:
        ends["thursday"] = (9, 12)
        run_job(world, "thursday", ends["thursday"])
    for to in range(newest_of(world) - 1, 0, -1):
        roll_back(world, to)
    with pytest.raises(Misuse) as refused:
        run_job(world, "wednesday", ends["wednesday"])
    assert refused.value.kind == "table.rolled-back"
    assert io_of(world).exists(f"{world.driver.root}/streamsink/batch/record-2.json") is not pruned
    given_up = follow(world, refused.value)
    assert "wednesday" in str(given_up) or "tuesday" in str(given_up)
    _run_each(world, ends)
    assert world.ids() == list(range(max(end for _, end in ends.values())))


def test_a_journal_of_which_all_was_given_up_still_knows_every_run():
    """It has no record any more.
    Formerly that looked like an older copy, and each later run was undecidable once snapshots had expired."""
    world = memory_world(application="batch", restore="restore-and-continue")
    run_job(world, "monday", (0, 3))
    history.other_application(world, "other")
    expire(world, 1, 1)
    base = newest_of(world)
    for run_id, rows in (("tuesday", (3, 6)), ("wednesday", (6, 9))):
        run_job(world, run_id, rows)
    for to in range(newest_of(world) - 1, base - 1, -1):
        roll_back(world, to)
    with pytest.raises(Misuse) as refused:
        run_job(world, "tuesday", (3, 6))
    assert refused.value.kind == "table.rolled-back"
    assert follow(world, refused.value).records == (2, 3)
    for run_id, rows in (("monday", (0, 3)), ("tuesday", (3, 6)), ("wednesday", (6, 9))):
        run_job(world, run_id, rows)
    assert mine_of(world) == list(range(9))


def test_a_run_whose_record_was_pruned_is_undecidable_when_no_snapshot_tells_of_the_application():
    """It was given up while history had expired. Formerly its mark was dropped, and the journal said that it knew every
    run, so that the run was written again."""
    world = memory_world(application="batch", restore="restore-and-continue")
    history.of_others(world)
    run_job(world, "monday", (0, 3))
    Prepared(world, 1).rename()
    base = newest_of(world)
    for run_id, rows in (("tuesday", (3, 6)), ("wednesday", (6, 9))):
        run_job(world, run_id, rows)
    expire(world, 1, base - 1)
    for to in range(newest_of(world) - 1, base - 1, -1):
        roll_back(world, to)
    with pytest.raises(Misuse) as refused:
        run_job(world, "tuesday", (3, 6))
    assert refused.value.kind == "table.rolled-back"
    assert follow(world, refused.value).records == (2, 3)
    with pytest.raises(Misuse) as undecidable:
        history.say_new(world, lambda: run_job(world, "monday", (0, 3)))
    assert undecidable.value.kind == "run.undecidable"
    assert mine_of(world) == [0, 1, 2]


# -- other data under the id of a published run ----------------------------------------------------------------------


@pytest.mark.parametrize("known_by", ["last", "mark", "snapshot"])
@pytest.mark.parametrize("other", ["sources", "plan", "schema", "dates", "rows"])
def test_other_data_under_the_id_of_a_published_run_is_no_repeated_run(known_by, other):
    """Two jobs called streamsink.write under one id. Formerly the second call returned 0, and its rows were lost."""
    world = memory_world(application="batch", restore="restore-and-continue")
    run_job(world, "nightly", (0, 3))
    forget_record(world, known_by)
    before = world.ids()
    if other != "rows":
        set_fingerprint(world, **{other: "another"})
    with pytest.raises(Misuse) as refused:
        run_job(world, "nightly", (3, 7 if other == "rows" else 6))
    assert refused.value.kind == "run.other" and re.search(rf"differs in {other}[^(]*\(found", str(refused.value))
    assert world.ids() == before


@pytest.mark.parametrize("known_by", ["last", "mark", "snapshot"])
def test_a_run_that_had_no_rows_is_not_what_comes_with_rows_later(known_by):
    world = memory_world(application="batch", restore="restore-and-continue")
    run_job(world, "nightly", (0, 0))
    forget_record(world, known_by)
    with pytest.raises(Misuse) as refused:
        run_job(world, "nightly", (0, 3))
    assert refused.value.kind == "run.other" and "rows (found 3, recorded 0)" in str(refused.value)


def test_a_repeated_run_that_has_no_rows_any_more_has_none_to_lose(jobs):
    """Its input was archived."""
    world, _ = jobs
    set_fingerprint(world, sources="an empty folder")
    run_job(world, "monday", (0, 0))
    assert world.ids() == list(range(9))


@pytest.mark.parametrize(
    "changed", [{"spark": "4.2", "plan": "other words"}, {"comparable": False}], ids=["spark", "functions"]
)
def test_what_cannot_be_compared_is_the_run_that_its_id_says(jobs, changed):
    world, ends = jobs
    set_fingerprint(world, **changed)
    for run_id, rows in ends.items():
        run_job(world, run_id, rows)
    assert world.ids() == list(range(9))


@pytest.mark.parametrize(
    "mark", [b"", b'{"fingerprint": {"sour', b"null", b'{"fingerprint": null, "rows": null}'], ids=repr
)
def test_a_mark_of_earlier_code_or_torn_by_a_power_failure_says_that_the_run_is_published(jobs, mark):
    world, ends = jobs
    io_of(world).replace(f"{world.driver.root}/streamsink/batch/runs/monday", mark, "torn")
    set_fingerprint(world, plan="an upgraded job")
    run_job(world, "monday", (0, 3))
    assert world.ids() == list(range(9))


def test_rows_of_a_run_without_one_count_are_not_compared(jobs, monkeypatch):
    """Such a run may, for example, sample at random: repeated, it has other rows."""
    world, _ = jobs
    whole = bounded_runs.job_of
    monkeypatch.setattr(bounded_runs, "job_of", lambda *given: dataclasses.replace(whole(*given), has_one_count=False))
    run_job(world, "monday", (0, 2))
    assert world.ids() == list(range(9))


def test_a_word_says_of_no_other_data_that_it_is_the_run(jobs):
    """The option stays in the job. Formerly the third data set under one id was skipped in silence."""
    world, _ = jobs
    plain = world.driver.options
    for rows in ((0, 4), (0, 5)):
        with pytest.raises(Misuse) as refused:
            run_job(world, "monday", rows)
        assert refused.value.kind == "run.other"
        token = word_in(refused)
        world.driver.options = dataclasses.replace(plain, accept_as_seen=token)
        run_job(world, "monday", rows)
    assert world.ids() == list(range(9))


def test_a_run_that_was_accepted_as_seen_is_counted(jobs):
    """Recorded without rows, it would be taken for a run that had none."""
    world, ends = jobs
    io_of(world).delete_tree(f"{world.driver.root}/streamsink/batch")
    expire(world, 1, 2)
    with pytest.raises(Misuse) as refused:
        run_job(world, "monday", (0, 3))
    token = word_in(refused)
    plain = world.driver.options
    world.driver.options = dataclasses.replace(plain, accept_as_seen=token)
    run_job(world, "monday", (0, 3))
    world.driver.options = plain
    run_job(world, "monday", (0, 3))
    with pytest.raises(Misuse) as refused:
        run_job(world, "monday", (0, 4))
    assert "rows (found 4, recorded 3)" in str(refused.value)
    assert world.ids() == list(range(9))
