"""The life of one checkpoint as one table. An illegal step raises and changes nothing.

The step's name is the fault point, the event and the row in docs/PROTOCOL.md.
"""

from enum import Enum

from streamsink.errors import Misuse


class State(Enum):
    """Where a checkpoint stands. What a crash there leaves is in docs/PROTOCOL.md."""

    NEW = "new"
    WRITING = "writing"
    FLUSHED = "flushed"
    PENDING = "pending"
    PUBLISHED = "published"
    FORGOTTEN = "forgotten"
    SKIPPED = "skipped"
    ABORTED = "aborted"


TRANSITIONS: dict[tuple[State, str], State] = {
    (State.NEW, "skip"): State.SKIPPED,
    (State.NEW, "write"): State.WRITING,
    (State.WRITING, "flushed"): State.FLUSHED,
    (State.WRITING, "abort"): State.ABORTED,
    (State.FLUSHED, "save"): State.PENDING,
    (State.FLUSHED, "abort"): State.ABORTED,
    (State.PENDING, "publish"): State.PUBLISHED,
    (State.PUBLISHED, "forget"): State.FORGOTTEN,
    # A restart meets a checkpoint as pending; a rollback makes a published one pending again.
    (State.PUBLISHED, "republish"): State.PENDING,
    (State.FORGOTTEN, "republish"): State.PENDING,
}


class CheckpointState:
    """The state of one checkpoint, moved by ``step``."""

    def __init__(self, checkpoint_id: int, state: State = State.NEW):
        self.checkpoint_id = checkpoint_id
        self.state = state

    def step(self, name: str) -> None:
        """Move on. Raises Misuse, and changes nothing, when the table has no such step from here."""
        target = TRANSITIONS.get((self.state, name))
        if target is None:
            raise Misuse(
                f"checkpoint {self.checkpoint_id} is {self.state.value}: it cannot '{name}'", kind="checkpoint.step"
            )
        self.state = target
