"""Bounded runs that come again over other files:
their rows are compared, and where that is not possible their user is asked."""

import dataclasses

import pytest

from streamsink.errors import Misuse
from streamsink.protocol import run_inputs
from streamsink.protocol.same_query import QueryComparison
from tests.crash.world import memory_world
from tests.protocol import bounded_runs
from tests.protocol.bounded_runs import forget_record, run_job, set_fingerprint, word_in

OLD, NEW = frozenset({"monday/a", "monday/b"}), frozenset({"tuesday/a", "tuesday/b"})
SAME, OTHER, UNKNOWN = (
    QueryComparison((), ()),
    QueryComparison(("the rows in them",), ()),
    QueryComparison((), ("nobody remembers them",)),
)


def _reading(monkeypatch, world, files: frozenset[str] | None, compared: QueryComparison = SAME) -> None:
    whole = bounded_runs.job_of
    monkeypatch.setattr(
        bounded_runs,
        "job_of",
        lambda *given: dataclasses.replace(whole(*given), inputs=files and run_inputs.digests(files)),
    )
    world.driver.compared = compared


@pytest.mark.parametrize("known_by", ["last", "mark", "snapshot"])
@pytest.mark.parametrize(
    "files, compared, says",
    [
        (NEW, OTHER, "differs in the files that it reads and the rows in them"),
        (OLD | NEW, OTHER, "the rows in them"),
        (NEW, UNKNOWN, "cannot be told (nobody remembers them)"),
        (NEW | {"monday/a"}, UNKNOWN, "cannot be told"),
        (NEW, SAME, None),
        (OLD | NEW, UNKNOWN, None),
        (OLD, OTHER, None),
        (None, OTHER, None),
    ],
)
def test_a_run_that_reads_other_files(known_by, files, compared, says, monkeypatch):
    """Its rows decide where they can be compared.
    Where they cannot, files that only came beside the first ones make no difference."""
    world = memory_world(application="batch", restore="restore-and-continue")
    _reading(monkeypatch, world, OLD)
    run_job(world, "nightly", (0, 3))
    forget_record(world, known_by)
    before = world.ids()
    _reading(monkeypatch, world, files, compared)
    if says is None:
        run_job(world, "nightly", (3, 6))
    else:
        with pytest.raises(Misuse) as refused:
            run_job(world, "nightly", (3, 6))
        assert refused.value.kind == "run.other" and says in str(refused.value)
    assert world.ids() == before


def test_a_word_says_of_no_other_files_that_they_are_the_run(monkeypatch):
    world = memory_world(application="batch", restore="restore-and-continue")
    _reading(monkeypatch, world, OLD)
    run_job(world, "nightly", (0, 3))
    for file in ("tuesday", "wednesday"):
        _reading(monkeypatch, world, frozenset({file}), OTHER)
        with pytest.raises(Misuse) as refused:
            run_job(world, "nightly", (3, 6))
        world.driver.options = dataclasses.replace(world.driver.options, accept_as_seen=word_in(refused))
        run_job(world, "nightly", (3, 6))
    assert world.ids() == list(range(3))


def test_a_word_for_another_program_says_nothing_of_files_that_come_later(monkeypatch):
    """Found by a walk: the word was left in the job, and later other rows of the same number were skipped."""
    world = memory_world(application="batch", restore="restore-and-continue")
    _reading(monkeypatch, world, OLD)
    run_job(world, "nightly", (0, 3))
    set_fingerprint(world, plan="an upgraded job")
    with pytest.raises(Misuse) as refused:
        run_job(world, "nightly", (0, 3))
    world.driver.options = dataclasses.replace(world.driver.options, accept_as_seen=word_in(refused))
    run_job(world, "nightly", (0, 3))
    _reading(monkeypatch, world, NEW, OTHER)
    with pytest.raises(Misuse) as refused:
        run_job(world, "nightly", (3, 6))
    assert refused.value.kind == "run.other" and world.ids() == list(range(3))


def test_of_many_files_a_table_keeps_little():
    """It keeps as much of a million files as of nine."""
    many = run_inputs.digests(f"file:/in/{number}" for number in range(1000))
    kept = run_inputs.kept(many)
    assert len(kept) == 9 and sum(map(len, kept)) <= 200 and set(kept[1:]) <= many
    assert len(run_inputs.kept(frozenset())) == 1 and run_inputs.kept(None) == ()
