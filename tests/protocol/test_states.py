"""The life of a checkpoint is one table: a legal step moves it, and any other step raises and changes nothing."""

import itertools

import pytest

from streamsink.errors import Misuse
from streamsink.protocol.states import TRANSITIONS, CheckpointState, State

STEPS = sorted({step for _, step in TRANSITIONS})


@pytest.mark.parametrize("state, step", list(itertools.product(State, STEPS)))
def test_every_pair_of_state_and_step(state, step):
    """All pairs are tried, not only the legal ones."""
    checkpoint = CheckpointState(7, state)
    target = TRANSITIONS.get((state, step))
    if target is not None:
        checkpoint.step(step)
        assert checkpoint.state is target
        return
    with pytest.raises(Misuse) as caught:
        checkpoint.step(step)
    assert caught.value.kind == "checkpoint.step"
    assert checkpoint.state is state


def test_every_state_is_reached_from_new():
    """No state of the table is isolated."""
    reached, frontier = {State.NEW}, [State.NEW]
    while frontier:
        here = frontier.pop()
        for (source, _), target in TRANSITIONS.items():
            if source is here and target not in reached:
                reached.add(target)
                frontier.append(target)
    assert reached == set(State)


def test_nothing_leaves_durable_but_to_published():
    """Once pending, a checkpoint can only be published: there is no way to drop it."""
    assert {target for (source, _), target in TRANSITIONS.items() if source is State.PENDING} == {State.PUBLISHED}
