"""What is said of a running query to those who only look on: its name, what its sources read, how it has ended.

Runs on the driver. Spark is asked once in a start of a query, beside its batches. What it does not tell is left out.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

from streamsink.spark.gateway import running

# How Spark's sources print themselves: KafkaV2[Subscribe[orders]], FileStreamSource[file:/in], DeltaSource[s3a://b/t].
_FOLDER = re.compile(r"\w+\[(?P<folder>(?:[a-z][a-z0-9+.-]*:)?/.*)\]")
_KAFKA = "KafkaMicroBatchStream"
_SERVERS = "bootstrap.servers"
ABORTED = "stopped while it ran"


@dataclass(frozen=True)
class SourceFacts:
    """One source, at its place in the query. servers: of a Kafka source, in the order of its option. folder: of a
    source that prints the one which it reads, as files and Delta tables do. Both are '' where they have no meaning.
    """

    servers: str = ""
    folder: str = ""


@dataclass(frozen=True)
class QueryFacts:
    """One start of a query. app: the name of the Spark application. name: of the query, '' where it has none."""

    app: str
    spark_version: str
    name: str = ""
    sources: Sequence[SourceFacts] = ()
    execution: Any = field(default=None, repr=False, compare=False)

    def failure(self) -> str:
        """Why the query has ended, as the name of the error's class; '' where it has ended without one.

        ``ABORTED`` where it has not ended, and nobody will hear of its end. The text of the error is not told, because
        it may hold values of rows.
        """
        try:
            if self.execution is None:
                return ""
            if bool(self.execution.isActive()):
                return ABORTED
            failed = self.execution.exception()
            if failed.isEmpty():
                return ""
            cause = failed.get().getCause()
            return str((failed.get() if cause is None else cause).getClass().getName())
        except (Py4JError, OSError, AttributeError):  # Spark is gone
            return ABORTED


def facts_of(run: str) -> QueryFacts:
    """run: id of the start, of which a batch was described; any text for a bounded job."""
    execution = running.execution(run)
    try:
        context = SparkContext._active_spark_context
        if context is None:
            return QueryFacts("", "")
        app, version = str(context.appName), str(context.version)
        if execution is None:
            return QueryFacts(app, version)
        sources = execution.sources()
        told = tuple(_source(sources.apply(place)) for place in range(sources.size()))
        return QueryFacts(app, version, str(execution.name() or ""), told, execution)
    except (Py4JError, OSError, AttributeError):
        return QueryFacts("", "", execution=execution)


def _source(source: Any) -> SourceFacts:
    try:
        if str(source.getClass().getName()).endswith(_KAFKA):
            return SourceFacts(servers=str(source.kafkaOffsetReader().driverKafkaParams().get(_SERVERS) or ""))
        match = _FOLDER.fullmatch(str(source.toString()))
        return SourceFacts(folder=running.without_credentials(match["folder"]) if match else "")
    except Py4JError:
        return SourceFacts()
