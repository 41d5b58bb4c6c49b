"""The rows of a micro-batch, computed once and kept by Spark until they are written. Runs on the driver.

A query may be dear, may give other rows when it runs again, and its state is stored again each time. So where nobody
knows how large a batch is, Spark computes it and keeps it (``MEMORY_AND_DISK``), says what it has kept, and the rows
are then taken from there, whichever way they are written.
"""

import contextlib
import math
from typing import Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.sql import DataFrame

_KEPT, _UNSTEADY = "InMemoryRelation", "INDETERMINATE"


class Kept(NamedTuple):
    """What Spark has kept of a batch: the number of rows, and the bytes of their values before compression.

    Never too low; infinite when Spark does not say.
    """

    rows: float
    size: float


class KeptRows:
    """The rows of one DataFrame, which Spark keeps while this context is open.

    df: another DataFrame of the same rows. It, and what is made of it, reads the rows that are kept.
    """

    def __init__(self, df: DataFrame):
        # Spark keeps rows by their plan. With a filter, although an empty one, it is another plan than the program's,
        # so that a ``persist`` of the program's own is left alone.
        self.df = df.where("true")

    def computed(self) -> Kept | None:
        """Compute the rows, in one job, and say what is kept. Call it once.

        None when they must not be kept; then nothing was computed, except what Spark computes to plan. That is when the
        order of the rows that are read decides in which partition each of them is (``repartition`` of rows in no order,
        with ``spark.sql.execution.sortBeforeRepartition=false``). Within one job Spark repeats such a stage as a
        whole. Of kept rows it would compute only the partitions that a lost executor had, and a row might be in two
        partitions or in none.

        Raises what Spark raises.
        """
        frame: Any = self.df
        self.df.persist()
        plan = frame._jdf.queryExecution().withCachedData()
        if plan.getClass().getSimpleName() != _KEPT:
            return None
        kept = plan.cacheBuilder()
        pieces = kept.cachedColumnBuffers()
        if str(pieces.outputDeterministicLevel()) == _UNSTEADY:
            return None
        with unwrap_spark_exception():
            pieces.count()
        if not kept.isCachedColumnBuffersLoaded():
            return Kept(math.inf, math.inf)
        # Up to Spark 4.1 a task that ran twice may count twice, so that the batch looks larger.
        found = plan.computeStats()
        return Kept(int(str(found.rowCount().get())), int(str(found.sizeInBytes())))

    def __enter__(self) -> "KeptRows":
        return self

    def __exit__(self, *raised: object) -> None:
        # A Spark that does not answer any more keeps nothing, and how the batch ended is what the caller is to hear.
        with contextlib.suppress(Py4JError, OSError, AttributeError):
            self.df.unpersist()
