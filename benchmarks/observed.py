"""What listeners cost a micro-batch, without Spark: the events of a batch are given to each of them."""

import io
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.data import Sizes
from benchmarks.machine import load, spread
from benchmarks.operations import QUERY, numbers
from benchmarks.report import Goal, Table, at_most
from streamsink.clock import IdSource
from streamsink.events import BatchReturned, Event, Listener, Listeners
from streamsink.lineage import OpenLineage
from streamsink.metrics import JsonFormatter, Metrics, text, to_log
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO
from streamsink.testing.driver import SparkCheckpoint
from streamsink.traces import Traces

_ROUNDS, _WARM_UP = 2_000, 200
_MOST_MS = 1.0
# A driver that writes so many tables has so many series of each metric.
_TABLES = 1_000


def observed(spark, folder: Path, sizes: Sizes) -> list[Table | Goal]:
    """The time that each listener takes for all events of one batch, and that of a scrape."""
    batch = events_of_a_batch(folder / "observed")
    rows, of_all = [], 0.0
    for what, listener in ways().items():
        times = _times(lambda: [listener(event) for event in batch])
        rows.append([what, str(len(batch)), spread([1000 * ms for ms in times], 1)])
        of_all = max(of_all, sorted(times)[len(times) // 2])
    scrapes = [[what, *_scrape(tables)] for what, tables in (("one query", 1), (f"{_TABLES:,} tables", _TABLES))]
    note = f"Median [least..most] of {_ROUNDS:,} times. Without a listener nothing is called. Load {load()}."
    return [
        Table("What listeners take of a micro-batch", ("listener", "events", "microseconds a batch"), rows, note),
        Table("What a scrape takes, in a thread of its own", ("metrics of", "lines", "ms"), scrapes),
        at_most("metrics and log: time of a micro-batch", of_all, _MOST_MS, "{:.2f} ms"),
    ]


def ways() -> dict[str, Listener]:
    """The listeners, by what they are. The log writes into memory."""
    log = logging.getLogger("streamsink")
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(JsonFormatter())
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    return {
        "none": lambda event: None,
        "Metrics": Metrics(),
        "the log, as JSON, with every step": to_log,
        "Metrics and that log": Listeners(to_log, Metrics()),
        "Traces": _traces(),
        "OpenLineage": OpenLineage(config={"transport": {"type": "noop"}}),
    }


def _traces() -> Traces:
    """With a processor that exports beside the query, and an exporter that throws all away."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Nowhere(SpanExporter):
        def export(self, spans: Sequence) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    return Traces(provider)


def events_of_a_batch(folder: Path) -> Sequence[Event]:
    """The events of the third batch of a real query, on a disk, with the end of its call, which Spark's side tells."""
    driver = numbers(folder, {"flush": False}, 100)
    checkpoint = SparkCheckpoint(QUERY, [100, 200, 300])
    sink = driver.start(FileIO(PosixCalls(), IdSource().new_id), checkpoint)
    for batch_id in range(3):
        driver.events.clear()
        sink.batch(driver.describe(checkpoint, batch_id))
    sink.close()
    last = driver.events[-1]
    return [*driver.events, BatchReturned(last.table, last.application, 2, 10.0)]


def _times(run: Callable[[], object]) -> list[float]:
    """ms of each call."""
    times = []
    for number in range(_WARM_UP + _ROUNDS):
        begun = time.perf_counter()
        run()
        if number >= _WARM_UP:
            times.append(1000 * (time.perf_counter() - begun))
    return times


def _scrape(tables: int) -> tuple[str, str]:
    from streamsink.events import Claimed

    metrics = Metrics()
    for number in range(tables):
        metrics(Claimed(f"lake/{number}", "streamsink", 1))
    begun = time.perf_counter()
    said = text(metrics)
    return f"{said.count(chr(10)):,}", f"{1000 * (time.perf_counter() - begun):.1f}"
