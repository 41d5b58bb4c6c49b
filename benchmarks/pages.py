"""The numbers that the documentation quotes, all of one run.

``make bench ARGS=--write`` keeps its run in ``docs/benchmarks.json`` and writes what the pages quote of it between
``<!-- begin NAME -->`` and ``<!-- end NAME -->``. With ``--only PART`` it keeps that part alone, and the page says when
it was measured. ``python -m benchmarks.pages`` writes the same once more without measuring, after a block has been
given another form here. A test compares the pages with the file.
"""

import json
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from benchmarks import peers
from benchmarks.report import Goal, Table, lines
from benchmarks.ways import ASYNC, NOOP, OURS, SPARK, TASKS, UNFLUSHED, WRITER

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "docs" / "benchmarks.json"
PICTURE = ROOT / "docs" / "benchmarks.svg"
# Of so many runs before the one on record the goals are kept, to show how far they differ.
_MOST_EARLIER = 8
_NOT_MEASURED = "-"
# Goals that begin so are one line of the page. Those of a destination stand on its own page.
_MEMORY, _SINKS = ("peak memory",), ("Kafka", "PostgreSQL", "MariaDB", "IcebergSink", "DeltaSink", "fan-out")
_COMPACTION = ("compaction",)


@dataclass(frozen=True)
class Run:
    """One run: its tables by part and its goals.

    about: the versions and the machine. day: of its begin, as 2026-11-26. earlier: goals of runs before, oldest first,
    each a mapping from the goal to what was measured. apart: when and where parts were measured that had a run of their
    own.
    """

    about: str
    day: str
    tables: Mapping[str, Sequence[Table]]
    goals: Sequence[Goal]
    earlier: Sequence[Mapping[str, str]] = ()
    apart: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, about: str, day: str, parts: Mapping[str, Sequence]) -> "Run":
        """parts: what each part returned, in the order in which they ran."""
        tables = {part: [item for item in found if isinstance(item, Table)] for part, found in parts.items()}
        return cls(about, day, tables, [item for found in parts.values() for item in found if isinstance(item, Goal)])

    def cell(self, part: str, row: str, column: str, place: int = 0) -> str:
        """A cell of the part's table at this place, by the first cell of its row and the head of its column."""
        table = self.tables[part][place]
        return next(cells for cells in table.rows if cells[0] == row)[list(table.head).index(column)]

    def median(self, part: str, row: str, column: str, place: int = 0) -> str:
        """The same without the least and the greatest value."""
        return self.cell(part, row, column, place).partition(" [")[0]

    def names(self, part: str, place: int = 0) -> list[str]:
        """The first cells of a table's rows."""
        return [row[0] for row in self.tables[part][place].rows]


def read(path: Path = RECORD) -> Run:
    """The run on record."""
    found = json.loads(path.read_text(encoding="utf-8"))
    tables = {part: [Table(**table) for table in listed] for part, listed in found["tables"].items()}
    goals = [Goal(**goal) for goal in found["goals"]]
    return Run(found["about"], found["day"], tables, goals, found["earlier"], found.get("apart", {}))


def keep(run: Run) -> None:
    """Make this the run on record, with the goals of those before it, and write what the pages quote."""
    before = read()
    earlier = [*before.earlier, {goal.what: goal.measured for goal in before.goals}][-_MOST_EARLIER:]
    RECORD.write_text(json.dumps({**asdict(run), "earlier": earlier}, indent=1) + "\n", encoding="utf-8")
    write(read())


def keep_parts(run: Run) -> None:
    """Put the parts of this run in the place of those on record, and write what the pages quote."""
    before, new = read(), {goal.what for goal in run.goals}
    goals = [*(goal for goal in before.goals if goal.what not in new), *run.goals]
    apart = {**before.apart, **dict.fromkeys(run.tables, f"{run.day}: {run.about}")}
    kept = replace(before, tables={**before.tables, **run.tables}, goals=goals, apart=apart)
    RECORD.write_text(json.dumps(asdict(kept), indent=1) + "\n", encoding="utf-8")
    write(read())


def write(run: Run) -> None:
    """Write what the pages quote."""
    for name in BLOCKS:
        page = ROOT / name
        page.write_text(rendered(name, page.read_text(encoding="utf-8"), run), encoding="utf-8")


def rendered(name: str, text: str, run: Run) -> str:
    """The text of a page with its blocks as they are by this run. Raises ValueError when a marker is missing."""
    for block, make in BLOCKS[name].items():
        begin, end = f"<!-- begin {block} -->", f"<!-- end {block} -->"
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise ValueError(f"{name} must have the markers {begin} and {end} once")
        content = "\n".join([begin, *make(run), end])
        text = pattern.sub(lambda _, content=content: content, text)
    return text


def _speed(run: Run) -> list[str]:
    against = "time against Spark's (zstd)"
    rows = [
        ["micro-batches of 1,000 rows, everything flushed to disk", run.cell("micro", OURS, "against Spark's (zstd)")],
        ["5,000,000 rows without partitions", run.cell("large", OURS, against)],
        ["2,000,000 rows over 64 partitions", run.cell("partitioned", OURS, against)],
        ["2,000,000 rows over 1,000 partitions", run.cell("partitioned", OURS, against, 1)],
    ]
    return lines(("", "time against Spark's own file sink"), rows)


def _about(run: Run) -> list[str]:
    return [f"Measured on {run.day}: {run.about}."]


def _goals(run: Run) -> list[str]:
    head = ("goal", "target", "measured", "in earlier runs", "")
    summed = {
        "peak memory: goals that are met": _MEMORY,
        "into destinations beside Paimon tables: goals that are met": _SINKS,
        "small files beside a stream: goals that are met": _COMPACTION,
    }
    rows = [_goal(run, goal) for goal in run.goals if not goal.what.startswith((*_MEMORY, *_SINKS, *_COMPACTION))]
    for what, begin in summed.items():
        goals = [goal for goal in run.goals if goal.what.startswith(begin)]
        if goals:
            met, all_of_them = sum(goal.met for goal in goals), len(goals)
            said = "met" if met == all_of_them else "**not met**"
            rows.append([what, f">= {all_of_them}", str(met), _NOT_MEASURED, said])
    return lines(head, rows)


def _goal(run: Run, goal: Goal) -> list[str]:
    return [goal.what, goal.target, goal.measured, _range(run, goal), "met" if goal.met else "**not met**"]


def _range(run: Run, goal: Goal) -> str:
    """The least and the greatest that earlier runs measured."""
    found = sorted(
        (goals[goal.what] for goals in run.earlier if goal.what in goals),
        key=lambda measured: float(re.match(r"[\d.]+", measured).group()),
    )
    if not found:
        return _NOT_MEASURED
    return found[0] if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


def _micro(run: Run) -> list[str]:
    columns = ("trigger ms", "ms over noop, by round", "CPU ms a batch", "against Spark's (zstd)", "files")
    rows = [[name, *(run.cell("micro", name, column) for column in columns)] for name in run.names("micro")]
    return lines(("sink", *columns), rows)


def _large(run: Run) -> list[str]:
    """Three tables beside each other: rows a second with their spread, and the median of the processor time."""
    places = (("large", 0, "5,000,000 rows"), ("partitioned", 0, "64 partitions"), ("partitioned", 1, "1,000"))
    head = ["sink", *(name for _, _, what in places for name in (f"{what}: 1000 rows/s", "CPU s"))]
    rows = []
    for sink in run.names("large"):
        cells = [sink]
        for part, place, _ in places:
            there = sink in run.names(part, place)
            cells += [run.cell(part, sink, "1000 rows/s", place) if there else _NOT_MEASURED]
            cells += [run.median(part, sink, "CPU s", place) if there else _NOT_MEASURED]
        rows.append(cells)
    return lines(head, rows)


def _ways(run: Run) -> list[str]:
    """The sinks of equal codecs beside each other, and of ours the way that is not the default."""
    rivals = (SPARK, peers.ICEBERG_EQUAL, peers.DELTA_EQUAL, OURS)

    def row(what: str, part: str, column: str, other: str = "", place: int = 0) -> list[str]:
        found = [
            run.median(part, way, column, place) if way in run.names(part, place) else _NOT_MEASURED
            for way in (*rivals, other)
        ]
        return [what, *found[:-1], f"{found[-1]} ({other.partition(', ')[2]})" if other else _NOT_MEASURED]

    made = [
        row("micro-batch of 1,000 rows: ms of a trigger", "micro", "trigger ms", TASKS),
        row("the same: processor ms a batch", "micro", "CPU ms a batch", TASKS),
        row("5,000,000 rows x 8 columns: 1,000 rows/s", "large", "1000 rows/s", WRITER),
        row("the same: processor seconds", "large", "CPU s", WRITER),
        row("2,000,000 rows in no order, 64 partitions: 1,000 rows/s", "partitioned", "1000 rows/s"),
        row("the same over 1,000 partitions", "partitioned", "1000 rows/s", place=1),
    ]
    return lines(("", "Spark's sink", "Iceberg", "Delta", "streamsink", "another of its ways"), made)


def _settings(run: Run) -> list[str]:
    """What each setting buys or costs, beside the default."""

    def commit(snapshots: str) -> str:
        asked = [run.median("growth", snapshots, column) for column in ("file operations", "fsyncs asked for")]
        written = float(run.median("growth", snapshots, "bytes written"))
        return f"{asked[0]} calls, {asked[1]} flushes, {written / 1000:.1f} KB"

    def over_noop(way: str) -> str:
        return f"{int(run.median('micro', way, 'trigger ms')) - int(run.median('micro', NOOP, 'trigger ms'))} ms"

    def store(name: str) -> str:
        return f"{run.median('stores', name, 'ms a batch')} ms"

    def over_base(row: str) -> str:
        return f"{run.cell('memory', row, 'over it MiB')} MiB"

    task = "a writer's task, {:,} rows over {:,} partitions"
    rows = [
        ["a micro-batch of 1,000 rows, over noop", over_noop(OURS)],
        ['the same, `publish="async"`', over_noop(ASYNC)],
        ["the same, `flush=False`", over_noop(UNFLUSHED)],
        ['5,000,000 rows: `large_batches="spark"` against the default, time', _ratio(run, WRITER, OURS)],
        ["a commit at snapshot 10", commit("10")],
        ["a commit at snapshot 10,000", commit("10,000")],
        [
            "a restart with 100 records pending, published one by one",
            f"{run.median('growth', 'until everything pending is published', 'ms of our time', 2)} ms",
        ],
        ["memory of a task over its worker's base", over_base("a writer's task, 5,000,000 rows")],
        ["the same over 64 partitions", over_base(task.format(2_000_000, 64))],
        ["the same over 1,000 partitions", over_base(task.format(2_000_000, 1_000))],
        ["a commit of 10 rows on a local disk, without Spark", store("local disk")],
        ["the same on HDFS", store("HDFS (1 NameNode, 2 DataNodes)")],
        ["the same on S3", store("S3 (SeaweedFS)")],
        ["the same on a local disk with a lock in PostgreSQL", store("local disk, lock in PostgreSQL")],
        ["planning a scan of 100,000 files, processor time", f"{run.median('planning', 'plan()', 'CPU ms')} ms"],
        *_grown(run),
    ]
    return lines(("", "measured"), rows)


def _grown(run: Run) -> list[list[str]]:
    """What grows with the work, where the run has measured it; processor time of the driver."""
    tables = {table.title: table for table in run.tables.get("grows", ())}
    rows = []
    for what, title, row, column in (
        ("one more of 10,000 data files of a batch", "A batch of many data files", "partitions known", "slope"),
        ("3,000 Kafka partitions in 100 topics, a batch", "A Kafka source of many partitions", "100 topics", "3,000"),
        ("planning one day of 1,000,000 files", "A table of many live files", "planning one day", "1,000,000"),
    ):
        if title in tables:
            place = list(tables[title].head).index(column)
            cells = next(cells for cells in tables[title].rows if row in cells[0])
            rows.append([f"{what}, processor time", f"{cells[place]} ms"])
    return rows


def _of_sinks(part: str, *names: str, notes: bool = False) -> Callable[[Run], list[str]]:
    """The tables of a part, side by side, and its goals, which begin so. notes: also the tables' ones."""

    def block(run: Run) -> list[str]:
        if part not in run.tables:
            return ["Not measured in the run on record."]
        found = [f"Measured on {run.apart.get(part, f'{run.day}: {run.about}')}."]
        for table in run.tables[part]:
            found += ["", f"**{table.title}**", "", *lines(table.head, table.rows)]
            if notes and table.note:
                found += ["", *textwrap.wrap(table.note, 120)]
        goals = [_goal(run, goal) for goal in run.goals if goal.what.startswith(names)]
        if not goals:
            return found
        return [*found, "", *lines(("goal", "target", "measured", "in earlier runs", ""), goals)]

    return block


def _ratio(run: Run, way: str, base: str) -> str:
    return f"{float(run.median('large', way, 'trigger s')) / float(run.median('large', base, 'trigger s')):.2f}"


BLOCKS: Mapping[str, Mapping[str, Callable[[Run], list[str]]]] = {
    "README.md": {"speed": _speed},
    "docs/BENCHMARKS.md": {"run": _about, "goals": _goals, "micro": _micro, "large": _large},
    "docs/COMPACTION.md": {
        "long": _of_sinks("compaction-long", "compaction over", notes=True),
        "query": _of_sinks("compaction", "compaction beside a query", notes=True),
        "live": _of_sinks("compaction-live", "compaction by the thread", notes=True),
        "more": _of_sinks("compaction-more", "-", notes=True),
        "rivals": _of_sinks("compaction-rivals", "-", notes=True),
    },
    "docs/KAFKA_SINK.md": {"speed": _of_sinks("kafka", "Kafka")},
    "docs/DATABASES.md": {"speed": _of_sinks("databases", "PostgreSQL", "MariaDB")},
    "docs/ICEBERG.md": {"speed": _of_sinks("iceberg", "IcebergSink")},
    "docs/DELTA.md": {"speed": _of_sinks("delta", "DeltaSink")},
    "docs/FAN_OUT.md": {"speed": _of_sinks("fan-out", "fan-out")},
    "docs/TUNING.md": {"ways": _ways, "settings": _settings},
}


if __name__ == "__main__":
    write(read())
