"""Analysed plans as Spark prints them: what they say of a query, without what is another one at each start. DRIVER, pure text.

A line is an operator; its depth stands in the drawing before it, three characters a level. ``~`` marks what is streaming.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

_DRAWING = re.compile(r"((?:[: ] {2})*)[:+]- ")
# Operators that keep state whenever their input is a stream; a join does when both of its inputs are.
_STATEFUL = re.compile(
    r"Aggregate|Distinct|Deduplicate|DeduplicateWithinWatermark|GlobalLimit|Except|Intersect|TransformWithState\w*"
    r"|FlatMapGroups\w*WithState|FlatMapGroupsInPandasWithState"
)
_JOIN, _UNION = "Join", "Union"
# Their results come again in output mode 'update' when they change.
_AGGREGATING = re.compile(r"Aggregate|Distinct|Except|Intersect")
# Operators of functions whose body no plan shows; functions in expressions are looked for in the JVM.
_PROGRAMS = re.compile(
    r"Map(?:Elements|Partitions|Groups|InPandas|InArrow)\w*|FlatMap\w+|TypedFilter|AppendColumns\w*|CoGroup|TransformWithState\w*"
    r"|\w*(?:InPandas|InArrow|InPySpark|InR)|\w*EvalPython\w*"
)
# A row that they give, or whether they give it, hangs on other rows of their input.
_COMBINING = re.compile(
    r"Aggregate|Distinct|Deduplicate|Window\w*|GlobalLimit|LocalLimit|Tail|Offset|Except|Intersect|Pivot|FlatMap(?:Groups|CoGroups)\w*"
    r"|MapGroups|CoGroup"
)
# Their functions are given many rows at once, so that a row that they give may be made of several of them.
_OVER_MANY = re.compile(
    r"MapPartitions\w*|MapGroups\w*|FlatMap\w+|CoGroup|TransformWithState\w*|\w*(?:InPandas|InArrow|InPySpark|InR)|ScriptTransformation"
)
# They neither make, drop nor change rows.
_PASSING = re.compile(r"Repartition\w*|RebalancePartitions|ResolvedHint|SubqueryAlias|View|CollectMetrics")
# They give a row for each row of their inputs, whatever stands in them.
_ROW_FOR_ROW = re.compile(
    r"Project|Union|Sort|WithCTE|CTERelation\w+|Local\w*Relation|LogicalRDD|Relation\w*|Range|OneRowRelation|CommandResult"
)
_PYTHON_TABLE_FUNCTION = re.compile(r"Generate .*\)#\d+, (?:true|false), \[", re.DOTALL)
_SHORTENED = re.compile(r"\.\.\. \d+ more fields")
# Of rows that no plan leads back to the batch.
_ELSEWHERE = "an RDD, localCheckpoint(), the driver or a file through which they went"

_FIRST_WORD = re.compile(r"\w*")
_ID = re.compile(r"#\d+")
_CTE = re.compile(r"(CTERelation(?:Def|Ref)) (\d+)")
_DATE = r"-?\d{4,}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?"
_PLAIN_COLUMN = re.compile(rf"(?<=[\[ ]){_DATE} AS ")
_ANY_DATE = re.compile(rf"(?<![\w.-]){_DATE}(?![\w-])")
# What Spark draws by lot, and the session's time zone, which belongs to the machine.
_BY_ITSELF = (
    (re.compile(r"\b(randn?)\(-?\d+\)"), r"\1()"),
    (re.compile(r"\b((?:uniform|randstr)\([^()]*?), -?\d+(, (?:true|false)\))"), r"\1\2"),
    (re.compile(r"\bSome\((?:-?\d+|[A-Z]\w*(?:/[\w+-]+)*|[+-]\d\d:\d\d)\)"), "Some()"),
)


# A column that hangs on nothing that is read, such as the time of loading. Without its brackets in pairs it is a part of a function.
_CONSTANT_COLUMN = re.compile(r"(?:(?<=\[)|(?<=, ))((?:(?!#\d| AS ).)+?) AS ", re.DOTALL)
# What Spark counts or addresses anew in each process, and what it knows of a table's size.
_OF_THIS_PROCESS = re.compile(r"(?<=SPARK_GEN_SUBQ_)\d+|(?<=@)[0-9a-f]{5,8}\b|, Statistic: \w+")


@dataclass(frozen=True)
class Operator:
    """A line of a plan. depth: 0 for the root. name: its first word. text: all of it, without the mark of streaming.

    source: it is where the stream is read.
    """

    depth: int
    name: str
    text: str
    streaming: bool
    source: bool


@dataclass(frozen=True)
class PlanText:
    """A plan without ids, seeds and what passes rows through. dates: those of its conditions, which stand apart."""

    text: str
    dates: tuple[str, ...]


def operators(plan: str, sources: Collection[str] = ()) -> list[Operator]:
    """The lines of a plan. sources: names that stand alone where a source is read, without the mark of streaming."""
    found: list[tuple[int, str]] = []
    for line in plan.rstrip("\n").split("\n"):
        drawn = _DRAWING.match(line)
        if drawn:
            found.append((len(drawn[1]) // 3 + 1, line[drawn.end() :]))
        elif not found:
            found.append((0, line))
        else:  # a text in the plan has a line break
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
    """Whether a stream's rows come out of state."""
    return any(
        each.streaming
        and (
            _STATEFUL.fullmatch(each.name) is not None
            or (each.name == _JOIN and _inputs(plan, index, lambda below: below.streaming) > 1)
        )
        for index, each in enumerate(plan)
    )


def aggregates(plan: Sequence[Operator]) -> bool:
    """Whether a stream's results may change."""
    return any(each.streaming and _AGGREGATING.fullmatch(each.name) for each in plan)


def shows_everything(plan: Sequence[Operator]) -> bool:
    """Whether no operator runs a function that the text does not show, and no line is shortened."""
    return not any(
        _PROGRAMS.fullmatch(each.name) or _PYTHON_TABLE_FUNCTION.match(each.text) or _SHORTENED.search(each.text)
        for each in plan
    )


def reads(plan: Sequence[Operator], columns: str) -> bool:
    """Whether the batch with these columns, as Spark prints them between brackets with their ids, stands at a leaf of the plan.

    Rows that went through an RDD have other ids, although they may have the same names.
    """
    return any(each.text.startswith(f"LogicalRDD [{columns}],") for each in plan)


def combines(plan: Sequence[Operator], columns: Collection[str]) -> str:
    """The operator by which a row hangs on several rows of the batch; empty when none does.

    columns: those of the batch, as ``reads`` has them, for each time that it is read: for a join with itself, or in a subquery, they have
    other ids. Columns of a table beside it may have the same names, but not these ids.
    """
    is_batch = _is_batch(columns)
    for index, each in enumerate(plan):
        if _inputs(plan, index, is_batch) >= (1 if _COMBINING.fullmatch(each.name) else 2) and each.name != _UNION:
            return each.name
    return ""


def may_combine(plan: Sequence[Operator], columns: Collection[str], is_whole: bool) -> str:
    """What hides whether a row is of one row of the batch; empty when nothing does. A function over one row at a time hides nothing.

    columns: as ``combines`` has them. is_whole: the batch itself stands in the plan, and no other rows of its columns do. What a union puts beside the batch may have come of it.
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
    """The same of what a stream goes through before the batch function is given its batches: the operator."""
    return next((each.name for each in plan if each.streaming and not each.source and _runs_over_many(each)), "")


def _runs_over_many(each: Operator) -> bool:
    return bool(_OVER_MANY.fullmatch(each.name) or _PYTHON_TABLE_FUNCTION.match(each.text))


def _is_batch(columns: Collection[str]) -> Callable[[Operator], bool]:
    """Whether a leaf is the batch, by the ids of its columns."""
    leaves = tuple(f"LogicalRDD [{each}]," for each in columns)
    return lambda below: below.text.startswith(leaves)


def of_a_job(plan: Sequence[Operator]) -> list[Operator]:
    """A bounded run's plan without constant columns: the same run may set them anew when it is repeated."""
    return [_of_a_job(each) for each in plan]


def of_any_process(text: str) -> str:
    """Without what Spark counts or addresses anew in each process."""
    return _OF_THIS_PROCESS.sub("", text)


def _of_a_job(each: Operator) -> Operator:
    if each.name == "RelationV2":
        return replace(each, source=True)  # what is read is told by itself
    text = of_any_process(each.text)
    return replace(each, text=_CONSTANT_COLUMN.sub(_constant, text) if each.name == "Project" else text)


def _constant(found: re.Match[str]) -> str:
    return "constant AS " if found[1].count("(") == found[1].count(")") else found[0]


def has_row_for_row(plan: Sequence[Operator]) -> bool:
    """Whether as many rows come out as are read, whatever the plan's expressions give."""
    return all(_ROW_FOR_ROW.fullmatch(each.name) or _PASSING.fullmatch(each.name) for each in plan)


def samples(plan: Sequence[Operator]) -> bool:
    """Whether rows are drawn by lot."""
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
    """The line without what is new at each start; its dates are added to ``dates``."""
    if each.source:
        return "source"  # what is read is told by itself, without its options
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
    """Ids as they come first in the text: 1, 2, ..."""
    known: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        value = known.setdefault(found[found.lastindex or 0], len(known) + 1)
        return f"{found[1]} {value}" if found.lastindex else shape.format(value)

    return pattern.sub(number, text)


def _inputs(plan: Sequence[Operator], at: int, counts: Callable[[Operator], bool]) -> int:
    """How many inputs of the operator count: one does when anything in it does. Its subqueries, drawn before its inputs, are one."""
    depth, count, counted = plan[at].depth, 0, False
    for each in plan[at + 1 :]:
        if each.depth <= depth:
            break
        if each.depth == depth + 1:
            counted = False
        if not counted and counts(each):
            count, counted = count + 1, True
    return count
