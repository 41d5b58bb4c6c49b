"""``demo`` and ``bench``: what they count is what is there, and what they make is gone afterwards."""

import os
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from streamsink.cli.demo import STEPS
from streamsink.cli.main import cli
from streamsink.storage.file_io import local_file_io
from streamsink.testing.counting import count_calls
from tests import cli_page
from tests.cli.conftest import run, said

# They change something, begin something, write a file, or print what is read once.
_NOT_WATCHED = {"offsets", "accept", "demo", "bench", "create", "report"}


@pytest.mark.soak
@pytest.mark.parametrize("step", STEPS)
def test_the_demo_counts_what_a_kill_does(step):
    """Each row is there once, and the plain append has the repeated batch twice; but where Spark knows it is done."""
    found = said("demo", "--kill-at", step)
    assert (found["rows"], found["missing"], found["doubled"]) == (10_000, 0, 0)
    assert found["plain"] == {"rows": 11_000, "missing": 0, "doubled": 1_000}


@pytest.mark.soak
def test_the_demo_by_spark_kills_a_stream_of_sparks(tmp_path):
    found = said("demo", "--spark", "--folder", str(tmp_path / "demo"))
    assert found["spark"] and (found["missing"], found["doubled"], found["pending_after_kill"]) == (0, 0, 1)
    assert found["plain"]["missing"] == 0 and found["plain"]["doubled"] == 1_000


@pytest.mark.soak
def test_the_bench_by_spark_measures_both_sinks(tmp_path):
    found = said("bench", str(tmp_path), "--batches", "3", "--spark")
    assert found["spark_files_ms"]["median"] > 0 and found["spark_streamsink_ms"]["median"] > 0
    assert os.listdir(tmp_path) == []


def test_the_bench_tells_times_and_calls_and_leaves_nothing(tmp_path):
    found = said("bench", str(tmp_path), "--batches", "3")
    assert found["batch_ms"]["median"] <= found["batch_ms"]["worst"] and found["spark_files_ms"] is None
    assert found["calls"]["create"] >= 3 and os.listdir(tmp_path) == []
    run("bench", "s3://bucket/folder", "--spark", code=2)


def test_calls_are_counted_by_what_they_do(tmp_path):
    file_io = local_file_io(False)
    counts = count_calls(file_io)
    file_io.write(f"{tmp_path}/a/b", b"x")
    before = dict(counts)
    assert file_io.read(f"{tmp_path}/a/b") == b"x" and file_io.size(f"{tmp_path}/a/b") == 1
    assert counts["read"] == before.get("read", 0) + 1 and counts["look up"] == before.get("look up", 0) + 1


def test_what_only_looks_can_be_watched():
    """So that a terminal, or a program that reads lines, sees it change."""
    looks = {
        command.name: {each for option in command.params for each in option.opts}
        for command in cli_page.commands()
        if not any("--yes" in option.opts for option in command.params)
    }
    assert {name for name, options in looks.items() if "--watch" not in options} == _NOT_WATCHED
    assert all("--json" in options for options in looks.values())


def test_the_shell_completes_commands_paths_and_names_of_queries(orders):
    """A name is completed by the journals at the path that stands before it."""
    shell = ShellComplete(cli, {}, "streamsink", "_STREAMSINK_COMPLETE")
    assert {"drop-missing"} <= {each.value for each in shell.get_completions([], "drop")}
    assert [each.type for each in shell.get_completions(["snapshots"], "la")] == ["file"]
    assert [each.value for each in shell.get_completions(["unlock", orders, "-a"], "str")] == ["streamsink"]
    assert shell.get_completions(["unlock", "/nowhere", "-a"], "") == []


def test_a_terminal_shows_that_a_command_is_at_work():
    """After a second, beside the answer, and only there."""
    import pty

    call = (
        "import time; from streamsink.cli import frame; frame._TELLS_S = 0.01\n"
        "with frame._clock('remove_orphans'): time.sleep(0.1)"
    )
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", call], stderr=theirs, check=True, timeout=60)
    os.close(theirs)
    assert b"remove orphans: 0 s" in os.read(ours, 4096)
    os.close(ours)
