"""Two drivers of one checkpoint meet in Spark's logs of it, before either calls its sink. Runs on the driver.

Spark ends the query of the one that comes second, whichever of the two is the newer driver: one that was cut off and
goes on may be first. So who owns the application decides. The older driver ends for good, and the newer one starts its
query again, with the batch as the log has it.
"""

import re

from pyspark.sql.streaming.query import StreamingQuery

from streamsink.clock import Clock
from streamsink.errors import Retryable
from streamsink.spark import runs

# Of the offset log and the commit log, of a source's own log, and of a file that both were about to name.
_MET = re.compile(r"Multiple streaming (?:jobs detected for|queries are concurrently using)")
# The other driver may be a newer one that has not called its sink yet. Until then nothing says that it is newer.
PATIENCE_MS, LOOK_MS = 30_000, 500


def met(query: StreamingQuery, failed: Exception) -> Exception | None:
    """The error for a query that Spark has ended because another driver was first in a log; None for another failure.

    It is Fenced when a newer driver has taken over, or does so within seconds; else Retryable.
    """
    if _MET.search(str(failed)) is None:
        return None
    clock = Clock()
    end = clock.monotonic_ms() + PATIENCE_MS
    while (fenced := runs.superseded(str(query.id))) is None and clock.monotonic_ms() < end:
        clock.sleep_ms(LOOK_MS)
    if fenced is not None:
        return fenced
    return Retryable(
        f"query {query.id}: another driver runs this query as well, and was the first to write an entry of Spark's log "
        "of the checkpoint, so Spark has ended the query of this one between two batches. Nothing is lost or doubled: "
        "its restart takes the query over with the batch as the log has it, and the other driver is fenced. "
        "streamsink.run(...) restarts it by itself; where this comes again and again, end the other driver, then start "
        "this one again",
        kind="checkpoint.two-drivers",
    )
