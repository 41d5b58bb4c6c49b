"""docs/TUTORIAL.md is run as a reader runs it."""

import shutil

import pytest

import streamsink
from tests.docs.blocks import ROOT, blocks_of
from tests.docs.shell import Shell
from tests.docs.story import Story
from tests.docs.ways import ways_of

PAGE = "docs/TUTORIAL.md"
FILES = 7

pytestmark = pytest.mark.spark


def _checked(folder) -> None:
    ids = streamsink.read_arrow(folder / "lake/shop.db/orders", columns=["id"])["id"].to_pylist()
    assert sorted(ids) == list(range(100 * FILES))


@pytest.mark.soak
def test_each_command_and_program_is_run_as_it_is_written(tmp_path, spark_settings):
    """In a copy of the checkout, with an environment that is made by the first command; spark_settings finds Java."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "streamsink", tmp_path / "streamsink", ignore=shutil.ignore_patterns("__pycache__"))
    shell = Shell(tmp_path, bare=True)
    Story(PAGE, shell, {}, {}, {}).tell(["run"] * len(blocks_of(PAGE)))
    assert shell.inside == tmp_path / "build" / "tutorial"
    _checked(shell.inside)


@pytest.mark.in_turn("stories of pages", 1)
def test_its_programs_and_accidents_in_the_session_of_the_tests(spark, tmp_path, monkeypatch):
    """Without the driver's death, which would be that of the tests: the checkpoint is lost, and each order is there
    once. The commands of the command line have tests of their own.
    """
    programs = {block.file: block.text for block in blocks_of(PAGE) if block.file}
    assert programs.keys() == {"orders.py", "stream.py", "count.py"}
    here = {'.json("in")': f'.json("{tmp_path}/in")', '"ckpt/orders"': f'"{tmp_path}/ckpt/orders"'}
    for said, replaced in here.items():
        assert said in programs["stream.py"]
        programs["stream.py"] = programs["stream.py"].replace(said, replaced)
    monkeypatch.chdir(tmp_path)

    def run(name: str) -> None:
        exec(compile(programs[name], f"{PAGE}, {name}", "exec"), {"spark": spark})  # noqa: S102  our own page

    for _ in range(FILES - 1):
        run("orders.py")
    run("stream.py")
    shutil.rmtree(tmp_path / "ckpt")
    run("orders.py")
    run("stream.py")
    run("count.py")
    _checked(tmp_path)


def test_every_block_has_its_way():
    assert set(ways_of(PAGE, len(blocks_of(PAGE)))) == {"by tests/docs/test_tutorial.py"}
