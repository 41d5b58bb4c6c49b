"""Which files a bounded run reads, and whether its rows are those that are published. DRIVER, by Spark's JVM gateway."""

import os
import re
from collections.abc import Iterable

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamsink.protocol import run_inputs
from streamsink.protocol.committable import Committable
from streamsink.protocol.same_query import Comparison
from streamsink.spark.gateway import each_of
from streamsink.spark.read import parquet_files
from streamsink.spark.schema import quoted

# As every FileStatus of Hadoop prints itself.
_STATUS = re.compile(r"path=(?P<path>.*?); isDirectory=.*?; length=(?P<length>\d+);.*?; modification_time=(?P<time>\d+);", re.DOTALL)
_BY_ITSELF = ("LocalRelation", "Range", "OneRowRelation", "CTERelationRef")
_PATTERNS = "org.apache.spark.sql.catalyst.trees.TreePattern"
# Spark makes no hash of these.
_UNHASHED = re.compile(r"\b(?:map<|variant\b)")


def files_read(leaves: Iterable[JavaObject]) -> frozenset[str] | None:
    """Digests of all files, each of its path, time and size; None where anything else is read, or a file index does not tell them."""
    found: list[str] = []
    for leaf in leaves:
        if str(leaf.nodeName()) in _BY_ITSELF:
            continue
        try:
            files = leaf.relation().location().allFiles()
            told = [match.group("path", "time", "length") for match in _STATUS.finditer(str(files.mkString("\n")))]
            if len(told) != files.size():
                return None
        except Py4JError:
            return None
        found += ["|".join(each) for each in told]
    return run_inputs.digests(found)


def compared(rows: DataFrame, published: Committable | None, table: str) -> Comparison:
    """The rows with those that are published, but for values that another try makes anew. rows: as they are to be stored.

    Raises what reading ``rows`` raises.
    """
    if published is None:
        return _unknown("the journal does not remember the run's record any more (journal_retain)")
    if published.state.rows != sum(file.rows for file in published.files) or any(not f.final.endswith(".parquet") for f in published.files):
        return _unknown("its record does not name them")
    made_anew = _made_anew(rows)
    columns = [F.col(quoted(name)) for at, name in enumerate(rows.columns) if at not in made_anew]
    if not columns:
        return _unknown("each of their columns is made anew by each try")
    try:
        there = parquet_files(rows.sparkSession, [os.path.join(table, file.final) for file in published.files]).select(columns)
        found = _sum_of(there)
    except (PySparkException, Py4JError) as failed:
        return _unknown(f"the files in which they were published cannot be read: {type(failed).__name__}")
    given = _sum_of(rows.select([column.cast(field.dataType) for column, field in zip(columns, there.schema.fields)]))
    return Comparison(() if found == given else ("the rows in them",), ())


def _unknown(why: str) -> Comparison:
    return Comparison((), (why,))


def _sum_of(rows: DataFrame) -> tuple:
    """How many rows there are, and the sum of their hashes, whatever their order."""
    columns = [
        F.to_json(F.struct(quoted(field.name))) if _UNHASHED.search(field.dataType.simpleString()) else F.col(quoted(field.name))
        for field in rows.schema.fields
    ]
    return tuple(rows.select(F.xxhash64(*columns).cast("decimal(38,0)").alias("hash")).agg(F.count("hash"), F.sum("hash")).first())


def _made_anew(rows: DataFrame) -> set[int]:
    """Places of columns that are constants of the program, or hang on the time or on chance: another try gives them other values."""
    current = getattr(rows.sparkSession.sparkContext._jvm, _PATTERNS).CURRENT_LIKE()
    known: set[int] = set()

    def is_made_anew(expression: JavaObject) -> bool:
        return (
            expression.foldable() or not expression.deterministic() or expression.containsPattern(current)
            or any(each.exprId().id() in known for each in each_of(expression.references().toSeq()))
        )

    def look_at(plan: JavaObject) -> None:
        for child in each_of(plan.children()):
            look_at(child)
        for expression in each_of(plan.expressions()):
            if str(expression.nodeName()) == "Alias" and is_made_anew(expression.child()):
                known.add(expression.exprId().id())
        if str(plan.nodeName()) == "Union":  # its columns have the ids of its first input, or ids of their own
            for at, column in enumerate(each_of(plan.output())):
                if any(child.output().apply(at).exprId().id() in known for child in each_of(plan.children())):
                    known.add(column.exprId().id())

    plan = rows._jdf.queryExecution().analyzed()
    look_at(plan)
    return {at for at, column in enumerate(each_of(plan.output())) if column.exprId().id() in known}
