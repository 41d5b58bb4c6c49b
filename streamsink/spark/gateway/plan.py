"""What the running query is: its fingerprint, whether it keeps state, and its output mode. Runs on the driver.

It asks Spark's JVM gateway, once in a run, at the first batch: printing a plan takes milliseconds. The rules are in
docs/design/0008-same-query.md.
"""

import contextlib
import json
import re
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from streamsink.protocol.committable import Batch
from streamsink.protocol.same_query import QueryFingerprint, digest
from streamsink.spark.gateway import job_inputs, plan_text, running
from streamsink.spark.gateway.running import each_of, with_settings

_PATTERNS = "org.apache.spark.sql.catalyst.trees.TreePattern"
_SHORTENS = "spark.sql.debug.maxToStringFields"
_ALL_FIELDS = str(2**31 - 1)
# The options that say what is read. No other option is looked at, because its value may be a password.
_KAFKA = ("subscribe", "subscribePattern", "assign", "kafka.isolation.level", "includeHeaders")
_FILES = (
    "path",
    "pathGlobFilter",
    "recursiveFileLookup",
    "basePath",
    "header",
    "sep",
    "delimiter",
    "encoding",
    "charset",
    "quote",
    "escape",
    "comment",
    "lineSep",
    "multiLine",
    "wholetext",
    "mode",
    "rowTag",
    "mergeSchema",
    "columnNameOfCorruptRecord",
)
_OTHERS = (
    "path",
    "table",
    "dbtable",
    "database",
    "collection",
    "keyspace",
    "topic",
    "topics",
    "topicsPattern",
    "stream",
    "streamName",
    "subscription",
    "queue",
    "eventhubs.name",
)
_DATA_FILE = re.compile(r"(?:/[^/=]+=[^/]*)*/bucket-[^/]+/data-[^/]+$")


class _Facts(NamedTuple):
    """What the query of a run is. The fields are those of ``Batch``."""

    fingerprint: QueryFingerprint
    stateful: bool
    output_mode: str
    combines: str
    may_combine: str


class QueryOfRun:
    """What the query of a run is, remembered until another run begins.

    There is one object for each sink, because the batch function may treat the rows of each sink in another way.
    """

    def __init__(self) -> None:
        self._run: str | None = None
        self._facts: _Facts | None = None

    def described(self, batch: Batch, df: DataFrame, execution: JavaObject) -> Batch:
        """Return the batch with what its query is.

        df: as the batch function hands it to the sink. execution: Spark's own object of this run.
        """
        if self._facts is None or self._run != batch.run:
            self._facts, self._run = _ask(df, execution), batch.run
        facts = self._facts
        return replace(batch, **facts._asdict())


def with_own_rows(batch: Batch, df: DataFrame) -> Batch:
    """Return the batch with what the batch function has done with these rows of it.

    df: these rows. Called only for a batch that is filtered, because a question to the JVM is expensive.
    """
    execution = running.execution(batch.run)
    if execution is None:
        return batch  # it was described without its query, so nothing of it was asked before
    facts = _ask(df, execution)
    return replace(batch, combines=facts.combines, may_combine=facts.may_combine)


def described_job(batch: Batch, df: DataFrame) -> Batch:
    """Return the bounded run with what its plan is. df: all of its rows."""
    with _whole_text(df):
        plan = df._jdf.queryExecution().analyzed()
        lines = plan_text.of_a_job(plan_text.operators(plan.toString()))
    plans = [plan, *each_of(plan.subqueriesAll())]
    text, shown = plan_text.canonical(lines), not _calls_functions(df, *plans) and plan_text.shows_everything(lines)
    read = sorted(
        json.dumps(_read_by(df, leaf), sort_keys=True) for each in plans for leaf in each_of(each.collectLeaves())
    )
    fingerprint = QueryFingerprint(
        sources=digest("\n".join(read)),
        plan=digest(text.text),
        dates=digest("\n".join(text.dates)),
        schema=_schema(df),
        spark=_version(df),
        comparable=shown,
    )
    current = getattr(df.sparkSession.sparkContext._jvm, _PATTERNS).CURRENT_LIKE()
    is_settled = (
        shown
        and not plan_text.samples(lines)
        and all(each.deterministic() and not each.containsPattern(current) for each in plans)
    )
    return replace(
        batch,
        fingerprint=fingerprint,
        has_one_count=is_settled or plan_text.has_row_for_row(lines),
        inputs=job_inputs.files_read(df, (leaf for each in plans for leaf in each_of(each.collectLeaves()))),
    )


def is_of_a_batch(df: DataFrame) -> bool:
    """Whether these are rows of the micro-batch whose batch function runs in this thread."""
    execution = running.running_here(df.sparkSession)
    if execution is None:
        return False
    with _whole_text(df):
        stream, called = execution.analyzedPlan(), plan_text.operators(df._jdf.queryExecution().analyzed().toString())
        return plan_text.reads(called, _columns(stream))


def what_is_read(name: str, options: JavaObject) -> dict[str, str]:
    """Return the options of a source that say what is read, each in one spelling.

    name: the kind of source. options: any object with a method ``get``.
    """
    wanted: tuple[str, ...]
    if name == "kafka":
        wanted = _KAFKA
    elif name in ("json", "csv", "text", "parquet", "orc", "avro", "xml", "binaryFile"):
        wanted = _FILES
    else:
        wanted = _OTHERS
    found = {option: options.get(option) for option in wanted}
    return {option: _value(option, str(value)) for option, value in found.items() if value is not None}


def _ask(df: DataFrame, execution: JavaObject) -> _Facts:
    with _whole_text(df):
        stream, batch = execution.analyzedPlan(), df._jdf.queryExecution().analyzed()
        names, sources = _sources(df, stream)
        streamed = plan_text.operators(stream.toString(), names)
        called = plan_text.operators(batch.toString())
        columns, is_whole = _batch_in(batch, execution)
    texts = [plan_text.canonical(plan) for plan in (streamed, called)]
    fingerprint = QueryFingerprint(
        sources=digest(json.dumps(sources, sort_keys=True)),
        plan=digest("\n\n".join(text.text for text in texts)),
        dates=digest("\n".join(date for text in texts for date in text.dates)),
        schema=_schema(df),
        spark=_version(df),
        comparable=(
            not _calls_functions(df, stream, batch)
            and plan_text.shows_everything(streamed)
            and plan_text.shows_everything(called)
            and is_whole
        ),
    )
    output_mode = str(execution.outputMode().toString()).lower()
    if output_mode == "update" and not plan_text.aggregates(streamed):
        output_mode = "append"  # without an aggregation each row comes once
    return _Facts(
        fingerprint,
        plan_text.is_stateful(streamed),
        output_mode,
        plan_text.combines(called, columns),
        plan_text.may_combine(called, columns, is_whole) or plan_text.may_combine_in_stream(streamed),
    )


def _batch_in(plan: JavaObject, execution: JavaObject) -> tuple[set[str], bool]:
    """Return (the batch's columns for each time that the batch function's plan reads it, whether it reads the batch and
    no other rows whose columns have the same names).

    The batch is recognised by its RDD, not by the ids of its columns: after ``localCheckpoint()`` the columns have the
    same ids, whatever was done with the rows before.
    """
    rdd, names = execution.lastExecution().toRdd().id(), _names(execution.analyzedPlan())
    leaves = [
        leaf
        for each in (plan, *each_of(plan.subqueriesAll()))
        for leaf in each_of(each.collectLeaves())
        if str(leaf.nodeName()) == "LogicalRDD"
    ]
    is_batch = [leaf.rdd().id() == rdd for leaf in leaves]
    columns = {_columns(leaf) for is_it, leaf in zip(is_batch, leaves) if is_it}
    return columns, bool(columns) and all(is_it or _names(leaf) != names for is_it, leaf in zip(is_batch, leaves))


def _whole_text(df: DataFrame) -> AbstractContextManager[Any]:
    """While this is open, Spark prints all fields of a plan. The setting is that of the query's own session."""
    return with_settings(df.sparkSession, {_SHORTENS: _ALL_FIELDS})


def _columns(plan: JavaObject) -> str:
    """The columns that a plan returns, with their ids, as ``plan_text.reads`` expects them."""
    return plan.output().toString().partition("(")[2].removesuffix(")")


def _names(plan: JavaObject) -> list[str]:
    return [str(column.name()) for column in each_of(plan.output())]


def _calls_functions(df: DataFrame, *plans: JavaObject) -> bool:
    """Whether the expressions of these plans call Python, Scala or Java functions."""
    patterns = getattr(df.sparkSession.sparkContext._jvm, _PATTERNS)
    programs = [patterns.PYTHON_UDF(), patterns.SCALA_UDF()]
    return any(plan.containsPattern(program) for plan in plans for program in programs)


def _sources(df: DataFrame, stream: JavaObject) -> tuple[set[str], list[Any]]:
    """Return (names that stand alone in the plan's text for a source, what each source reads, in order)."""
    leaves, names, sources = stream.collectLeaves(), set(), []
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        kind = str(leaf.nodeName())
        if kind == "StreamingRelation":
            relation = leaf.dataSource()
            options, name, paths = (
                _any_case(df, relation.options()),
                str(relation.className()),
                str(relation.paths().mkString("\n")),
            )
        elif kind.startswith("StreamingRelation"):
            options, name, paths = leaf.extraOptions(), str(leaf.sourceName()), ""
            names.add(str(leaf.toString()))
            identifier = leaf.identifier()
            paths = str(identifier.get().toString()) if identifier.isDefined() else ""
        else:
            continue
        sources.append([name, _place(paths), what_is_read(name, options), _types(json.loads(leaf.schema().json()))])
    return names, sources


def _read_by(df: DataFrame, leaf: JavaObject) -> list[Any]:
    """What a leaf of a bounded run's plan reads.

    For a leaf that does not answer, and for leaves of other kinds, the plan's text says all there is to say.
    """
    kind = str(leaf.nodeName())
    with contextlib.suppress(Py4JError):
        if kind == "LogicalRelation":
            return _read_by_relation(df, leaf.relation())
        if kind.startswith("DataSourceV2"):
            return [kind, str(leaf.table().name()), what_is_read("", leaf.options())]
    return [kind]


def _read_by_relation(df: DataFrame, relation: JavaObject) -> list[Any]:
    kind = str(relation.getClass().getSimpleName())
    if kind == "HadoopFsRelation":
        name, paths = str(relation.toString()), str(relation.location().rootPaths().mkString("\n")).split("\n")
        options = what_is_read(name.lower(), _any_case(df, relation.options()))
        options.pop("path", None)  # in the user's spelling; ``paths`` has it
        return [kind, name, sorted({_of_a_table(_place(path)) for path in paths}), options]
    if kind == "JDBCRelation":
        asked = relation.jdbcOptions()
        return [kind, _without_secrets(str(asked.url())), plan_text.of_any_process(str(asked.tableOrQuery()))]
    return [kind]


def _of_a_table(path: str) -> str:
    """A data file of a Paimon table stands for the table, whose files are other ones after each commit."""
    return _DATA_FILE.sub("", path)


def _without_secrets(url: str) -> str:
    """The address without the parameters that say who connects.

    Their names differ by driver, so only the parameters that choose a database are kept.
    """
    first, *parameters = re.split(r"[?;&]", running.without_credentials(url))
    return ";".join(
        [first, *(each for each in parameters if each.lower().startswith(("database", "currentschema", "schema")))]
    )


def _schema(df: DataFrame) -> str:
    return digest(json.dumps(_types(json.loads(df.schema.json()))))


def _version(df: DataFrame) -> str:
    """The minor version of Spark, such as "4.1"."""
    return ".".join(df.sparkSession.version.split(".")[:2])


def _any_case(df: DataFrame, options: JavaObject) -> JavaObject:
    """The options of a source of version 1 in the form that a source of version 2 has them.

    Their names may be written in any case there.
    """
    jvm = df.sparkSession.sparkContext._jvm
    java = getattr(jvm, "scala.jdk.javaapi.CollectionConverters").asJava(options)
    return getattr(jvm, "org.apache.spark.sql.util.CaseInsensitiveStringMap")(java)


def _value(option: str, value: str) -> str:
    """One spelling for values that mean the same."""
    if option in ("subscribe", "topics"):
        return ",".join(sorted(topic.strip() for topic in value.split(",")))
    if option == "assign":
        try:
            return json.dumps({topic: sorted(parts) for topic, parts in json.loads(value).items()}, sort_keys=True)
        except (ValueError, AttributeError, TypeError):
            return value
    return _place(value) if option in ("path", "basePath") else value


def _place(path: str) -> str:
    return running.without_credentials(path).removeprefix("file:").rstrip("/")


def _types(value: Any) -> Any:
    """A type or schema without what may differ for the same data: nullability and metadata."""
    if isinstance(value, dict):
        return {
            name: _types(part)
            for name, part in value.items()
            if name not in ("nullable", "metadata", "containsNull", "valueContainsNull")
        }
    return [_types(part) for part in value] if isinstance(value, list) else value
