"""Walks into Kafka are drawn from a seed, and walked over a real broker. It has a time of its own, so a walk that goes
wrong by chance may not go wrong again.
"""

import random
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from confluent_kafka import KafkaException

from streamsink.sinks.kafka import client, markers, publishing
from tests.e2e.kafka_data import WAIT_S, _admin, new_topic
from tests.services.kafka import PROPERTIES, KafkaBroker
from tests.sinks.kafka_world import REAL
from tests.walks.kafka import events
from tests.walks.kafka.operator import Operator
from tests.walks.kafka.world import Walked
from tests.walks.model import Wrong

_FEWEST, _MOST, _NUMBERS, _MOST_ADVICE = 4, 20, 1000, 12
_ALWAYS = ("batch", "die", "heal", "wake")
Walk = list[tuple]


def draw(seed: str, kinds: Mapping[str, events.Kind] = MappingProxyType(events.KINDS), most: int = _MOST) -> Walk:
    """Kinds by their weights and numbers at random; each walk has a temper."""
    chance = random.Random(seed)
    weights = {
        name: kind.weight * (1 if name in _ALWAYS else chance.choice((0, 0, 1, 3))) for name, kind in kinds.items()
    }
    chosen = chance.choices(list(weights), list(weights.values()), k=chance.randint(_FEWEST, most))
    numbers = lambda count: tuple(chance.randrange(_NUMBERS) for _ in range(count))  # noqa: E731
    return [("kafka", *numbers(4)), *((name, *numbers(events.KINDS[name].size)) for name in chosen)]


class Walker:
    """Walks one walk. broker: one that may be killed. done: the events so far."""

    def __init__(self, walk: Walk, bootstrap: str, folder: Path, broker: KafkaBroker | None = None):
        self._walk, self._at, self.depth = walk, 0, 0
        partitions, publishers, size, every = walk[0][1:]
        options = {"publishers": 1 + publishers % 3, "max_transaction_bytes": (400, 256 << 20)[size % 3 > 0]}
        settings = {"restore": "restore-and-continue", "publish_every_batches": 1 + 2 * (every % 3 == 0)}
        self.world = Walked(bootstrap, str(folder), 1 + partitions % 3, options=options, settings=settings)
        self.operator = Operator(self.world)
        self.broker, self.backup, self._is_shorter = broker, f"{folder}/backup", False
        self.elsewhere = f"{self.world.topic}-elsewhere"
        new_topic(bootstrap, 1, self.elsewhere)
        self.done: list[str] = []

    def run(self) -> None:
        """Raises Wrong when the promise is broken; anything else that is raised is a broken promise as well."""
        theirs = markers._READ_TIMEOUT_MS, publishing._PAUSE_MS, publishing._TRIES
        client.new_producer = self.world.make
        markers._READ_TIMEOUT_MS, publishing._PAUSE_MS, publishing._TRIES = 12_000, 20, 3
        try:
            while self._at + 1 < len(self._walk):
                self._next()
            self._settle()
        finally:
            self.world.end_foreign()
            self.world.stop(self.world.live)
            client.new_producer = REAL
            markers._READ_TIMEOUT_MS, publishing._PAUSE_MS, publishing._TRIES = theirs
            if self._is_shorter:
                self.restart()

    def _next(self) -> str:
        self._at += 1
        name, *numbers = self._walk[self._at]
        self.done.append(name)
        events.KINDS[name].does(self, *numbers)
        self.world.look()
        return name

    def meanwhile(self) -> None:
        """A driver sleeps: the walk goes on until it wakes up."""
        self.depth += 1
        try:
            while self._at + 1 < len(self._walk):
                if self._next() == "wake":
                    return
        finally:
            self.depth -= 1

    def _settle(self) -> None:
        """Two batches more, with the operator's help, the second one by another start; then the account is made."""
        world = self.world
        for _ in range(2):
            for _ in range(_MOST_ADVICE):
                is_written = world.batch(5)
                while is_written and world.checkpoint.committed < len(world.checkpoint.ends):
                    is_written = world.batch(5)
                if is_written and world.checkpoint.ends[-1] >= world.end:
                    break
                self.operator.heal()
            else:
                raise Wrong("stuck", str(world.said))
            world.stop(world.live)
        world.check()

    # -- what events ask ---------------------------------------------------------------------------------------------

    def has_markers(self) -> bool:
        return self.partitions(self.world.markers) > 0

    def partitions(self, topic: str) -> int:
        admin = _admin(self.world.bootstrap)
        found = admin.list_topics(timeout=WAIT_S).topics
        return len(found[topic].partitions) if topic in found else 0

    def delete(self, topic: str) -> None:
        admin = _admin(self.world.bootstrap)
        for deleted in admin.delete_topics([topic]).values():
            deleted.result(WAIT_S)

    def restart(self, longest_ms: int = 900_000) -> None:
        """Kill the broker and start it again. longest_ms: of a transaction."""
        if self.broker is not None:
            self.broker.kill()
            self.broker.properties = f"{PROPERTIES}transaction.max.timeout.ms={longest_ms}\n"
            self._is_shorter = longest_ms < 900_000
            self.broker.start()


def outcome(walk: Walk, bootstrap: str, folder: Path, broker: KafkaBroker | None = None) -> tuple[str, str, Walker]:
    """What went wrong, in stable words and in all words; '' when all is well."""
    shutil.rmtree(folder, ignore_errors=True)
    walker = Walker(walk, bootstrap, folder, broker)
    try:
        walker.run()
    except Wrong as wrong:
        return wrong.what, str(wrong), walker
    except (Exception, KafkaException) as raw:
        return f"raw {type(raw).__name__}", str(raw), walker
    return "", "", walker


def walk_all(seeds: Iterable[str], bootstrap: str, folder: Path, broker: KafkaBroker | None = None):
    """(seed, what, more) of each walk that went wrong, and how many events and errors of each kind there were."""
    wrong, counts = [], Counter()
    for seed in seeds:
        what, more, walker = outcome(draw(seed), bootstrap, folder, broker)
        if what:
            wrong.append((seed, what, more))
        counts.update(walker.done)
        counts.update(walker.operator.used)
    return wrong, counts
