"""Bounded runs: a batch job is one checkpoint of its run, END_OF_INPUT. Runs on the driver."""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from streamsink import events
from streamsink.errors import Misuse, RestoredThenFailed, StreamsinkError
from streamsink.options import SinkOptions
from streamsink.options.option import refuse
from streamsink.protocol.committable import Batch
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.sinks.paimon.opening import PaimonTable
from streamsink.spark.explain import explain
from streamsink.spark.query.foreach_batch import BatchFunction
from streamsink.spark.query.spark_sink import SparkSink
from streamsink.storage.stores import table_path

# The name of runs that are given none.
_APPLICATION = "batch"
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def write_bounded(
    df: DataFrame,
    path: str | os.PathLike[str],
    run_id: str,
    listener: Callable[[events.Event], None] | None,
    settings: Mapping[str, Any],
    *,
    options: SinkOptions | None = None,
) -> int:
    """Publish the rows of the DataFrame under ``run_id``.

    listener, settings, options: as ``streamsink.write``; without ``options`` the application is called 'batch' unless a
    keyword names it.

    Returns the number of rows that were published, which is 0 when this run is published already. Raises Misuse for a
    run id of another form, and otherwise as ``BatchFunction.write_job`` does.
    """
    root = table_path(path)
    if not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id):
        raise Misuse(
            f"{root}: run_id is {run_id!r}, expected 1 to 64 letters, digits, '_', '-' or '.', the same whenever the "
            "same run is repeated, such as '2026-11-21'",
            kind="option.run-id",
        )
    given = SinkOptions.of(
        root, settings if options is not None else {"application": _APPLICATION, **settings}, options
    )
    if options is not None and "application" not in settings and given.application == SinkOptions.application:
        # An object's default cannot be told from a name that was given. Under another name than before, a run that is
        # published would be written again, so the advice must not name one for all.
        expected = (
            "a keyword beside options= that says it, because the default of an object cannot be told from a name that "
            f"was given. If runs were written here as '{given.application}', say application='{given.application}'; if "
            f"they were written without a name, say application='{_APPLICATION}', which they had then; else any name. "
            "Under another name than before a run would be written again"
        )
        refuse(root, "application", given.application, expected)
    if given.offsets_group is not None:
        refuse(root, "offsets_group", given.offsets_group, "None for a bounded run, which has no streaming source")
    sink = BatchFunction(SparkSink(PaimonTable(root), given), listener or events.to_log)
    try:
        try:
            return sink.write_job(df, Batch(END_OF_INPUT, run_id, run_id))
        except RestoredThenFailed:
            # What an earlier run left is published now. A query would fail here to get rid of its warm writers; a batch
            # job has none.
            return sink.write_job(df, Batch(END_OF_INPUT, run_id, run_id))
    except (StreamsinkError, OSError, PySparkException, Py4JError) as failed:
        cause = explain(root, failed)
        if cause is failed:
            raise
        raise cause from failed
    finally:
        sink.close()
