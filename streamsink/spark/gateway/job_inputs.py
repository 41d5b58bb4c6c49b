"""Which files a bounded run reads, and which of its columns another try computes anew. Runs on the driver.

It asks Spark's JVM gateway.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from streamsink.protocol import run_inputs
from streamsink.spark.gateway.running import each_of

# The text of a FileStatus of Hadoop.
_STATUS = re.compile(
    r"path=(?P<path>.*?); isDirectory=.*?; length=(?P<length>\d+);.*?; modification_time=(?P<time>\d+);", re.DOTALL
)
_PATTERNS = "org.apache.spark.sql.catalyst.trees.TreePattern"
# Operators whose new columns all have an alias.
_NAMING = re.compile(
    r"Project|Filter|Aggregate|Window|Join|Sort|SubqueryAlias|View|Distinct|Deduplicate|Repartition\w*|GlobalLimit"
    r"|LocalLimit|\w*Relation"
)
_METADATA = "_metadata"


def files_read(df: DataFrame, leaves: Iterable[JavaObject]) -> frozenset[str] | None:
    """Return digests of all files that the leaves read, each made of the file's path, time and size.

    leaves: of the plans of the run. None when none of the leaves reads files, or one of them does not tell its files.
    """
    found: list[str] | None = None
    for leaf in leaves:
        index = index_of(leaf)
        if index is None:
            continue  # what it reads is in the text of the plan, if anywhere
        told = _files_in(index)
        if told is None:
            told = _files_of_table(df, leaf)
        if told is None:
            return None
        found = (found or []) + told
    return None if found is None else run_inputs.digests(found)


def index_of(leaf: JavaObject) -> JavaObject | None:
    """What Spark has listed for a leaf of a plan; None when the leaf reads no files."""
    listings: Sequence[Callable[[], JavaObject]] = (
        lambda: leaf.relation().location(),
        lambda: leaf.table().fileIndex(),
    )
    for listing in listings:
        try:
            return listing()
        except Py4JError:
            continue
    return None


def _files_in(index: JavaObject) -> list[str] | None:
    told = statuses(index)
    return None if told is None else ["|".join(each) for each in told]


def statuses(index: JavaObject) -> list[tuple[str, str, str]] | None:
    """For each file its path, its time in milliseconds and its size, as text; None when Spark does not tell them."""
    try:
        files = index.allFiles()
    except Py4JError:
        return None
    told = [(match["path"], match["time"], match["length"]) for match in _STATUS.finditer(str(files.mkString("\n")))]
    return told if len(told) == files.size() else None


def _table_of(leaf: JavaObject) -> str | None:
    try:
        return str(leaf.catalogTable().get().identifier().toString())
    except Py4JError:
        return None


def _files_of_table(df: DataFrame, leaf: JavaObject) -> list[str] | None:
    """The files of a table in a catalog, which lists its partitions only when they are read.

    These are the files of the partitions that the plan's conditions leave; of all partitions when that is not known.
    """
    try:
        name = _table_of(leaf)
        listed = [
            _files_in(each.relation().location())
            for each in each_of(df._jdf.queryExecution().optimizedPlan().collectLeaves())
            if _table_of(each) == name
        ]
        pruned = [files for files in listed if files is not None]
        if pruned and len(pruned) == len(listed):
            return [file for files in pruned for file in files]
        jvm: Any = df.sparkSession.sparkContext._jvm
        no_condition = jvm.PythonUtils.toSeq([])
        return _files_in(leaf.relation().location().filterPartitions(no_condition))
    except Py4JError:
        return None


# -- columns -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """What is known of a column of a plan.

    volatile: its values depend on the time, on chance, or on where a file is. constant: its value is given by the
    program. read: the ids of the columns that are read for it. plain: it is a column that is read, unchanged.
    """

    volatile: bool = False
    constant: bool = False
    read: frozenset[int] = frozenset()
    plain: bool = False


def made_anew(df: DataFrame) -> tuple[set[int], bool]:
    """Return (places of columns to which another try may give other values, whether all that is read for them is in
    other columns).
    """
    plan = df._jdf.queryExecution().analyzed()
    lineage = _Lineage(df)
    lineage.follow(plan)
    columns = [lineage.of(column) for column in each_of(plan.output())]
    left_out = {at for at, column in enumerate(columns) if column.constant or column.volatile}
    shown = {read for column in columns if column.plain for read in column.read}
    return left_out, all(columns[at].read <= shown for at in left_out)


def combines(df: DataFrame) -> bool:
    """Whether a value may be a sum. Its last digits depend on the order in which the numbers were added."""
    return any(
        re.fullmatch("Aggregate|Window", str(plan.nodeName())) for plan in _all_of(df._jdf.queryExecution().analyzed())
    )


def _all_of(plan: JavaObject) -> Iterator[JavaObject]:
    yield plan
    for child in each_of(plan.children()):
        yield from _all_of(child)


class _Lineage:
    """Follows columns from what is read to what a plan returns, by their ids."""

    def __init__(self, df: DataFrame):
        self._current = getattr(df.sparkSession.sparkContext._jvm, _PATTERNS).CURRENT_LIKE()
        self._known: dict[int, _Column] = {}

    def follow(self, plan: JavaObject) -> None:
        """Learn the columns of the plan and of all plans below it."""
        children, name = each_of(plan.children()), str(plan.nodeName())
        for child in children:
            self.follow(child)
        expressions = each_of(plan.expressions())
        for expression in expressions:
            if str(expression.nodeName()) == "Alias":
                self._known[expression.exprId().id()] = self._made_by(expression.child(), name == "Project")
        if name == "Union":
            # The ids of the columns may be those of the first input.
            for at, column in enumerate(each_of(plan.output())):
                self._known[column.exprId().id()] = _united([self.of(child.output().apply(at)) for child in children])
        elif not _NAMING.fullmatch(name):
            self._follow_others(plan, children, [self._made_by(expression, False) for expression in expressions])

    def of(self, column: JavaObject) -> _Column:
        """What is known of a column that an operator reads or returns."""
        known = self._known.get(column.exprId().id())
        if known is not None:
            return known
        if str(column.name()) == _METADATA:
            return _Column(volatile=True)
        return _Column(read=frozenset((column.exprId().id(),)), plain=True)

    def _made_by(self, expression: JavaObject, may_be_constant: bool) -> _Column:
        if str(expression.nodeName()) == "AttributeReference":
            return self.of(expression)
        of = [self.of(column) for column in each_of(expression.references().toSeq())]
        read = frozenset().union(*(column.read for column in of))
        if (
            not expression.deterministic()
            or expression.containsPattern(self._current)
            or any(column.volatile for column in of)
        ):
            return _Column(volatile=True, read=read)
        constant = expression.foldable() or may_be_constant and bool(of) and all(column.constant for column in of)
        return _Column(constant=constant, read=frozenset() if constant else read)

    def _follow_others(self, plan: JavaObject, children: Sequence[JavaObject], made: Sequence[_Column]) -> None:
        """Columns that no alias names, such as those of a generator. They depend on all that the operator computes."""
        given = {column.exprId().id() for child in children for column in each_of(child.output())}
        if children and any(column.volatile for column in made):
            read = frozenset().union(*(column.read for column in made))
            for column in each_of(plan.output()):
                if column.exprId().id() not in given:
                    self._known.setdefault(column.exprId().id(), _Column(volatile=True, read=read))


def _united(columns: Sequence[_Column]) -> _Column:
    return _Column(
        volatile=any(column.volatile for column in columns),
        constant=all(column.constant for column in columns),
        read=frozenset().union(*(column.read for column in columns)),
        plain=all(column.plain or column.constant for column in columns),
    )
