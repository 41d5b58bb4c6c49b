"""Analysed plans as Spark prints them: what they say of a query, without what differs at each start.

Pure; runs on the driver.

A line is an operator. Its depth is in the drawing before it, three characters per level. ``~`` marks a streaming
operator.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

_DRAWING = re.compile(r"((?:[: ] {2})*)[:+]- ")
# Operators that keep state whenever their input is a stream. A join keeps state when both of its inputs are streams.
_STATEFUL = re.compile(
    r"Aggregate|Distinct|Deduplicate|DeduplicateWithinWatermark|GlobalLimit|Except|Intersect|TransformWithState\w*"
    r"|FlatMapGroups\w*WithState|FlatMapGroupsInPandasWithState"
)
_JOIN, _UNION = "Join", "Union"
# Operators whose results come again in output mode 'update' when they change.
_AGGREGATING = re.compile(r"Aggregate|Distinct|Except|Intersect")
# Operators that run functions whose body no plan shows. Functions in expressions are looked for in the JVM.
_PROGRAMS = re.compile(
    r"Map(?:Elements|Partitions|Groups|InPandas|InArrow)\w*|FlatMap\w+|TypedFilter|AppendColumns\w*|CoGroup"
    r"|TransformWithState\w*|\w*(?:InPandas|InArrow|InPySpark|InR)|\w*EvalPython\w*"
)
# Operators where a row that they return, or whether they return it, depends on other rows of their input.
_COMBINING = re.compile(
    r"Aggregate|Distinct|Deduplicate|Window\w*|GlobalLimit|LocalLimit|Tail|Offset|Except|Intersect|Pivot"
    r"|FlatMap(?:Groups|CoGroups)\w*|MapGroups|CoGroup"
)
# Operators whose functions are given many rows at once, so that a row they return may be made of several rows.
_OVER_MANY = re.compile(
    r"MapPartitions\w*|MapGroups\w*|FlatMap\w+|CoGroup|TransformWithState\w*|\w*(?:InPandas|InArrow|InPySpark|InR)"
    r"|ScriptTransformation"
)
# Operators that neither add, drop nor change rows.
_PASSING = re.compile(r"Repartition\w*|RebalancePartitions|ResolvedHint|SubqueryAlias|View|CollectMetrics")
# Operators that return a row for each row of their inputs, whatever its values are.
_ROW_FOR_ROW = re.compile(
    r"Project|Union|Sort|WithCTE|CTERelation\w+|Local\w*Relation|LogicalRDD|Relation\w*|Range|OneRowRelation|CommandResult"
)
_PYTHON_TABLE_FUNCTION = re.compile(r"Generate .*\)#\d+, (?:true|false), \[", re.DOTALL)
_SHORTENED = re.compile(r"\.\.\. \d+ more fields")
# What is said of rows that no plan leads back to the batch.
_ELSEWHERE = "an RDD, localCheckpoint(), the driver or a file through which they went"

_FIRST_WORD = re.compile(r"\w*")
_ID = re.compile(r"#\d+")
_CTE = re.compile(r"(CTERelation(?:Def|Ref)) (\d+)")
_DATE = r"-?\d{4,}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?"
_PLAIN_COLUMN = re.compile(rf"(?<=[\[ ]){_DATE} AS ")
_ANY_DATE = re.compile(rf"(?<![\w.-]){_DATE}(?![\w-])")
# What Spark chooses at random, and the session's time zone, which belongs to the machine.
_BY_ITSELF = (
    (re.compile(r"\b(randn?)\(-?\d+\)"), r"\1()"),
    (re.compile(r"\b((?:uniform|randstr)\([^()]*?), -?\d+(, (?:true|false)\))"), r"\1\2"),
    (re.compile(r"\bSome\((?:-?\d+|[A-Z]\w*(?:/[\w+-]+)*|[+-]\d\d:\d\d)\)"), "Some()"),
)

# A column that depends on nothing that is read, such as the time of loading. If its brackets are not in pairs, the
# match is a part of a function.
_CONSTANT_COLUMN = re.compile(r"(?:(?<=\[)|(?<=, ))((?:(?!#\d| AS ).)+?) AS ", re.DOTALL)
# What Spark counts or addresses anew in each process, and what it knows of a table's size.
_OF_THIS_PROCESS = re.compile(r"(?<=SPARK_GEN_SUBQ_)\d+|(?<=@)[0-9a-f]{5,8}\b|, Statistic: \w+")


@dataclass(frozen=True)
class Operator:
    """A line of a plan.

    depth: 0 for the root. name: its first word. text: all of it, without the mark of streaming. streaming: whether its
    rows are those of a stream. source: whether the stream is read here.
    """

    depth: int
    name: str
    text: str
    streaming: bool
    source: bool


@dataclass(frozen=True)
class PlanText:
    """A plan as text, without ids, seeds and operators that pass rows through.

    dates: the dates in its conditions, which are kept apart from the text.
    """

    text: str
    dates: tuple[str, ...]


def operators(plan: str, sources: Collection[str] = ()) -> list[Operator]:
    """Return the lines of a plan.

    sources: texts that stand alone, without the mark of streaming, where a source is read.
    """
    found: list[tuple[int, str]] = []
    for line in plan.rstrip("\n").split("\n"):
        drawn = _DRAWING.match(line)
        if drawn:
            found.append((len(drawn[1]) // 3 + 1, line[drawn.end() :]))
        elif not found:
            found.append((0, line))
        else:  # a string in the plan contains a line break
            depth, text = found[-1]
            found[-1] = depth, f"{text}\n{line}"
    return [_operator(depth, text, sources) for depth, text in found]


def _operator(depth: int, text: str, sources: Collection[str]) -> Operator:
    plain = text.removeprefix("~")
    word = _FIRST_WORD.match(plain)
    name = word[0] if word else ""
    source = name.startswith("StreamingRelation") or text in sources
    return Operator(depth, name, plain, plain != text or source, source)


def is_stateful(plan: Sequence[Operator]) -> bool:
    """Whether rows of a stream come out of state."""
    return any(
        each.streaming
        and (
            _STATEFUL.fullmatch(each.name) is not None
            or (each.name == _JOIN and _inputs(plan, index, lambda below: below.streaming) > 1)
        )
        for index, each in enumerate(plan)
    )


def aggregates(plan: Sequence[Operator]) -> bool:
    """Whether results of a stream may change."""
    return any(each.streaming and _AGGREGATING.fullmatch(each.name) for each in plan)


def shows_everything(plan: Sequence[Operator]) -> bool:
    """Whether no operator runs a function that the text does not show, and no line is shortened."""
    return not any(
        _PROGRAMS.fullmatch(each.name) or _PYTHON_TABLE_FUNCTION.match(each.text) or _SHORTENED.search(each.text)
        for each in plan
    )


def reads(plan: Sequence[Operator], columns: str) -> bool:
    """Whether a leaf of the plan is the batch.

    columns: the batch's columns as Spark prints them between brackets, with their ids. Rows that went through an RDD
    have other ids, although they may have the same names.
    """
    return any(each.text.startswith(f"LogicalRDD [{columns}],") for each in plan)


def combines(plan: Sequence[Operator], columns: Collection[str]) -> str:
    """Return the name of the operator by which a row depends on several rows of the batch; empty when there is none.

    columns: those of the batch, as ``reads`` takes them, once for each time that the batch is read: where it is joined
    with itself, or read in a subquery, they have other ids. The columns of a table beside it may have the same names,
    but not these ids.
    """
    is_batch = _is_batch(columns)
    for index, each in enumerate(plan):
        if _inputs(plan, index, is_batch) >= (1 if _COMBINING.fullmatch(each.name) else 2) and each.name != _UNION:
            return each.name
    return ""


def may_combine(plan: Sequence[Operator], columns: Collection[str], is_whole: bool) -> str:
    """Return what hides whether a row was made of one row of the batch; empty when nothing does.

    A function over one row at a time hides nothing. Rows that a union puts beside the batch may have been made of it.
    columns: as for ``combines``. is_whole: whether the plan reads the batch itself, and no other rows whose columns
    have the same names.
    """
    if not is_whole:
        return _ELSEWHERE
    is_batch = _is_batch(columns)
    for index, each in enumerate(plan):
        inputs = _inputs(plan, index, is_batch)
        if inputs and _runs_over_many(each):
            return each.name
        if each.name == _UNION and 0 < inputs < _inputs(plan, index, lambda below: True):
            return _ELSEWHERE
    return ""


def may_combine_in_stream(plan: Sequence[Operator]) -> str:
    """Return the name of the operator that hides this in the stream, before the batch function is given its batches."""
    return next((each.name for each in plan if each.streaming and not each.source and _runs_over_many(each)), "")


def _runs_over_many(each: Operator) -> bool:
    return bool(_OVER_MANY.fullmatch(each.name) or _PYTHON_TABLE_FUNCTION.match(each.text))


def _is_batch(columns: Collection[str]) -> Callable[[Operator], bool]:
    """A function that tells whether a leaf is the batch, by the ids of its columns."""
    leaves = tuple(f"LogicalRDD [{each}]," for each in columns)
    return lambda below: below.text.startswith(leaves)


def of_a_job(plan: Sequence[Operator]) -> list[Operator]:
    """A bounded run's plan without constant columns, to which the same run may give new values when it is repeated."""
    return [_of_a_job(each) for each in plan]


def of_any_process(text: str) -> str:
    """The text without what Spark counts or addresses anew in each process."""
    return _OF_THIS_PROCESS.sub("", text)


def _of_a_job(each: Operator) -> Operator:
    if each.name == "RelationV2":
        return replace(each, source=True)  # what it reads is compared separately
    text = of_any_process(each.text)
    return replace(each, text=_CONSTANT_COLUMN.sub(_constant, text) if each.name == "Project" else text)


def _constant(found: re.Match[str]) -> str:
    return "constant AS " if found[1].count("(") == found[1].count(")") else found[0]


def has_row_for_row(plan: Sequence[Operator]) -> bool:
    """Whether as many rows come out as are read, whatever values the plan's expressions have."""
    return all(_ROW_FOR_ROW.fullmatch(each.name) or _PASSING.fullmatch(each.name) for each in plan)


def samples(plan: Sequence[Operator]) -> bool:
    """Whether the rows are a random sample."""
    return any(each.name == "Sample" for each in plan)


def canonical(plan: Sequence[Operator]) -> PlanText:
    """The plan as the same program prints it in every process."""
    lines: list[str] = []
    dates: list[str] = []
    passed: list[int] = []
    for each in plan:
        while passed and passed[-1] >= each.depth:
            passed.pop()
        if _PASSING.fullmatch(each.name):
            passed.append(each.depth)
            continue
        lines.append(f"{each.depth - len(passed)} {_without_chance(each, dates)}")
    text = _numbered(_CTE, _numbered(_ID, "\n".join(lines), "#{}"), "{}")
    return PlanText(text, tuple(dates))


def _without_chance(each: Operator, dates: list[str]) -> str:
    """The line without what is new at each start. Its dates are added to ``dates``."""
    if each.source:
        return "source"  # what it reads is compared separately, by those options that say so
    text = each.text
    if each.name == "EventTimeWatermark":
        text = re.sub(r" [0-9a-f-]{36},", "", text)
    for pattern, instead in _BY_ITSELF:
        text = pattern.sub(instead, text)
    if each.name == "Sample":
        text = text.rpartition(",")[0]
    if each.name == "Project":
        text = _PLAIN_COLUMN.sub("date AS ", text)

    def put_apart(found: re.Match[str]) -> str:
        dates.append(found[0])
        return "date"

    return _ANY_DATE.sub(put_apart, text)


def _numbered(pattern: re.Pattern[str], text: str, shape: str) -> str:
    """The text with its ids numbered in the order in which they first appear: 1, 2, ..."""
    known: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        value = known.setdefault(found[found.lastindex or 0], len(known) + 1)
        return f"{found[1]} {value}" if found.lastindex else shape.format(value)

    return pattern.sub(number, text)


def _inputs(plan: Sequence[Operator], at: int, counts: Callable[[Operator], bool]) -> int:
    """How many inputs of the operator count. An input counts when any operator in it does.

    The operator's subqueries, which are drawn before its inputs, are one input together.
    """
    depth, count, counted = plan[at].depth, 0, False
    for each in plan[at + 1 :]:
        if each.depth <= depth:
            break
        if each.depth == depth + 1:
            counted = False
        if not counted and counts(each):
            count, counted = count + 1, True
    return count
