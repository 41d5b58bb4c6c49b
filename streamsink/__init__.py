"""streamsink: an exactly-once sink for Spark Structured Streaming that writes Apache Paimon tables.

Importing this package imports neither pyspark nor pyarrow nor fastavro; the functions do when they are called.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from streamsink import errors
from streamsink.options import Settings, SinkOptions, names_of
from streamsink.protocol.sink import VERSION, Sink

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType
    from typing_extensions import Unpack

    from streamsink.commands.drop_missing import Dropped
    from streamsink.commands.give_up import GivenUp
    from streamsink.events import Event
    from streamsink.spark.query.foreach_batch import BatchFunction
    from streamsink.storage.stores import Store
    from streamsink.table.history.integrity import Report
    from streamsink.table.read.predicate import Column, Predicate

    Path = str | os.PathLike[str]
    Listener = Callable[[Event], None]

__all__ = [
    "SinkOptions",
    "col",
    "create_table",
    "drop_missing",
    "errors",
    "give_up",
    "read",
    "read_arrow",
    "retire",
    "run",
    "starting_offsets",
    "to_table",
    "to_tables",
    "verify",
    "write",
]
__version__ = VERSION


def to_table(
    path: "Path",
    listener: "Listener | None" = None,
    dead_letters: str | None = None,
    *,
    options: SinkOptions | None = None,
    **settings: "Unpack[Settings]",
) -> "BatchFunction":
    """A function for ``foreachBatch`` that publishes every micro-batch exactly once into the Paimon table at ``path``.

    It brings to Spark what Flink's ``TwoPhaseCommitSinkFunction`` and Paimon's writer and committer do: the micro-batch
    id is the checkpoint id, and a replayed batch changes nothing.

    path: of the table, a folder or a URL of a store. listener: called with each event of ``streamsink.events``; the
    default logs them. dead_letters: name of a table beside this one for rows that do not fit. It may be given to a
    query that has a checkpoint, and taken away. options, settings: what ``SinkOptions`` describes, as one object, as
    keywords, or both (a keyword counts). Raises Misuse for an option that does not exist or has a wrong value.
    """
    from streamsink.events import to_log
    from streamsink.sinks.paimon.opening import PaimonTable
    from streamsink.spark.query.foreach_batch import BatchFunction
    from streamsink.spark.query.spark_sink import SparkSink
    from streamsink.storage.stores import table_path

    root = table_path(path)
    given = SinkOptions.of(root, settings, options)
    if dead_letters is None:
        return BatchFunction(SparkSink(PaimonTable(root), given), listener or to_log)
    from streamsink.spark.query.routed_sink import letters_sink
    from streamsink.table.routed.rules import Routing

    warehouse, _, name = root.rpartition("/")
    routing = Routing.of(warehouse, {name: {}}, given, dead_letters=dead_letters, unrouted="fail")
    is_named = "application" in settings or given.application != SinkOptions.application
    sink = letters_sink(routing, given, given.application if is_named else f"streamsink-{name}")
    return BatchFunction(sink, listener or to_log)


def to_tables(
    warehouse: "Path",
    route: str,
    tables: Mapping[str, Mapping[str, Any]],
    listener: "Listener | None" = None,
    *,
    dead_letters: str | None = None,
    unrouted: str = "fail",
    drop_route_column: bool = True,
    options: SinkOptions | None = None,
    **settings: "Unpack[Settings]",
) -> "BatchFunction":
    """A function for ``foreachBatch`` that publishes every micro-batch exactly once into several tables below
    ``warehouse``.

    route: a column or SQL expression that names each row's table. tables: {name or pattern: options of its own}; see
    docs/OPTIONS.md. dead_letters: name of the table for rows that do not fit theirs; without one the first such row
    fails the batch. unrouted: 'fail', or 'dead-letter' for rows whose table no rule covers. options, settings: as
    ``to_table``, for all tables. Raises Misuse for an option that does not exist or has a wrong value.
    """
    from streamsink.events import to_log
    from streamsink.spark.query.foreach_batch import BatchFunction
    from streamsink.spark.query.routed_sink import tables_sink
    from streamsink.storage.stores import table_path
    from streamsink.table.routed.rules import Routing

    root = table_path(warehouse)
    given = SinkOptions.of(root, settings, options)
    routing = Routing.of(root, tables, given, dead_letters=dead_letters, unrouted=unrouted)
    return BatchFunction(tables_sink(route, routing, given, drop_route_column), listener or to_log)


def run(
    start: "Callable[[], StreamingQuery]", *, max_restarts: int = 10, min_wait_ms: int = 100, max_wait_ms: int = 30_000
) -> "StreamingQuery":
    """Start a query with ``start()`` and restart it after a failure that is intended or retryable.

    start: builds and starts the query, each time anew. max_restarts: in all. min_wait_ms, max_wait_ms: before a
    restart, doubled with each one and varied by chance. Returns the query after it has ended without an error, with
    everything that was pending published. Raises the cause of every other failure; KeyboardInterrupt after Ctrl-C.
    """
    from streamsink.spark.query import supervisor

    return supervisor.run(start, max_restarts=max_restarts, min_wait_ms=min_wait_ms, max_wait_ms=max_wait_ms)


def write(
    df: "DataFrame",
    path: "Path",
    run_id: str,
    listener: "Listener | None" = None,
    *,
    options: SinkOptions | None = None,
    **settings: "Unpack[Settings]",
) -> int:
    """Publish a batch DataFrame exactly once under ``run_id``: a repeated call with that id changes nothing.

    run_id: any name; it is known within ``application``, which is 'batch' unless a name is given. With ``options``
    there must be one, by them or by a keyword. listener, options, settings: as ``to_table``. Returns the number of rows
    that this call has published, 0 for a repeated one. Raises errors of ``streamsink.errors``.
    """
    from streamsink.spark.query.bounded import write_bounded

    return write_bounded(df, path, run_id, listener, settings, options=options)


def read(
    spark: "SparkSession", path: "Path", snapshot_id: int | None = None, store_options: Mapping[str, str] | None = None
) -> "DataFrame":
    """A DataFrame of the newest snapshot, or of the given one, read by Spark's own Parquet reader.

    Raises Misuse for a table or snapshot that there is not, and for a column of a type that Spark cannot read.
    """
    from streamsink.spark import read as reader

    return reader.read(spark, path, snapshot_id, store_options)


def read_arrow(
    path: "Path",
    snapshot_id: int | None = None,
    where: "Predicate | None" = None,
    columns: Sequence[str] | None = None,
    store_options: Mapping[str, str] | None = None,
) -> "pa.Table":
    """A pyarrow.Table of the newest snapshot, or of the given one; all of it in memory, without Spark.

    where: a condition such as ``col("price") > 5``; files without a matching row are not opened. columns: names, in
    order. Raises Misuse for a table, snapshot or column that there is not; Corrupt for a file that is gone or altered.
    """
    from streamsink.storage.store_failures import told_of
    from streamsink.storage.stores import store_of
    from streamsink.table.read import scan
    from streamsink.table.table import open_table

    store = store_of(path, store_options)
    with told_of(store.root, "read_arrow"):
        return scan.read_arrow(open_table(store.open(), store.root, for_writing=False), snapshot_id, where, columns)


def col(name: str) -> "Column":
    """A column in a condition: ``(col("day") >= date(2024, 5, 1)) & col("city").isin(["Bern", "Ulm"])``.

    == != < <= > >=, isin, startswith, is_null, is_not_null; combined with & and |. See ``table/read/predicate.py``.
    """
    from streamsink.table.read import predicate

    return predicate.col(name)


def create_table(
    path: "Path",
    schema: "StructType | pa.Schema | str",
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    *,
    comment: str | None = None,
    store_options: Mapping[str, str] | None = None,
    catalog: Mapping[str, str] | None = None,
) -> str:
    """Create an append table, and return its absolute path.

    schema: a Spark StructType, a pyarrow.Schema, or DDL text. options: Paimon's table options. catalog: as of
    ``SinkOptions``. Raises Misuse when the path, or the name in the catalog, is something else's, or the schema needs a
    feature that is not supported here; Retryable when the catalog does not answer. Then nothing was written.
    """
    from streamsink.operations.cataloged import create_in_catalog
    from streamsink.storage.stores import store_of

    if type(schema).__module__.startswith("pyspark."):
        from streamsink.spark.types import to_fields

        schema = to_fields(cast("StructType", schema))
    store = store_of(path, store_options)
    return create_in_catalog(store, schema, partition_by, options or {}, comment=comment, catalog=catalog)


def starting_offsets(
    path: "Path | Sink",
    application: str = "streamsink",
    partitions: Mapping[str, int] | None = None,
    store_options: Mapping[str, str] | None = None,
    *,
    source: int | str | None = None,
    from_beginning: str | Sequence[str] = (),
    without: str | Sequence[str] = (),
) -> str:
    """JSON for the option ``startingOffsets`` of Spark's Kafka source: where the table's own record of ``application``
    ends.

    path: of a table, or the sink that ``to_sink`` was given. partitions: {topic: number of partitions}; one that the
    table does not know yet begins at its earliest offset. source: of a query with several sources, the place from 0 or
    the name of one. from_beginning: topics that begin at their earliest offset. without: recorded topics to leave
    out; Kafka's source fails on one that the broker does not have any more. Raises Misuse where the table has no such
    record, or only a start of the query can tell what it has.
    """
    from streamsink.commands.offsets import Wanted
    from streamsink.commands.offsets import starting_offsets as of_table
    from streamsink.storage.stores import store_of, table_path

    of = _sink_or_path(path)
    root = of.path if isinstance(of, Sink) else table_path(of)
    names = (names_of(root, name, given) for name, given in (("from_beginning", from_beginning), ("without", without)))
    wanted = Wanted(partitions or {}, source, *names)
    if not isinstance(of, Sink):
        return of_table(store_of(of, store_options), application, wanted)
    from streamsink.commands.sinks_retired import offsets_of_sink

    options = SinkOptions.of(root, {"application": application, **_of_store(store_options)}, None)
    store = _journal_store(of, options)
    return offsets_of_sink(store.open(), of, options, store.root, wanted)


def retire(
    path: "Path | Sink",
    application: str,
    store_options: Mapping[str, str] | None = None,
    *,
    options: SinkOptions | None = None,
    **settings: Any,
) -> bool:
    """Take ``application`` out of the table at ``path`` on purpose: its state and its journal are removed, its rows
    stay.

    path: of a table; or the warehouse of ``to_tables``, for all tables that the application has written there; or the
    sink that ``to_sink`` was given. options, settings: the query's own, its lock above all. Returns False when the
    table does not know the application. Raises Misuse while a checkpoint of it is pending, and for a destination that
    cannot forget; Fenced while a query holds it. A query that starts under that name later is a new application: it
    writes its source from the beginning of its checkpoint.
    """
    from streamsink.commands.retire import retire as of_table
    from streamsink.storage.store_failures import told_of
    from streamsink.storage.stores import Store, table_path

    of = _sink_or_path(path)
    root = of.path if isinstance(of, Sink) else table_path(of)
    given = SinkOptions.of(root, {**settings, **_of_store(store_options), "application": application}, options)
    _let_go(root, given.application)
    with told_of(root, "retire"):
        if not isinstance(of, Sink):
            return of_table(Store(root, given.store_options, given.flush).open(), root, given)
        from streamsink.commands.sinks_retired import retire_of_sink

        return retire_of_sink(_journal_store(of, given).open(), of, given)


def give_up(path: "Path | Sink", *, options: SinkOptions | None = None, **settings: "Unpack[Settings]") -> "GivenUp":
    """Forget pending records that can never be published (because their files are gone, say), and those behind them.

    Their rows are then read again from the source. Returns what was given up; its text says how to go on. The query
    must not run. path: of a table, or the sink that ``to_sink`` was given. options, settings: the query's own,
    ``application`` above all. Raises Misuse, and changes nothing, when a record might be published; Fenced while a
    query holds the application.
    """
    from streamsink.commands.give_up import give_up as of_journal
    from streamsink.storage.store_failures import told_of
    from streamsink.storage.stores import Store, table_path

    of = _sink_or_path(path)
    if isinstance(of, Sink):
        from streamsink.commands.sinks_given_up import give_up_of_sink

        given = SinkOptions.of(of.path, settings, options)
        _let_go(of.path, given.application)
        with told_of(of.path, "give_up"):
            return give_up_of_sink(_journal_store(of, given).open(), of, given)
    root = table_path(of)
    given = SinkOptions.of(root, settings, options)
    _let_go(root, given.application)
    with told_of(root, "give_up"):
        return of_journal(Store(root, given.store_options, given.flush).open(), root, given)


def drop_missing(
    path: "Path", everything: bool = False, *, options: SinkOptions | None = None, **settings: "Unpack[Settings]"
) -> "Dropped":
    """Take data files that do not exist out of the table at ``path``, so that the rest of it can be read.

    Their rows were lost with them. everything: do so although no data file at all is there. options, settings: as the
    query's. Returns what was taken out. Raises Misuse, and changes nothing, where no file is missing, or all are.
    """
    from streamsink.commands.drop_missing import drop_missing as of_table
    from streamsink.storage.store_failures import told_of
    from streamsink.storage.stores import Store, table_path

    root = table_path(path)
    given = SinkOptions.of(root, settings, options)
    with told_of(root, "drop_missing"):
        return of_table(Store(root, given.store_options, given.flush).open(), root, given, everything=everything)


def verify(
    path: "Path | Sink",
    store_options: Mapping[str, str] | None = None,
    contents: bool = False,
    *,
    application: str = "streamsink",
) -> "Report":
    """Look whether the table at ``path`` is whole: a report with ``ok``, ``findings`` and readable text. Changes
    nothing.

    It names holes in the chain of snapshots, files that are missing or have another size, counts that do not add up,
    commits that another writer's rename has hidden, and what the journals say of pending or lost checkpoints. contents:
    read each data file as well, and look whether it has its rows and the columns of its schema; of a table alone. path:
    of a table, or the sink that ``to_sink`` was given: of that its files, and the journal of ``application``, are
    compared with what the destination says.
    """
    from streamsink.commands.verify import verify as of_table
    from streamsink.storage.store_failures import told_of
    from streamsink.storage.stores import store_of

    of = _sink_or_path(path)
    if not isinstance(of, Sink):
        store = store_of(of, store_options)
        with told_of(store.root, "verify"):
            return of_table(store.open(), store.root, contents)
    from streamsink.commands.sinks_verified import verify_of_sink

    options = SinkOptions.of(of.path, {"application": application, **_of_store(store_options)}, None)
    store = _journal_store(of, options)
    return verify_of_sink(store.open(), of, options, store.root)


def _sink_or_path(given: "Path | Sink") -> "Path | Sink":
    """A sink for one of Paimon's tables is known by the path of that."""
    from streamsink.sinks.paimon.opening import PaimonTable

    return given.path if isinstance(given, PaimonTable) else given


def _of_store(store_options: Mapping[str, str] | None) -> dict[str, Any]:
    return {} if store_options is None else {"store_options": store_options}


def _journal_store(sink: Sink, options: SinkOptions) -> "Store":
    """The store with the sink's journals."""
    from streamsink.storage.stores import Store, journal_place

    place = journal_place(sink.journal) if sink.journal else sink.path
    return Store(place, options.store_options, options.flush)


def _let_go(root: str, application: str) -> None:
    """A query of this process that has ended holds its application until somebody asks for it."""
    runs = sys.modules.get("streamsink.spark.runs")
    if runs is not None:
        runs.let_go(root, application)
