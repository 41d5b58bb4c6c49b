"""No block of a page is without a way in which it is run or checked, and what is only checked would run."""

import ast
import contextlib
import importlib.util
import json
import os
import re
from pathlib import Path

import pytest
import yaml

from streamsink.metrics import ALERTS
from tests import conftest
from tests.docs import checks, given, kubernetes_schema
from tests.docs.blocks import ROOT, Block, blocks_of, pages, text_of
from tests.docs.shell import Shell, wrong
from tests.docs.ways import PAGES, file_of, is_run, servers_of, ways_of

ALL = [(block, way) for page in pages() for block, way in zip(blocks_of(page), ways_of(page, len(blocks_of(page))))]
WAYS = ("run", "in session", "data", "drawing")
LANGUAGES = {"", "python", "bash", "yaml", "json", "text"}


def _of(*ways: str) -> list:
    return [pytest.param(block, id=block.where) for block, way in ALL if way in ways]


def _told() -> list:
    return [pytest.param(block, id=block.where) for block, way in ALL if is_run(way)]


def test_every_block_has_a_way():
    """And every page that has ways is there, with as many blocks as it has ways."""
    assert {way for _, way in ALL if file_of(way) is None and not servers_of(way)} <= set(WAYS)
    assert PAGES.keys() - set(pages()) == set()
    assert {block.language for block, _ in ALL} <= LANGUAGES


def test_what_stands_elsewhere_for_words_of_a_page_is_said_there():
    """As ``Story`` asks it of ``replaced``. A page that says something else now would be run without the change."""
    blocks = {page: "".join(block.text for block in blocks_of(page)) for page in PAGES}
    assert [said for page, how in PAGES.items() for said in how.elsewhere if said not in blocks[page]] == []


def test_what_ways_name_is_there():
    """Servers, and functions that make a page's world or look at it: also of pages that the gate does not run."""
    servers = {name for _, way in ALL for name in servers_of(way)}.union(*(how.needs for how in PAGES.values()))
    assert [name for name in sorted(servers) if not hasattr(conftest, name)] == []
    made = {name for how in PAGES.values() for name in (how.given, *how.steps.values())}
    assert [name for name in sorted(made) if not hasattr(given, name)] == []
    looked_at = {name for how in PAGES.values() for name in how.checks.values()}
    assert [name for name in sorted(looked_at) if not hasattr(checks, name)] == []


def test_a_page_without_ways_is_named():
    with pytest.raises(ValueError, match="docs/NEW.md: the page has 2 blocks, and tests/docs/ways.py has 0 ways"):
        ways_of("docs/NEW.md", 2)


@pytest.mark.parametrize("file", sorted({file_of(way) for _, way in ALL} - {None}))
def test_a_test_that_runs_blocks_is_there_and_knows_its_pages(file):
    """By the name of the page, or of what has that name."""
    helpers = "".join(path.read_text() for path in (ROOT / "tests" / "sinks" / "shown.py", ROOT / "tests/cli_page.py"))
    text = (ROOT / file).read_text()
    text += helpers if "shown" in text or "cli_page" in text else ""
    named = {Path(block.page).name for block, way in ALL if file_of(way) == file}
    assert [name for name in sorted(named) if name not in text] == []


@pytest.mark.parametrize("block", _told())
def test_python_is_compiled_and_takes_names_that_are_there(block: Block):
    """So it is seen sooner, and in the gate, which one is wrong."""
    if block.language != "python":
        return
    tree = ast.parse(block.text, block.where)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "streamsink":
            module = importlib.import_module(node.module)
            gone = [
                alias.name for alias in node.names if not hasattr(module, alias.name) and not _is_module(node, alias)
            ]
            assert gone == [], block.where
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "streamsink":
            assert hasattr(importlib.import_module("streamsink"), node.attr), f"{block.where}: {node.attr}"


def _is_module(node: ast.ImportFrom, alias: ast.alias) -> bool:
    return importlib.util.find_spec(f"{node.module}.{alias.name}") is not None


def _commands() -> list:
    """Whoever runs them. docs/CLI.md has what the program says of itself; its own test looks at that."""
    found = [(block, way) for block, way in ALL if block.language in ("bash", "") and block.page != "docs/CLI.md"]
    return [pytest.param(block, id=block.where) for block, way in found if way != "drawing"]


@pytest.mark.parametrize("block", _commands())
def test_commands_are_read_as_their_programs_read_them(block: Block):
    """A command that was renamed, an option that is gone, a target that make does not have."""
    assert wrong(block, _saved_on(block.page)) == []


def _saved_on(page: str) -> frozenset[str]:
    return frozenset(each.file for each in blocks_of(page) if each.file)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("streamsink verfy lake", "there is no command verfy"),
        ("streamsink verify lake --content-of", "No such option"),
        ("streamsink verify", "Missing argument"),
        ("make runn", "the Makefile has no runn"),
        ("make run BROKER=x", "the Makefile has no BROKER"),
        ("pip install 'streamsink[s4]'", "there is no extra s4"),
        ("pip download x", "pip installs and uninstalls"),
        ("python gone.py", "neither the page nor the checkout has gone.py"),
        ("python -m tests.gone", "there is no module"),
        ("spark-submit jobs/gone.py", "there is no jobs/gone.py"),
        ("sparksubmit x", "does not know this program"),
        ("if true", "syntax error"),
    ],
)
def test_a_wrong_command_is_noticed(line, why):
    assert why in "\n".join(wrong(Block("docs/X.md", 1, "bash", line + "\n"), frozenset()))


@pytest.mark.parametrize("block", _of("drawing"))
def test_a_drawing_has_no_command(block: Block):
    """What could be run has a way in which it is."""
    assert block.language in ("", "text")
    lines = [
        line for line in block.text.splitlines() if re.match(r"(make|streamsink|pip|python3?|spark-submit) ", line)
    ]
    assert lines == []


def _data() -> list:
    """With the manifests that a test of the soak applies."""
    found = [block for block, way in ALL if way == "data" or (block.language == "yaml" and file_of(way))]
    return [pytest.param(block, id=block.where) for block in found]


@pytest.mark.parametrize("block", _data())
def test_data_are_what_their_program_takes(block: Block):
    """Kubernetes' manifests by the fields that it knows; a Deployment's labels match its selector. Prometheus' settings
    name the rules that are shipped.
    """
    if block.language == "json":
        json.loads(block.text)
        return
    for document in yaml.safe_load_all(block.text):
        if "scrape_configs" in document:
            assert document["rule_files"] == [os.path.basename(ALERTS)]
            assert all({"job_name", "static_configs"} <= job.keys() for job in document["scrape_configs"])
            continue
        assert kubernetes_schema.wrong(document) == [], block.where
        if document["kind"] == "Deployment":
            spec = document["spec"]
            pod = spec["template"]
            assert spec["strategy"]["type"] == "Recreate" and spec["replicas"] == 1
            assert pod["metadata"]["labels"] == spec["selector"]["matchLabels"]


@pytest.mark.parametrize(
    ("said", "instead", "why"),
    [
        ("replicas: 1", "replica: 1", "Deployment.spec.replica is no field of a DeploymentSpec"),
        ("replicas: 1", "replicas: '1'", "Deployment.spec.replicas is no integer"),
        ("fieldPath: status.podIP", "path: status.podIP", "fieldRef has no fieldPath"),
        ("kind: Deployment", "kind: Deploymend", "does not know apps/v1 Deploymend"),
        ("command: [/opt/spark/bin/spark-submit]", "command: /opt/spark/bin/spark-submit", "command is no list"),
    ],
)
def test_a_wrong_manifest_is_noticed(said, instead, why):
    text = blocks_of("docs/how-to/KUBERNETES.md")[0].text
    assert said in text
    found = [each for one in yaml.safe_load_all(text.replace(said, instead)) for each in kubernetes_schema.wrong(one)]
    assert why in "\n".join(found)


@pytest.mark.parametrize(
    ("script", "ends", "is_right"),
    [("false", {}, False), ("false  # why", {"false": 1}, True), ("true", {"true": 1}, False), ("true", {}, True)],
)
def test_a_command_ends_as_it_is_said(tmp_path, script, ends, is_right):
    """Also one that finds nothing although the page has something to be found."""
    with contextlib.nullcontext() if is_right else pytest.raises(AssertionError):
        Shell(tmp_path).run(script + "\necho behind it\n", ends)


def test_commands_in_the_text_of_pages_are_there():
    """Those of ours in back quotes, such as ``streamsink verify``, with their options; arguments may be left out."""
    gone = []
    for page in pages():
        text = re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)
        for each in sorted({" ".join(said.split()) for said in re.findall(r"`(streamsink [a-z][^`]*)`", text)}):
            why = "\n".join(wrong(Block(page, 0, "bash", f"{each}\n"), frozenset()))
            gone += [f"{page}: {why}"] if why and "issing" not in why and "…" not in each else []
    assert gone == []
