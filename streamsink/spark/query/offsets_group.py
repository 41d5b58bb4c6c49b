"""``offsets_group``: a consumer group is told up to where the query's Kafka topics are published. Runs on the driver.

So that tools which show the lag of consumers show that of Spark's queries too. Nothing depends on the group: neither
Spark nor streamsink reads it. A thread of the run's own tells it, so that no batch and no publishing waits for it, and
what goes wrong with it is an event and a warning.
"""

import threading
from typing import Any

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError

from streamsink import events
from streamsink.clock import Clock
from streamsink.events import log
from streamsink.protocol.committable import AppState
from streamsink.protocol.positions import Offsets
from streamsink.protocol.run.publish_queue import PublishQueue
from streamsink.spark.gateway import running
from streamsink.spark.gateway.consumer_group import ConsumerGroup, error_name
from streamsink.spark.gateway.kafka import KafkaSources
from streamsink.spark.runs import Run

# How often it is asked whether the query has ended.
LOOK_MS = 1_000
# After a failure the next try waits so long. What is published meanwhile is told by it.
RETRY_MS = 10_000
# What stands still is told again after this time, also when the query has no new messages: a broker forgets it (by
# default after seven days).
AGAIN_MS = 3_600_000
# The end of a run waits for the last try so long.
PATIENCE_MS = 8_000


def tell_group(run: Run) -> None:
    """Begin to tell the group that the query's options name, if they name one. Called once in a run, by its first
    batch, when what earlier runs had recorded is published.
    """
    group = run.sink.options.offsets_group
    sources = running.kafka_sources(run.id)
    if group is None or sources is None:
        return
    if not sources.has_any:
        log.warning(
            "%s: offsets_group is '%s', but no source of this query is a Kafka topic whose client Spark shows, so that "
            "the group is told nothing. The rows are written as ever. Leave the option out",
            run.sink.path,
            group,
        )
        return
    teller = _Teller(run, sources, group)
    run.at_end = teller.end
    teller.thread.start()


class _Teller:
    """The thread of one run. It looks at what the run has published, which it never changes."""

    def __init__(self, run: Run, sources: KafkaSources, group: str):
        self._run, self._sources, self._group = run, sources, group
        self._queue: PublishQueue = run.started.protocol.queue
        self._clock = Clock()
        self._clients: dict[int, tuple[ConsumerGroup, dict[tuple[str, str], int]]] = {}
        self._told: AppState | None = None  # told, and nothing was left
        self._all_told_ms: float | None = None  # when all partitions were told last, and not only those that moved
        self._retry_ms: float | None = None
        self._said = ""
        self._is_ending = False
        self.thread = threading.Thread(target=self._follow, name=f"streamsink-offsets {group}", daemon=True)

    def end(self) -> None:
        """Nothing more will be published: tell the last of it, and wait for that, but not for ever. Idempotent."""
        with self._queue.changed:
            self._is_ending = True
            self._queue.changed.notify_all()
        self.thread.join(PATIENCE_MS / 1000)

    def _follow(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._is_last()  # asked before the look, so that nothing is published between
            state = self._queue.published
            is_new = state is not self._told or self._is_time_for_all()
            if state is not None and is_new and (is_last or self._left_ms() <= 0):
                self._tell(state, is_last)
            if not is_last:
                self._wait()
        for client, _ in self._clients.values():
            client.close()

    def _is_last(self) -> bool:
        """Whether nothing will be published in this run any more."""
        if self._is_ending:
            return True
        return self._run.is_over() and (self._queue.failed or not self._queue.pending())

    def _wait(self) -> None:
        left_ms = self._left_ms()

        def is_due() -> bool:
            return self._is_ending or (left_ms <= 0 and self._queue.published is not self._told)

        with self._queue.changed:
            self._queue.changed.wait_for(is_due, (min(left_ms, LOOK_MS) if left_ms > 0 else LOOK_MS) / 1000)

    def _left_ms(self) -> float:
        """Until it may be tried again."""
        return 0.0 if self._retry_ms is None else self._retry_ms - self._clock.monotonic_ms()

    def _is_time_for_all(self) -> bool:
        return self._all_told_ms is not None and self._clock.monotonic_ms() - self._all_told_ms > AGAIN_MS

    def _tell(self, state: AppState, is_last: bool) -> None:
        # No batch may have asked for an hour whether these are the topics that the query has read.
        look_again = self._is_time_for_all()
        if look_again or self._all_told_ms is None:
            self._all_told_ms = self._clock.monotonic_ms()
            for _, stands in self._clients.values():
                stands.clear()
        count, why = 0, ""
        try:
            for reader, ends in self._sources.ends(state.sources, look_again):
                told, refused = self._tell_cluster(reader, ends)
                count, why = count + told, why or refused
        except (Py4JError, TypeError, OSError, AttributeError) as failed:  # AttributeError: Spark's gateway is gone
            why = error_name(failed)
        if why:
            self._told, self._retry_ms = None, self._clock.monotonic_ms() + RETRY_MS
            self._warn(state, why, is_last)
        else:
            self._told, self._retry_ms, self._said = state, None, ""
            self._emit(events.OffsetsCommitted, state, partitions=count)

    def _tell_cluster(self, reader: JavaObject, ends: Offsets) -> tuple[int, str]:
        """The number of partitions that were told, and why they were not."""
        client, stands = self._client(reader)
        new = {
            topic: moved
            for topic, parts in ends.items()
            if (moved := {part: at for part, at in parts.items() if stands.get((topic, part)) != at})
        }
        why = client.tell(new) if new else ""
        if why:
            return 0, why
        done = {(topic, part): at for topic, parts in new.items() for part, at in parts.items()}
        stands.update(done)
        return len(done), ""

    def _client(self, reader: JavaObject) -> tuple[ConsumerGroup, dict[tuple[str, str], int]]:
        """The client, and what it has told."""
        if id(reader) not in self._clients:
            self._clients[id(reader)] = ConsumerGroup(self._sources.spark, reader, self._group), {}
        return self._clients[id(reader)]

    def _warn(self, state: AppState, why: str, is_last: bool) -> None:
        retry_ms = None if is_last else RETRY_MS
        if why != self._said:
            again = "The next start of the query tells it" if is_last else f"It is tried again in {RETRY_MS // 1000} s"
            log.warning(
                "%s: consumer group '%s' (offsets_group) could not be told up to where the topics are published (%s). "
                "The rows are not concerned, only what tools show of this group. %s, with all that is published then. "
                "Where consumers are in the group, give the query a group of its own",
                self._run.sink.path,
                self._group,
                why,
                again,
            )
        self._said = why
        self._emit(events.OffsetsNotCommitted, state, why=why, retry_ms=retry_ms)

    def _emit(self, kind: type[events.Event], state: AppState, **fields: Any) -> None:
        self._run.started.protocol.emit(kind, checkpoint_id=state.checkpoint_id, group=self._group, **fields)
