"""The listener that tells a collector of OpenLineage's events. Runs on the driver.

No batch waits for it: it adds an event to an account, and a thread of its own makes the messages and sends them. While
a collector is slow the account grows, and is then told as one; while it is down, messages are dropped and counted.
"""

import atexit
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from streamsink import events
from streamsink.clock import Clock
from streamsink.errors import Misuse
from streamsink.lineage.account import Account, Told
from streamsink.lineage.naming import DatasetName
from streamsink.protocol.sink import Sink
from streamsink.spark import runs
from streamsink.spark.query_facts import QueryFacts, facts_of

# So many messages wait, of starts and ends of queries. What a running query does waits in the account.
MOST_READY = 100
# How long the end of the interpreter waits for what is not sent.
EXIT_MS = 5_000
# Of so many runs it is remembered what was said of them.
MOST_ASKED = 4
_NAMESPACE, _PARENT = "OPENLINEAGE_NAMESPACE", "OPENLINEAGE_PARENT_ID"


@dataclass(frozen=True)
class About:
    """What is said of a run besides its events. sink: as the query was given it; None where it is not known."""

    facts: QueryFacts
    sink: Sink | None


class OpenLineage:
    """A listener for one query, which tells OpenLineage what the query reads and writes; see docs/LINEAGE.md.

    sent, dropped: how many messages the collector has taken, and how many were given up. strangers: how many batches of
    another query came, of which nothing is told.
    """

    def __init__(
        self,
        *,
        config: Mapping[str, Any] | None = None,
        client: Any = None,
        namespace: str | None = None,
        job: str = "",
        parent: str | None = None,
        inputs: Sequence[tuple[str, str]] = (),
        outputs: Mapping[str, tuple[str, str]] | None = None,
        interval_ms: int = 10_000,
    ):
        """config: of openlineage-python's client, such as {"transport": {"type": "http", "url": ...}}; without it the
        client reads its own file and environment variables. client: one that is made already. namespace: of the job; by
        default $OPENLINEAGE_NAMESPACE, or 'default'. job: its name; by default the names of the Spark application, of
        the streamsink application and of the destination. parent: what has started the query, as
        'namespace/job/run id'; by default $OPENLINEAGE_PARENT_ID. inputs: (namespace, name) of datasets that the query
        reads and that Spark does not tell. outputs: the same of what it writes, by the path that its sink has, in place
        of the name that is made of it. interval_ms: the shortest time between two messages of a query that runs; 0
        for one after each publishing.

        Raises Misuse where the package is missing, or a value is wrong.
        """
        messages, made = _package(client, config)
        if not isinstance(interval_ms, int) or interval_ms < 0:
            raise _wrong("interval_ms", interval_ms, "a number of milliseconds from 0 on")
        self._naming = messages.Naming(
            namespace=namespace or os.environ.get(_NAMESPACE) or "default",
            job=job,
            parent=_parent(parent if parent is not None else os.environ.get(_PARENT, "")),
            interval_ms=interval_ms,
            inputs=tuple(DatasetName(*each) for each in inputs),
            outputs={path: DatasetName(*each) for path, each in (outputs or {}).items()},
        )
        self.sent = self.dropped = 0
        self._messages, self._client, self._owns_client = messages, made, client is None
        self._clock = Clock()
        self._account = Account()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._told_ms: float | None = None  # when the last message was sent
        self._said = False
        self._about: dict[str, About] = {}  # by the id of a run, the last ones

    def __call__(self, event: events.Event) -> None:
        """Add an event to the account. Called by any thread; returns at once, but for a run's first event, of which
        Spark is asked some things.
        """
        about = self._asked(event) if isinstance(event, (events.BatchAdmitted, events.RunEnded)) else None
        with self._changed:
            before = self._account.strangers
            self._account.add(event, self._clock.now_ms())
            is_first = not before and self._account.strangers > 0
            for told in self._account.ready:
                told.run.about = told.run.about or about
            while len(self._account.ready) > MOST_READY:
                self._account.ready.popleft()
                self.dropped += 1
            begun = self._thread_for_what_is_ready()
            if self._account.ready or self._account.has_more:
                self._changed.notify_all()
        if is_first:
            events.log.warning(
                "%s: the batches of application '%s' are not told to the collector of OpenLineage's events: its "
                "listener is that of another query that runs. Make an OpenLineage for each query. This is logged once",
                event.table,
                event.application,
            )
        if begun is not None:
            atexit.register(self._at_exit)
            begun.start()

    def _thread_for_what_is_ready(self) -> threading.Thread | None:
        """A thread to be started. None where there is one, or nothing to be told. A forked child has none of ours."""
        known = self._thread
        is_there = known is not None and (known.ident is None or known.is_alive())
        if is_there or self._is_closing or not (self._account.ready or self._account.has_more):
            return None
        self._thread = threading.Thread(target=self._follow, name="streamsink-lineage", daemon=True)
        return self._thread

    @property
    def strangers(self) -> int:
        """How many batches of another query came. One listener is for one query."""
        return self._account.strangers

    def close(self, timeout_ms: int = EXIT_MS) -> bool:
        """Send what is not sent, and end the thread. Idempotent. Returns False when that took longer than it may."""
        atexit.unregister(self._at_exit)
        with self._changed:
            self._account.stop(self._clock.now_ms())
            self._is_closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(timeout_ms / 1000)
            if thread.is_alive():
                return False
        if self._owns_client:
            self._owns_client = False
            self._client.close(EXIT_MS / 1000)
        return True

    def _at_exit(self) -> None:
        """What is pending is published first, and told then."""
        runs.finish_all()
        self.close()

    def _asked(self, event: "events.BatchAdmitted | events.RunEnded") -> About:
        """What is said of the run, asked while it is certainly known: a restart takes its place."""
        if event.run not in self._about:
            while len(self._about) >= MOST_ASKED:
                del self._about[next(iter(self._about))]
            self._about[event.run] = About(facts_of(event.run), runs.sink_of(event.table, event.run))
        return self._about[event.run]

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        told = self._next()
        while told is not None:
            self._send(told)
            told = self._next()

    def _next(self) -> Told | None:
        """Wait for what is to be told next; None when nothing will come before another query starts, or for ever.

        Then the thread ends: who makes a listener for each start of a query would have a thread of each.
        """
        with self._changed:
            while not (self._is_closing or self._account.is_idle or self._account.ready) and self._left_ms() > 0:
                left_ms = self._left_ms() if self._account.has_more else None
                self._changed.wait(left_ms / 1000 if left_ms is not None else None)
            if self._account.ready:
                return self._account.ready.popleft()
            told = self._account.take(self._clock.now_ms())
            if told is None and not self._is_closing:
                self._thread = None
                atexit.unregister(self._at_exit)
            return told

    def _left_ms(self) -> float:
        """Until what was published may be told."""
        if not self._account.has_more:
            return float("inf")
        since_ms = 0.0 if self._told_ms is None else self._clock.monotonic_ms() - self._told_ms
        return 0.0 if self._told_ms is None else self._naming.interval_ms - since_ms

    def _send(self, told: Told) -> None:
        try:
            self._client.emit(self._messages.message(told, self._naming))
            self.sent += 1
            self._said = False
        except Exception as failed:  # an edge: whatever the client or the collector does, the query goes on
            self.dropped += 1
            if not self._said:
                events.log.warning(
                    "%s: the collector of OpenLineage's events did not take one (%s: %s). The query goes on. What the "
                    "collector does not take is dropped and counted, and not logged again until it takes something",
                    told.run.table,
                    type(failed).__name__,
                    failed,
                )
            self._said = True
        self._told_ms = self._clock.monotonic_ms()


def _package(client: Any, config: Mapping[str, Any] | None) -> tuple[Any, Any]:
    """The module that makes messages, and the client. The package is imported here, and not before."""
    try:
        from openlineage.client import OpenLineageClient

        import streamsink.lineage.messages as messages
    except ImportError as missing:
        raise Misuse(
            f"events of OpenLineage need the package openlineage-python: pip install 'streamsink[openlineage]', on the "
            f"driver alone ({missing}). Nothing was written",
            kind="openlineage.package",
        ) from missing
    make: Callable[..., Any] = OpenLineageClient
    return messages, client if client is not None else make(config=dict(config) if config is not None else None)


def _parent(text: str) -> tuple[str, str, str] | None:
    """namespace, job and run id. A namespace may have slashes."""
    if not text:
        return None
    parts = text.rsplit("/", 2)
    try:
        namespace, job, run = parts
        return namespace, job, str(UUID(run))
    except ValueError as wrong:
        what = "'namespace/job/run id' with a UUID for the run id, as $OPENLINEAGE_PARENT_ID has it"
        raise _wrong("parent", text, what) from wrong


def _wrong(name: str, found: object, expected: str) -> Misuse:
    return Misuse(
        f"streamsink.lineage.OpenLineage: {name} is {found!r}, expected {expected}. Nothing was written. Correct it",
        kind="openlineage.option",
    )
