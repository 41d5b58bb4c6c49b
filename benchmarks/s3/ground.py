"""An S3 server behind a proxy, and queries whose batches are laid beside the requests that they made."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamsink
from benchmarks.s3.account import Batch, Interval, beside
from benchmarks.s3.marked import marked, thread_of
from benchmarks.s3.sinks import ASYNC, OURS, PREFIX, Start, sinks
from streamsink.storage.hold import BEAT_THREAD
from tests.services.s3 import S3Server
from tests.services.s3_proxy import S3ProxyProcess
from tests.services.s3_requests import Request

# Begins of the names of our threads that no batch waits for.
_OTHER_THREADS = ("streamsink-publisher", BEAT_THREAD, "streamsink-ended")


class Ground:
    """The server, its proxy, and the sinks that this session can run against them.

    delay_ms: by so much the proxy holds back each answer.
    """

    def __init__(self, spark: SparkSession, folder: Path, servers: contextlib.ExitStack):
        """Starts both; ``servers`` ends them. Raises SetupError or ServerError when the server cannot be had."""
        server = S3Server(folder / "s3-server")
        servers.callback(server.kill)
        server.start().client().create_bucket(Bucket=server.bucket)
        self._spark = spark
        self._proxy = servers.enter_context(S3ProxyProcess(server.endpoint))
        options = {**server.options, "s3.endpoint": self._proxy.endpoint}
        self.sinks: dict[str, Start] = sinks(spark, server.bucket, options, folder)
        self._folder = folder
        self._asked = servers.enter_context(marked())

    def run(self, sink: str, name: str, stream: DataFrame, delay_ms: float, alone: bool = False) -> list[Batch]:
        """Let the sink write what is there of the stream into the table of this name, and go on from its checkpoint.

        Returns the batches that it took, each with what it asked of S3 while its trigger ran. alone: there is one batch
        only, and all requests of the run are its own, those behind its trigger among them."""
        self._proxy.delay_ms = delay_ms
        self._proxy.take()
        self._asked.clear()
        begun = time.time()
        writer = self.sinks[sink](stream, name).option("checkpointLocation", str(self._folder / "checkpoints" / name))
        query = _ended(writer.trigger(availableNow=True).start, is_ours=sink in (OURS, ASYNC))
        progress = [p for p in query.recentProgress if "addBatch" in p["durationMs"]]
        requests = [request for request in self._proxy.take() if _is_of(request, name)]
        jobs = with_plans(_jobs(self._spark, begun), self._asked)
        batches = []
        for one in progress:
            span = trigger(one["timestamp"], one["durationMs"]["triggerExecution"])
            if not batches:
                span = (min(begun, span[0]), span[1])
            mine = requests if alone else [r for r in requests if span[0] <= r.start_s < span[1]]
            ran = [(max(b, span[0]), min(e, span[1])) for b, e in jobs if b < span[1] and e > span[0]]
            batches.append(Batch(one["batchId"], span, dict(one["durationMs"]), mine, ran))
        return batches


def _ended(start: Callable[[], StreamingQuery], is_ours: bool) -> StreamingQuery:
    """The query, after its end; of our sink with everything published."""
    if is_ours:
        return streamsink.run(start, max_restarts=0)
    query = start()
    query.awaitTermination()
    return query


def trigger(timestamp: str, ms: int) -> Interval:
    """When a trigger ran, of its progress's timestamp, which is its begin, and its duration."""
    begun = datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()
    return begun, begun + ms / 1000


def with_plans(jobs: Iterable[Interval], asked: Iterable[float]) -> list[Interval]:
    """Each job from when its rows were asked for, where that is known (``marked``): Spark plans it then, and our thread
    goes on. What others ask before their jobs they wait for."""
    found: list[Interval] = []
    for begin, end in sorted(jobs):
        free_from = found[-1][1] if found else float("-inf")
        found.append((max((at for at in asked if free_from <= at <= begin), default=begin), end))
    return found


def of_its_thread(batch: Batch) -> list[Request]:
    """The requests that the batch waits for, if no job takes longer: all but those of other threads of ours."""
    return [request for request in batch.requests if not thread_of(request).startswith(_OTHER_THREADS)]


def in_its_way(batch: Batch) -> list[Request]:
    """Those of them that begin when Spark has nothing to compute."""
    return [request for request in of_its_thread(batch) if not beside(request, batch.jobs)]


def _is_of(request: Request, name: str) -> bool:
    """Whether a request is of this table: by time it is, but a query of before may still beat its heart."""
    return not request.key.startswith(f"{PREFIX}/") or f"{request.key}/".startswith(f"{PREFIX}/{name}/")


def _jobs(spark: SparkSession, since_s: float) -> Iterator[Interval]:
    """When Spark's jobs ran that have ended since then; its store has the newest ones first."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    found = context.statusStore().jobsList(None)
    for at in range(found.size()):
        job = found.apply(at)
        if not job.completionTime().isDefined():
            continue
        begun, ended = (when.get().getTime() / 1000 for when in (job.submissionTime(), job.completionTime()))
        if ended < since_s:
            return
        yield begun, ended
