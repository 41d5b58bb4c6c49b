"""The house rules of CONVENTIONS.md, checked: layers, sizes, bans, step names, and what may never be committed."""

import ast
import functools
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from streamsink import faults
from tests import schedule

ROOT = Path(__file__).resolve().parent.parent
CODE = [p for folder in ("streamsink", "jobs", "tools", "benchmarks") for p in sorted((ROOT / folder).rglob("*.py"))]
LIBRARY = [p for p in CODE if p.is_relative_to(ROOT / "streamsink")]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
_OF_CODE, _OF_LIBRARY = frozenset(CODE), frozenset(LIBRARY)

MOST_FILE_LINES, MOST_FUNCTION_LINES, MOST_CLASS_LINES, MOST_POSITIONAL, MOST_PUBLIC_NAMES = 400, 60, 250, 5, 15

# The rooms from the ground up: a module imports from its own folder and from folders (or modules beside them) that
# stand above it in this list. Those in one line do not see each other.
ROOMS = [
    ["errors", "shell"],
    ["clock", "faults", "options", "events"],
    ["protocol", "format", "storage"],
    ["protocol.admission", "journal", "locks"],
    ["catalogs"],
    ["protocol.run", "table", "sinks"],
    ["table.read"],
    ["table.history"],
    ["table.iceberg_metadata"],
    ["table.write", "table.commit"],
    ["table.routed", "table.care", "compaction"],
    ["table.branching"],
    ["sinks.paimon.past", "sinks.transactions", "sinks.directory", "sinks.lake_tables", "sinks.databases.bulk"],
    ["sinks.paimon.care"],
    ["sinks.paimon", "sinks.databases", "sinks.kafka", "sinks.delta", "sinks.iceberg"],
    ["commands", "sinks.fan_out"],
    ["operations"],
    ["operations.letters", "operations.report"],
    ["spark.gateway"],
    ["spark"],
    ["spark.rows"],
    ["spark.query"],
    ["sink", "databases", "delta", "kafka", "iceberg", "maintenance", "metrics", "testing", "lineage"],
    ["traces"],
    ["cli"],
    ["__init__", "__main__"],
]
# Modules that may stay under this many lines, each with the reason why it is not part of another module.
FEWEST_LINES = 40
SMALL = {
    "streamsink/__main__.py": "the name under which Python runs the package",
    "streamsink/clock.py": "the only source of time and chance, which every room imports and tests replace",
    "streamsink/databases.py": "what users import, above the rooms that it is made of",
    "streamsink/delta.py": "what users import, above the rooms that it is made of",
    "streamsink/commands/own_sinks.py": "the refusals that give_up, retire and starting_offsets share",
    "streamsink/events/no_callback.py": "a lock that protocol/ and spark/ share, and no listener",
    "streamsink/iceberg.py": "the name under which users import the sink, as streamsink/kafka.py is",
    "streamsink/kafka.py": "the name under which users import the sink, as streamsink/sink.py is for authors",
    "streamsink/lineage/__init__.py": "the name under which users import the listener",
    "streamsink/maintenance/__init__.py": "the names under which users call what its modules have",
    "streamsink/maintenance/repairing.py": "a procedure that opens a catalog, which no other of them does",
    "streamsink/protocol/run_inputs.py": "pure rules that the admission of runs and Spark's side share",
    "streamsink/table/commit/changes.py": "what a commit changes, shared by its parts, by commands and by sinks",
    "streamsink/shell.py": "how messages name commands, which every room imports",
    "streamsink/traces/__init__.py": "the names under which users import the listener and the function",
    "streamsink/table/layout.py": "the only place that knows Paimon's paths, which every room above the table uses",
}
# A folder's modules besides __init__; format/ has one module for each part of Paimon's format.
MOST_MODULES, WIDE = 13, {"streamsink/format"}
# The outermost edges, where any error is turned into a report or handed on.
BROAD_EXCEPTS = {
    "streamsink/compaction/beside.py": 1,
    "streamsink/lineage/listener.py": 1,
    "streamsink/metrics/registry.py": 1,
    "streamsink/spark/progress.py": 1,
    "streamsink/spark/query/batch_call.py": 1,
    "streamsink/table/iceberg_metadata/following.py": 1,
    "streamsink/sinks/transactions/function.py": 1,
    "streamsink/sinks/iceberg/catalog.py": 1,
    "streamsink/sinks/iceberg/exchange.py": 1,
}


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@functools.cache
def _nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a module, itself first. Some tests ask for them, so they are parsed once."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))))


@pytest.fixture(scope="module", autouse=True)
def nodes_are_forgotten():
    """Some hundred thousand objects, which later tests of the same process would have looked through by the garbage
    collection.
    """
    yield
    _nodes.cache_clear()


def _imports(path: Path, running: bool = False):
    """The modules that a module imports. running: without those that only a type checker sees."""
    nodes = _nodes(path)
    seen = (
        [node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
        if running
        else []
    )
    never = {id(inner) for node in seen for inner in ast.walk(node)}
    for node in (node for node in nodes if id(node) not in never):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _room(module: str) -> str:
    """The folder of a module below ``streamsink``, or the module itself where it lies in none."""
    parts = module.split(".")[1:]
    return ".".join(parts[:-1]) or parts[0]


def test_an_import_goes_only_downwards():
    """A module imports from rooms below its own:
    so protocol/ never sees the format or the table, and only sinks/ knows both."""
    floors = {room: floor for floor, rooms in enumerate(ROOMS) for room in rooms}
    modules = {_module(path) for path in LIBRARY if path.name != "__init__.py"}
    rooms = {module: _room(module) for module in modules}
    assert set(rooms.values()) == floors.keys() - {"__init__"}, "a room is missing in the list, or empty"
    wrong = [
        f"{_name(path)} imports {module}"
        for path in LIBRARY
        if path.name != "__init__.py"
        for module in _imports(path)
        if module in modules
        and rooms[module] != rooms[_module(path)]
        and floors[rooms[module]] >= floors[rooms[_module(path)]]
    ]
    assert wrong == []


def test_only_the_right_folders_import_the_big_libraries():
    """pyspark and py4j are imported in spark/ only, fastavro in format/ only."""
    allowed = {"pyspark": {"spark"}, "py4j": {"spark"}, "fastavro": {"format"}}
    wrong = [
        f"{_name(path)} imports {module}"
        for path in LIBRARY
        for module in _imports(path, running=True)
        if module.split(".")[0] in allowed
        and path.relative_to(ROOT / "streamsink").parts[0] not in allowed[module.split(".")[0]]
    ]
    assert wrong == []


def test_the_gateway_to_the_jvm_stands_in_files_of_that_name():
    """Nobody else touches private attributes of Spark's objects, so that Spark Connect can follow."""
    private = re.compile(r"\._(jvm|jsparkSession|jsc|jdf|jsq|sc)\b")
    users = {_name(p) for p in LIBRARY if private.search(p.read_text())}
    assert "streamsink/spark/gateway/running.py" in users
    assert {name for name in users if not name.startswith("streamsink/spark/gateway")} == set()


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that a module of these nodes binds, at whatever depth."""
    names = {"__file__", "__name__", "__doc__"}
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return names


def test_names_that_are_taken_from_our_modules_are_there():
    """A function that moved is missed here within seconds, and not after an hour by the slowest test that calls it."""
    nodes_of = {_module(path): _nodes(path) for path in CODE + TESTS}
    has, wrong = {module: _names(nodes) for module, nodes in nodes_of.items()}, []
    for module, nodes in nodes_of.items():
        known = {}
        for node in nodes:
            for alias in node.names if isinstance(node, ast.ImportFrom) and node.module else ():
                whole = f"{node.module}.{alias.name}"
                if whole in has:
                    known[alias.asname or alias.name] = whole
                elif node.module in has and alias.name not in has[node.module]:
                    wrong.append(f"{module} imports {whole}")
        other = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        other |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        known = {name: whole for name, whole in known.items() if name not in other}
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
                there = known[node.value.id]
                if node.attr not in has[there] and f"{there}.{node.attr}" not in has:
                    wrong.append(f"{module}, line {node.lineno}: {there}.{node.attr}")
    assert wrong == []


def test_modules_do_not_import_each_other_in_a_circle():
    """So a newcomer can read them one after another."""
    graph = {}
    for path in LIBRARY:
        graph[_module(path)] = {name for name in _imports(path) if name.startswith("streamsink.")}
    graph = {m: {t for t in targets if t in graph and t != m} for m, targets in graph.items() if m != "streamsink"}
    done: set[str] = set()

    def visit(module, trail):
        assert module not in trail, " -> ".join([*trail, module])
        if module not in done:
            for target in sorted(graph[module] - {"streamsink"}):
                visit(target, [*trail, module])
            done.add(module)

    for module in sorted(graph):
        visit(module, [])


def _positional(node: ast.FunctionDef) -> int:
    names = [a.arg for a in node.args.posonlyargs + node.args.args]
    return len(names) - (1 if names[:1] in (["self"], ["cls"]) else 0)


def _too_large(path: Path):
    lines = path.read_text(encoding="utf-8").count("\n")
    if lines > MOST_FILE_LINES:
        yield f"{lines} lines"
    for node in _nodes(path):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            length = node.end_lineno - node.lineno + 1
            if length > (MOST_CLASS_LINES if isinstance(node, ast.ClassDef) else MOST_FUNCTION_LINES):
                yield f"{node.name} has {length} lines"
            if path in _OF_CODE and not isinstance(node, ast.ClassDef) and _positional(node) > MOST_POSITIONAL:
                yield f"{node.name} has {_positional(node)} positional parameters"


def test_sizes():
    """Files, classes, functions and parameter lists stay small."""
    assert [f"{_name(path)}: {what}" for path in CODE + TESTS for what in _too_large(path)] == []


def test_a_small_module_has_a_reason():
    """A reader opens a file for each module: what is too small belongs to its readers, unless the list says why not."""
    lines = {_name(path): path.read_text(encoding="utf-8").count("\n") for path in LIBRARY}
    only_docs = {_name(path) for path in LIBRARY if path.name == "__init__.py" and len(_nodes(path)[0].body) <= 1}
    small = {name for name, count in lines.items() if count < FEWEST_LINES} - only_docs
    assert sorted(small - SMALL.keys()) == []
    assert sorted(SMALL.keys() - lines.keys()) == [], "these are gone: take them off the list"


def test_a_folder_has_few_modules():
    """Its listing then is a table of contents."""
    count = Counter(_name(path.parent) for path in LIBRARY if path.name != "__init__.py")
    assert {name: number for name, number in count.items() if number > MOST_MODULES and name not in WIDE} == {}


def _banned(path: Path):
    broad = 0
    for node in _nodes(path):
        if isinstance(node, ast.Assert):
            yield f"line {node.lineno}: assert"
        if isinstance(node, ast.Raise) and node.exc is not None and "RuntimeError" in ast.dump(node.exc):
            yield f"line {node.lineno}: RuntimeError"
        if isinstance(node, ast.ExceptHandler):
            if node.type is None:
                yield f"line {node.lineno}: bare except"
            broad += isinstance(node.type, ast.Name) and node.type.id == "Exception"
        if isinstance(node, ast.While) and path in _OF_LIBRARY and isinstance(node.test, ast.Constant):
            if node.test.value:
                yield f"line {node.lineno}: a loop without a bound"
    if path in LIBRARY:
        if broad > BROAD_EXCEPTS.get(_name(path), 0):
            yield "except Exception"
        yield from {"pickle", "cloudpickle", "marshal"} & set(_imports(path))


def test_bans():
    """There is no assert, no bare RuntimeError, no pickle and no endless loop,
    and a broad except only at the outermost edges."""
    assert [f"{_name(path)}: {what}" for path in CODE for what in _banned(path)] == []


def test_ruff_finds_nothing():
    """pyproject.toml has the rules."""
    said = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", "--quiet", "."], capture_output=True, text=True, cwd=ROOT
    )
    assert said.stdout == "" and said.returncode == 0, said.stdout + said.stderr


def test_the_formatter_would_change_nothing():
    """pyproject.toml has its settings, and the files that it leaves alone."""
    said = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--check", "--no-cache", "."], capture_output=True, text=True, cwd=ROOT
    )
    assert said.returncode == 0, said.stdout + said.stderr


def test_time_and_chance_come_from_one_place():
    """Only clock.py asks for the time, sleeps, or draws a random number."""
    banned = re.compile(r"\b(time\.(time|sleep|monotonic|perf_counter)|datetime\.now|random\.|uuid\.uuid|secrets\.)")
    users = {_name(p) for p in LIBRARY if banned.search(p.read_text())}
    assert users <= {"streamsink/clock.py"}


def test_log_lines_go_to_one_logger():
    """``streamsink.events.log`` has a filter, which a logger below it would pass by. Kafka's client has its own."""
    users = {_name(p) for p in LIBRARY if "getLogger" in p.read_text(encoding="utf-8")}
    assert users == {"streamsink/events/event.py", "streamsink/sinks/kafka/client.py"}


def test_importing_the_package_is_cheap():
    """It imports no pyspark, pyarrow or fastavro before a function needs it, and has at most fifteen public names."""
    code = (
        "import sys, streamsink; heavy = {'pyspark', 'pyarrow', 'fastavro'}; "
        "print(sorted({m.split('.')[0] for m in sys.modules} & heavy), len(streamsink.__all__))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    heavy, count = said.rsplit(" ", 1)
    assert heavy == "[]" and int(count) <= MOST_PUBLIC_NAMES


def test_every_step_has_one_name_everywhere():
    """The same string is in faults.py, at one fault point or more, and in docs/PROTOCOL.md;
    there are no other steps."""
    used = set()
    for path in LIBRARY:
        used |= set(re.findall(r'fault_point\("([^"]+)"\)', path.read_text()))
    assert used == set(faults.STEPS)
    protocol = (ROOT / "docs" / "PROTOCOL.md").read_text()
    assert [step for step in faults.STEPS if f"`{step}`" not in protocol] == []


def _committed() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT)
    if listed.returncode:
        return CODE + TESTS
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_nothing_of_one_machine_is_committed():
    """There is no path of a developer's machine, no host of a registry, and no credential."""
    banned = re.compile(
        "|".join(
            (
                "/wo" + "rk/",
                "/ro" + r"ot/\.",
                "pypi" + r"\.org",
                "repo1" + r"\.maven",
                "repo" + r"\.maven",
                "files" + r"\.pythonhosted",
            )
        )
    )
    wrong = [
        _name(p)
        for p in _committed()
        if p.suffix not in (".png", ".jar") and banned.search(p.read_text(errors="ignore"))
    ]
    assert wrong == []


def test_lines_of_the_docs_end_at_120_columns():
    """As in code. What benchmarks/report.py has put between its markers is as wide as its tables."""
    wrong = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")]:
        text = re.sub(
            r"<!-- begin \w+ -->.*?<!-- end \w+ -->",
            lambda found: "\n" * found[0].count("\n"),
            page.read_text(),
            flags=re.DOTALL,
        )
        wrong += [f"{_name(page)}:{number}" for number, line in enumerate(text.split("\n"), 1) if len(line) > 120]
    assert wrong == []


def test_links_of_the_docs_lead_somewhere():
    """Relative links in Markdown files point at files that are there."""
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{_name(page)} links to {target}"


def test_the_schedule_of_the_suite_names_files_that_are_there():
    """Tests of a renamed file would begin late, and nobody would notice."""
    assert [file for file in schedule.FILES if not (ROOT / file).exists()] == []
