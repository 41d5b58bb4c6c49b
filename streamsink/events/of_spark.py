"""What Spark itself says of a streaming query. ``table`` is empty: a query may write several, or none of ours.

``application`` is the name of the Spark query (``queryName``), or its id where it has none.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamsink.events.event import Event


@dataclass(frozen=True)
class SparkQueryStarted(Event):
    """A streaming query starts. query: id of its checkpoint. run: id of this start."""

    level = logging.DEBUG

    query: str
    run: str


@dataclass(frozen=True)
class SparkProgress(Event):
    """A micro-batch of Spark's is over, or a trigger without rows.

    durations_ms: by phase, as Spark names them (``triggerExecution``, ``addBatch``, ...). behind: for each source in
    order, offsets behind its newest by 'avg', 'max' and 'min' of its partitions; empty where it does not say so.
    sources: (description, start offset, end offset) of each, as Spark prints them.
    """

    level = logging.DEBUG
    took = "trigger_ms"
    unsaid = ("table", "application", "sources")

    query: str
    run: str
    batch_id: int
    input_rows: int
    input_rows_per_second: float
    processed_rows_per_second: float
    trigger_ms: float
    durations_ms: Mapping[str, float]
    watermark_ms: int | None
    state_rows: int
    state_bytes: int
    behind: tuple[Mapping[str, float], ...]
    sources: tuple[tuple[str, Any, Any], ...] = ()


@dataclass(frozen=True)
class SparkQueryEnded(Event):
    """A streaming query has ended. with_error: whether Spark says so; its text is in Spark's log, and may have rows."""

    level = logging.DEBUG

    query: str
    run: str
    with_error: bool
