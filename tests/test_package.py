"""What is built is what is there:
the wheel and the sdist, and the README's lines run on the wheel without the checkout."""

import email
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import textwrap
import zipfile
from pathlib import Path

import pytest

import streamsink
from tests.e2e.kafka_data import send
from tools import dist
from tools.venvs import pip_for

ROOT = Path(__file__).resolve().parent.parent
_ROWS = 20
URL = "https://example.org/streamsink"


def _library() -> set[str]:
    found = (
        path.relative_to(ROOT)
        for path in (ROOT / "streamsink").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    return {path.as_posix() for path in found}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The folder with both, as ``make dist`` builds them and ``twine check --strict`` lets them pass."""
    out = tmp_path_factory.mktemp("dist")
    assert len(dist.build(out, URL)) == 2
    return out


def _only(built: Path, ending: str) -> Path:
    [found] = built.glob(f"*{ending}")
    return found


def test_the_wheel_has_the_library_and_nothing_else(built):
    """It has all modules, the marker for type checkers and the licence; no test, no job, no tool."""
    with zipfile.ZipFile(_only(built, ".whl")) as wheel:
        names = set(wheel.namelist())
    assert {name for name in names if ".dist-info/" not in name} == _library()
    assert any(name.endswith("/LICENSE") for name in names) and "streamsink/py.typed" in names


def test_an_index_is_told_what_it_wants(built):
    """And the README has no link into a folder that an index does not show."""
    with zipfile.ZipFile(_only(built, ".whl")) as wheel:
        [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(wheel.read(name))
    assert (metadata["License-Expression"], metadata["Description-Content-Type"]) == ("Apache-2.0", "text/markdown")
    pages = dict(each.split(", ") for each in metadata.get_all("Project-URL"))
    assert pages.keys() == {"Homepage", "Documentation", "Changelog", "Issues"} and pages["Homepage"] == URL
    kinds = {each.partition(" ::")[0] for each in metadata.get_all("Classifier")}
    assert {"Development Status", "Intended Audience", "Operating System", "Topic", "Typing"} <= kinds
    links = re.findall(r"\]\(([^)\s]+)\)", metadata.get_payload())
    assert [link for link in links if not link.startswith(("http", "#"))] == [] and len(links) > 20
    assert f"{URL}/raw/v{dist.version()}/docs/benchmarks.svg" in links
    assert f"{URL}/blob/v{dist.version()}/docs/GUIDE.md#on-a-cluster" in links


@pytest.mark.soak
def test_the_bill_of_materials_has_what_the_library_leads_to_and_no_tool_of_its_tests():
    said = dist.bill_of_materials()
    scopes = {each["name"].lower(): each["scope"] for each in said["components"]}
    assert {scopes[name] for name in ("pyspark", "py4j", "pyarrow", "fastavro", "click")} == {"required"}
    assert {scopes[name] for name in ("boto3", "botocore", "pymetastore", "deltalake")} == {"optional"}
    assert not {"pytest", "mypy", "ruff", "twine", "build"} & scopes.keys()
    assert said["bomFormat"] == "CycloneDX" and said["metadata"]["component"]["version"] == dist.version()


def test_the_changelog_has_the_usual_form():
    """Versions from the newest to the oldest, each with its date, and groups that people look for."""
    heads = re.findall(r"^(#{2,}) (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    versions = [text for level, text in heads if level == "##"]
    assert versions[0] == "[Unreleased]" and all(
        re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", each) for each in versions[1:]
    )
    groups = {text for level, text in heads if level == "###"}
    assert groups <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_version_is_the_one_that_the_library_says():
    """Tasks compare the driver's with their own."""
    assert f'\nversion = "{streamsink.__version__}"\n' in (ROOT / "pyproject.toml").read_text()


def test_the_sdist_can_be_built_again(built):
    with tarfile.open(_only(built, ".tar.gz")) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md"} | _library() <= names
    assert not {name for name in names if name.startswith(("tests", "jobs", "benchmarks", "tools"))}


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    """The interpreter of an environment that has the wheel, and beside it only the libraries that it needs."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    )
    subprocess.run([*pip_for(folder), "install", "-q", "--no-deps", "--no-index", _only(built, ".whl")], check=True)
    # A path in a .pth file is searched, and .pth files there are not read, so that nothing of the checkout is found,
    # which is linked in that way.
    Path(site.stdout.strip(), "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def _without_the_checkout(installed: Path) -> dict[str, str]:
    """The environment of the tests, whose PYTHONPATH may name the checkout, without it."""
    return {**os.environ, "PYTHONPATH": "", "PYSPARK_PYTHON": str(installed)}


def test_it_is_imported_from_the_wheel(installed, tmp_path):
    said = subprocess.run(
        [installed, "-c", "import streamsink; print(streamsink.__file__)"],
        cwd=tmp_path,
        env=_without_the_checkout(installed),
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(said.stdout.strip()).is_relative_to(installed.parent.parent)


def test_the_command_line_comes_with_it(installed, tmp_path):
    """As a program beside the interpreter."""
    environment = _without_the_checkout(installed)
    program = installed.parent / "streamsink"
    said = subprocess.run([program, "--version"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert said.stdout == f"streamsink, version {streamsink.__version__}\n", said.stderr


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow
def test_the_lines_of_the_readme_run_on_it(installed, tmp_path, kafka_broker, spark_settings):
    """They run as they stand there, except for the broker's address, and to the end of what is there."""
    lines = re.search(r"## A query of your own\n.*?```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    for said, here in (
        ("localhost:9092", kafka_broker.bootstrap),
        ('processingTime="1 second"', "availableNow=True"),
        (".load()", '.option("startingOffsets", "earliest").load()'),
    ):
        assert said in lines
        lines = lines.replace(said, here)
    send(kafka_broker.bootstrap, "orders", range(_ROWS), 1)
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""\
        import json, os
        from pyspark.sql import SparkSession
        builder = SparkSession.builder
        for name, value in json.load(open(os.environ["STREAMSINK_TEST_SPARK_CONF"])).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    """)
        + lines
        + '\nprint("ROWS", streamsink.read(spark, "lake/shop.db/orders").count())\nos._exit(0)\n'
    )
    env = _without_the_checkout(installed)
    done = subprocess.run([installed, program], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert f"ROWS {_ROWS}" in done.stdout, done.stderr[-3000:]
