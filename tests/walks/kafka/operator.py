"""What an operator does whose query into Kafka has stopped: what the error says, to the letter."""

import itertools
import re

from streamsink.errors import Retryable
from tests.e2e.kafka_data import send_to
from tests.sinks.kafka_world import REAL, set_config
from tests.walks.kafka.world import Walked
from tests.walks.model import GONE, Wrong

# By kind of an error, what must have happened.
CAUSES: dict[str, set[str]] = {
    "table.recreated": {"topic", "markers"},
    "kafka.marker-topic": {"retention"},
    "kafka.markers-deleted": {"markers"},
    "kafka.marker-corrupt": {"markers"},
    "kafka.partly-published": {"journal", "checkpoint", "renamed"},
    "kafka.refused": {"limit", "shorter"},
    "kafka.transaction-timeout": {"shorter"},
    "kafka.message-too-large": {"limit"},
    "application.renamed": {"renamed"},
    "gap.first-batch": {"journal", "markers", "topic", "renamed", "checkpoint"},
}
_WAIT_S = 30


class Operator:
    """renewed: how often a topic of markers was named anew."""

    def __init__(self, world: Walked):
        self._world = world
        self.renewed = 0
        self.used: dict[str, int] = {}

    def heal(self) -> None:
        why = self._world.said
        if why is None or isinstance(why, Retryable):
            return
        text = str(why)
        if not CAUSES.get(why.kind, set()) & self._world.causes:
            raise Wrong(f"false alarm {why.kind}", f"though only {sorted(self._world.causes)} happened: {text}")
        # What brokers refuse when a record waits stays recorded, and is not promised to be unwritten in part.
        if why.kind != "kafka.refused" and "Nothing " not in text and "nothing of this one" not in text:
            raise Wrong("what was written", text)
        self.used[why.kind] = self.used.get(why.kind, 0) + 1
        does = getattr(self, "_" + re.sub(r"\W", "_", why.kind), None)
        if does is None:
            raise Wrong(f"no way on {why.kind}", text)
        self._world.said = None
        does(text)

    def _says(self, text: str, *words: str) -> None:
        for word in words:
            if word not in text:
                raise Wrong("no such words", f"'{word}' is not in: {text}")

    def _table_recreated(self, text: str) -> None:
        """Remove the journal, and what the destination remembers of the application, and begin behind what is here."""
        self._says(
            text, "remove the journal", "start a new checkpoint", "behind those of its rows that are here already"
        )
        self._world.lose_journal()
        self._forget()
        self._begin_behind()

    def _forget(self) -> None:
        world = self._world
        producer = REAL({"bootstrap.servers": world.bootstrap})
        found = producer.list_topics(world.markers, _WAIT_S).topics[world.markers].partitions
        for publisher in found:
            producer.produce(world.markers, None, world.application, publisher)
        assert producer.flush(_WAIT_S) == 0

    def _begin_behind(self) -> None:
        """A new checkpoint behind the last number that is here. What is missing before it he writes himself, or it went
        with a topic that somebody has deleted.
        """
        world = self._world
        world.end_foreign()
        visible = world.visible()
        begin = max(visible, default=-1) + 1
        missing = [number for number in range(begin) if not visible[number]]
        if "topic" in world.causes:
            world.unsure(missing)
        elif missing:
            self._write(missing)
        world.new_checkpoint(begin)

    def _write(self, missing: list[int]) -> None:
        """By a program of his own; in whatever order."""
        world = self._world
        world.awry.update(missing)
        send_to(world.bootstrap, world.topic, [(number, 0) for number in missing])

    def _kafka_marker_topic(self, text: str) -> None:
        self._says(text, "Set cleanup.policy=compact on the topic")
        set_config(self._world.bootstrap, self._world.markers, "cleanup.policy", "compact")

    def _kafka_markers_deleted(self, text: str) -> None:
        """A new topic of markers and a new journal, and the batch behind the last one that is there."""
        self._says(text, "a new marker_topic and a new journal", "adopt_from_batch set to the batch behind it")
        world = self._world
        world.stop(world.live)
        self.renewed += 1
        world.markers, world.journal = f"{world.markers}-{self.renewed}", f"{world.journal}-{self.renewed}"
        if "checkpoint" in world.causes:
            self._says(text, "start a new checkpoint behind those of its rows that are there")
            return self._begin_behind()
        world.end_foreign()
        visible, ends = world.visible(), [world.begin, *world.checkpoint.ends]
        there = [
            number
            for number, (start, end) in enumerate(itertools.pairwise(ends))
            if any(visible[row] for row in range(start, end))
        ]
        last = max(there, default=-1)
        missing = [row for row in range(ends[0], ends[last + 1]) if not visible[row]]
        if "topic" in world.causes:
            world.unsure(missing)
        elif missing:
            self._write(missing)
        world.settings["adopt_from_batch"] = last + 1
        world.checkpoint.committed = last + 1

    _kafka_marker_corrupt = _kafka_partly_published = _kafka_markers_deleted

    def _kafka_refused(self, text: str) -> None:
        self._says(text, "its max.message.bytes", "correct kafka_options", "start the query again")
        self._raise_limits()

    def _kafka_message_too_large(self, text: str) -> None:
        self._says(text, "Raise max.message.bytes of the topic")
        self._raise_limits()

    def _raise_limits(self) -> None:
        world = self._world
        set_config(world.bootstrap, world.topic, "max.message.bytes", "1000000")
        if "shorter" in world.causes:
            world.options["kafka_options"] = {"transaction.timeout.ms": 2000}

    def _kafka_transaction_timeout(self, text: str) -> None:
        self._says(text, "Set it lower in kafka_options")
        self._raise_limits()

    def _gap_first_batch(self, text: str) -> None:
        """The batch is adopted, or where rows of it are here, or others are missing, he begins behind what is here."""
        self._says(text, "so take out rows of it that are here", "if rows are missing, start a new checkpoint")
        world, number = self._world, int(re.search(r"set adopt_from_batch=(\d+)", text)[1])
        visible, ends = world.visible(), [world.begin, *world.checkpoint.ends]
        is_whole = all(visible[row] or world.fate.get(row) == GONE for row in range(ends[number]))
        if is_whole and not any(visible[row] for row in range(ends[number], ends[number + 1])):
            world.settings["adopt_from_batch"] = number
        else:
            self._begin_behind()

    def _application_renamed(self, text: str) -> None:
        name = re.search(r"Set application='([^']+)' to go on", text)
        if name is None:
            raise Wrong("no way on application.renamed", text)
        self._world.application = name[1]
