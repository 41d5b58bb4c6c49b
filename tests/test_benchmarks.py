"""The benchmarks' own arithmetic and drawing; what they measure is asserted nowhere."""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import machine, picture, report
from benchmarks.accidents.ground import RIGHT, Ground


def test_a_goal_says_whether_it_is_met():
    """The bound itself is met; the table shows text only."""
    goals = [report.at_most("less", 0.3, 0.3), report.at_most("more", 0.31, 0.3), report.at_least("fast", 0.99, 1.0)]
    assert [goal.met for goal in goals] == [True, False, False]
    assert report.text([report.goals(goals)]).count("**not met**") == 2


def test_the_picture_is_an_svg_that_no_name_breaks(tmp_path):
    """A bar far beyond the others, one below zero, a name with markup, and a chart of nothing."""
    bars = [
        report.Bar("a < b", "<Delta> & co", [9000.0]),
        report.Bar("a < b", "ours", [1.0, 2.0, 3.0]),
        report.Bar("a < b", "less than noop", [-5.0]),
        report.Bar("zeros", "noop", [0.0]),
    ]
    picture.draw([*bars, report.Table("not a bar", ("x",), [["1"]])], tmp_path / "p.svg")
    svg = ElementTree.parse(tmp_path / "p.svg").getroot()
    rectangles = [element for element in svg.iter() if element.tag.endswith("rect")][1:]
    assert len(rectangles) == len(bars)
    assert all(float(r.get("x")) + float(r.get("width")) <= float(svg.get("width")) for r in rectangles)


def test_processor_time_of_children_is_counted_once():
    """A child that began before the measurement and ends within it, and one that lives on: only what they took
    meanwhile."""
    burn = (
        "import time\nwhile time.process_time() < {}: pass\nprint(1, flush=True)\nimport sys; "
        "sys.stdin.readline()\nwhile time.process_time() < {}: pass\n"
    )
    early, lasting = (
        subprocess.Popen(
            [sys.executable, "-c", burn.format(*times)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for times in ((0.5, 0.7), (0.5, 0.5))
    )
    for child in (early, lasting):
        child.stdout.readline()
    with machine.measured() as cost:
        early.communicate("\n", timeout=60)
    lasting.communicate("\n", timeout=60)
    assert 0.1 < cost.cpu_s < 0.45


@pytest.mark.parametrize(
    "found, errors, stopped, said",
    [
        ([1, 2, 3], [], False, RIGHT),
        ([1, 3, 3, 4], [], False, "**1 lost** and **2 doubled** of 3"),
        ([1], ["it failed"], False, "an ERROR, then **2 lost** of 3"),
        ([1], ["it failed"], True, "ERROR"),
        ([1, 1], ["it failed"], True, "ERROR, 1 doubled"),
    ],
)
def test_an_accident_is_told_in_rows(found, errors, stopped, said):
    """Lost and doubled do not cancel each other out; what an error kept back is not lost, what is there twice is
    doubled all the same."""
    ground = Ground(spark=None, sink=None, root=Path(), errors=errors, stopped=stopped)
    assert ground.outcome([1, 2, 3], Counter((i,) for i in found)) == said


@pytest.mark.soak
def test_every_benchmark_runs(tmp_path):
    """With small sizes and no peers: what they measure means nothing, but a change of the library that breaks one of
    them is noticed."""
    command = [sys.executable, "benchmarks/run.py", "--quick", "--all", "--no-peers", "--out", str(tmp_path)]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "A replayed batch" in (tmp_path / "report.md").read_text()
