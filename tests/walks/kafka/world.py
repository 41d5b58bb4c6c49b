"""One query of a walk that writes numbered messages into Kafka, its drivers, and what a reader must see in the end."""

import contextlib
import itertools
import shutil
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamsink.errors import Retryable, StreamsinkError
from streamsink.sinks.kafka import client
from streamsink.storage.file_io import local_file_io
from streamsink.testing.driver import SparkCheckpoint
from streamsink.testing.faults import InjectedCrash
from tests.sinks.kafka_world import KEYS, REAL, Dying, KafkaWorld, forget_facts
from tests.walks.model import EITHER, GONE, ONCE, Wrong

TRANSACTION_MS = 8_000
_MOST_RESTARTS = 6
_POSITIONS = ("topic", "partition", "offset")


def _nothing() -> None:
    """Nothing is to be mended."""


class Process(Dying):
    """The Kafka client of one driver, which may die, fail or stand still at a call that is chosen ahead."""

    def arm(self, at: int, after: bool, act: Callable[[], None] | None = None) -> None:
        """Let something happen at the n-th call from now; 0 for nothing."""
        self.count, self.at, self.after, self.act = 0, at, after, act


class Walked(KafkaWorld):
    """fate: how often a number may be there, where that is not once. end: of the source. said: the error that stopped
    the query. causes: what has happened. begin: where its checkpoint begins. awry: numbers that may be out of order,
    because somebody has written them by hand. written_by: under which name it was tried last."""

    def __init__(self, bootstrap: str, folder: str, partitions: int, **more: Any):
        super().__init__(bootstrap, folder, partitions, **more)
        self.settings = {"position_columns": _POSITIONS, **self.settings}
        self.options.setdefault("kafka_options", {"transaction.timeout.ms": TRANSACTION_MS})
        self.journal = f"{folder}/journal"
        self.processes: dict[str, Process] = {}
        self.live: tuple[Process, Any] | None = None
        self.said: StreamsinkError | None = None
        self.fate: dict[int, frozenset] = {}
        self.causes: set[str] = set()
        self.awry: set[int] = set()
        self.end = self.begin = 0
        self.written_by = ""
        self.foreign: list[Any] = []
        self.mends: Callable[[], None] = _nothing

    # -- drivers -----------------------------------------------------------------------------------------------------

    def make(self, settings: dict[str, Any]) -> Any:
        """A producer of the driver whose client this is."""
        of = self.processes.get(settings.get("client.id", ""))
        return REAL(settings) if of is None else of(settings)

    def start(self) -> tuple[Process, Any]:
        """Start a driver, which goes on until it dies, fails or is stopped."""
        forget_facts()
        name = f"driver-{len(self.processes)}"
        process = self.processes[name] = Process()
        options = {**self.options["kafka_options"], "client.id": name}
        driver = self.driver(journal=self.journal, kafka_options=options)
        driver.first_file, driver.topic_id = self.begin, "source"
        return process, driver.start(local_file_io(), self.checkpoint)

    def stop(self, driver: tuple[Process, Any] | None, dies: bool = False) -> None:
        """End a driver: in order, or as one that is killed."""
        if driver is None:
            return
        process, driven = driver
        process.is_dead = process.is_dead or dies
        with contextlib.suppress(StreamsinkError, InjectedCrash, client.kafka().KafkaException):
            driven.close()
        self.live = None if self.live is driver else self.live

    def batch(self, most: int, arm: tuple | None = None) -> bool:
        """Write the next batch, with restarts after passing failures. Returns whether it was written."""
        checkpoint = self.checkpoint
        if len(checkpoint.ends) == checkpoint.committed:
            if not checkpoint.ends and self.written_by not in ("", self.application):
                # It has lost its name and its checkpoint at once, so it is another query.
                self.unsure(range(self.end), frozenset({0, 1, 2}))
            start = checkpoint.ends[-1] if checkpoint.ends else self.begin
            checkpoint.ends.append(start + most)
            self.end = max(self.end, start + most)
        number, self.written_by = checkpoint.committed, self.application
        for _ in range(_MOST_RESTARTS):
            driver = None
            try:
                driver = self.live = self.live or self.start()
                if arm is not None:
                    driver[0].arm(*arm)
                driver[1].batch(self.described(driver, checkpoint, number))
                driver[0].arm(0, False)
                if self.live is not driver:  # it slept, and has a successor
                    self.stop(driver)
                    return False
                checkpoint.committed, self.said = number + 1, None
                return True
            except InjectedCrash:
                return bool(self.stop(driver, dies=True))
            except Retryable as failed:
                is_awake = self.live is driver or driver is None
                self.stop(driver)
                if not is_awake:
                    return False
                self.said = failed
                self.end_foreign()
                self.mends()
                self.mends = _nothing
            except StreamsinkError as refused:
                is_awake = self.live is driver or driver is None
                self.stop(driver)
                self.said = refused if is_awake else self.said
                return False
            arm = None
        raise Wrong("never rests", str(self.said))

    def described(self, driver: tuple[Process, Any], checkpoint: SparkCheckpoint, number: int) -> Any:
        """The batch, with what a broker says of the source."""
        of = driver[1]._driver
        of.earliest, of.newest = 0, self.end
        return of.describe(checkpoint, number)

    def end_foreign(self) -> None:
        """Transactions that somebody else has left open come to their end."""
        for producer in self.foreign:
            with contextlib.suppress(client.kafka().KafkaException):  # it has timed out
                producer.abort_transaction(30)
        self.foreign.clear()

    # -- what a user does --------------------------------------------------------------------------------------------

    def new_checkpoint(self, begin: int = 0) -> None:
        """Begin a new one. begin: the first number that it reads."""
        self.stop(self.live)
        self.checkpoint, self.begin = SparkCheckpoint(str(uuid.uuid4())), begin

    def lose_journal(self) -> None:
        self.stop(self.live, dies=True)
        shutil.rmtree(self.journal, ignore_errors=True)

    def copy_journal(self, to: str) -> None:
        shutil.rmtree(to, ignore_errors=True)
        if Path(self.journal).exists():
            shutil.copytree(self.journal, to)

    # -- what a reader sees ------------------------------------------------------------------------------------------

    def visible(self, settled: bool = True) -> Counter:
        return Counter(itertools.chain(*self.seen(settled)))

    def unsure(self, numbers: Any, counts: frozenset = EITHER) -> None:
        self.fate.update({number: counts | self.fate.get(number, ONCE) for number in numbers})

    def gone(self, numbers: Any) -> None:
        self.fate.update(dict.fromkeys(numbers, GONE))

    def look(self) -> None:
        """No number may be there too often at any time, and those of a key are in order."""
        seen = self.seen(settled=False)
        for number, count in Counter(itertools.chain(*seen)).items():
            if count > max(self.fate.get(number, ONCE)):
                raise Wrong("doubled", f"{number} is there {count} times")
        for partition, key in itertools.product(seen, range(KEYS)):
            own = [number for number in partition if number % KEYS == key and number not in self.awry]
            if own != sorted(own):
                raise Wrong("out of order", f"key {key}: {own}")

    def check(self) -> None:
        """At rest every number is there as often as it should be."""
        self.end_foreign()
        self.mends()
        seen = self.visible()
        self.look()
        if lost := [number for number in range(self.end) if seen[number] < min(self.fate.get(number, ONCE))]:
            raise Wrong("lost", f"{lost}")
