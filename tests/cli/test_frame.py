"""What all commands have in common: documents, tables, errors, exit codes, settings of stores, looking again."""

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamsink import errors
from streamsink.cli.frame import fail
from streamsink.cli.main import cli
from streamsink.cli.output import Answer, Rows, age, plain, show
from streamsink.clock import Clock
from streamsink.testing.driver import SparkCheckpoint
from tests.cli.conftest import run, said
from tests.cli.lakes import dying


def test_a_look_is_repeated_as_often_as_it_is_wanted(orders):
    """Each time one JSON document, so that a program may read line by line."""
    done = run("snapshots", orders, "--watch", "0.05", "--watch-times", "3", "--json")
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and {json.loads(line)["retained"] for line in lines} == {3}


def test_the_numbers_of_looks_agree_with_the_table(orders):
    """Of snapshots, files and partitions."""
    snapshots = said("snapshots", orders, "--limit", "2")
    assert [each["id"] for each in snapshots["snapshots"]] == [3, 2] and snapshots["retained"] == 3
    assert [each["added_rows"] for each in snapshots["snapshots"]] == [10, 10]
    files = said("files", orders, "--all")
    assert (files["files"], files["rows"], len(files["listed"])) == (9, 30, 9)
    assert sum(os.path.getsize(os.path.join(orders, each["path"])) for each in files["listed"]) == files["bytes"]
    assert said("files", orders, "--snapshot", "1")["files"] == 3
    found = said("partitions", orders)["partitions"]
    assert [(each["partition"], each["rows"]) for each in found] == [(f"dt=2026-11-0{day}", 10) for day in (1, 2, 3)]


def test_a_record_that_is_missing_is_named_only_where_that_is_known(tmp_path):
    """The first record of a table, and one between two; not where the table has forgotten what came before."""
    table = str(tmp_path / "orders")
    dying(table, SparkCheckpoint("q1"), [10, 20, 30], publish_every_batches=9)
    folder = tmp_path / "orders" / "streamsink" / "streamsink"
    (folder / "record-2.json").unlink()
    assert said("pending", table, code=1)["journals"][0]["missing"] == 2
    (folder / "record-1.json").unlink()
    assert said("pending", table, code=1)["journals"][0]["missing"] == 1
    warehouse = tmp_path / "elsewhere"
    (warehouse / "streamsink").mkdir(parents=True)
    folder.rename(warehouse / "streamsink" / "streamsink")
    [journal] = said("pending", str(warehouse))["journals"]
    assert journal["missing"] is None and len(journal["pending"]) == 1


def test_positions_and_offsets_say_where_the_query_is(orders):
    """Positions are those of what is published; a new checkpoint begins behind what is pending."""
    [state] = said("positions", orders)["applications"]
    assert (state["checkpoint_id"], state["record"]) == (2, 3) and state["topics"][0]["next"] == {"0": 30}
    offsets = said("offsets", orders, "--partitions", "t=2")
    assert offsets["startingOffsets"] == {"t": {"0": 40, "1": -2}}
    run("offsets", orders, "--partitions", "t", code=2)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.Misuse("m", kind="k.m"), 3),
        (errors.Fenced("m", kind="k.m"), 3),
        (errors.Conflict("m", kind="k.m"), 3),
        (errors.Corrupt("m", kind="k.m"), 4),
        (errors.Retryable("m", kind="k.m"), 5),
        (errors.OutcomeUnknown("m", kind="k.m"), 5),
        (OSError(5, "m"), 5),
    ],
)
def test_each_class_of_error_has_its_exit_code(error, code, capsys):
    """As the help lists them; kind and text are shown, and in JSON both have names."""
    for as_json in (False, True):
        with pytest.raises(Exception) as ended:
            fail(error, as_json)
        assert ended.value.exit_code == code
    shown = capsys.readouterr()
    assert "m" in shown.err and set(json.loads(shown.out)["error"]) == {"kind", "message"}


def test_settings_of_a_store_come_from_the_line_and_from_a_file(orders, tmp_path):
    """Those of the line count more; what is wrong is named, and no value of it is shown."""
    settings = tmp_path / "s3.json"
    settings.write_text('{"s3.secret-key": "hidden", "s3.nothing": "x"}')
    refused = run("snapshots", "s3://bucket/t", "--store-options", str(settings), code=3)
    assert refused.stderr.startswith("option.unknown: ") and "hidden" not in refused.stderr
    by_name = CliRunner(env={"STREAMSINK_STORE_OPTIONS": str(settings)}).invoke(cli, ["snapshots", "s3://bucket/t"])
    assert by_name.exit_code == 3 and "s3.nothing" in by_name.stderr
    for wrong in ("[1]", "{"):
        settings.write_text(wrong)
        assert str(settings) in run("snapshots", orders, "--store-options", str(settings), code=2).stderr
    assert run("snapshots", orders, "--store-option", "x", code=2)


def test_an_option_of_the_query_is_read_as_it_is_declared(orders):
    """A number, a truth value, names, or a text; an unknown one is refused by name."""
    assert said("recover", orders, "-o", "x=1", code=3)["error"]["kind"] == "option.unknown"
    assert said("recover", orders, "-o", "journal_retain=x", code=3)["error"]["kind"] == "option.value"
    good = ("journal_retain=7", "flush=false", "partition_by=dt", "accept_as_new=123456789012", "adopt_from_batch=3")
    run("recover", orders, *(part for text in good for part in ("-o", text)), code=1)


def test_a_table_in_a_pipe_is_plain_text():
    """Numbers stand at the right, texts at the left, and what is not known is a dash."""
    assert plain(Rows("T", ("a", "number"), [["x", 1234], ["longer", None]])) == (
        "T\na       number\nx        1,234\nlonger       -"
    )


def test_a_table_on_a_terminal_has_lines(orders):
    """It is drawn by rich, as wide as the terminal."""
    ours, theirs = pty.openpty()
    call = "from streamsink.cli.main import main; main()"
    environment = {**os.environ, "COLUMNS": "150", "TERM": "xterm"}
    subprocess.run(
        [sys.executable, "-c", call, "partitions", orders], stdout=theirs, env=environment, check=True, timeout=60
    )
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert "dt=2026-11-01" in shown and "┏" in shown


@pytest.mark.parametrize("option", ["application=y", "store_options=x"])
def test_an_option_that_would_not_be_read_is_refused(orders, option):
    """Commands have an argument of their own for it; it was left out without a word."""
    assert option.partition("=")[0] in run("recover", orders, "-o", option, code=2).stderr


@pytest.mark.parametrize("place", ["none", "lake/shop.db", "a\0b"])
@pytest.mark.parametrize("command", [("pending",), ("recover", "--yes"), ("accept",)])
def test_a_place_where_nothing_is_is_refused(lake, place, command):
    """Of a path that was misspelt it was said that nothing is pending there."""
    name, *more = command
    kind = "table.path" if "\0" in place else "journal.no-place"
    assert said(name, place, *more, code=3)["error"]["kind"] == kind


def test_tags_of_what_is_no_table_are_refused(lake, orders):
    """There were none; and a damaged one was an error of Python."""
    assert said("tag", "list", "lake/none", code=3)["error"]["kind"] == "table.missing"
    tag = Path(orders) / "tag" / "tag-kept"
    tag.parent.mkdir(exist_ok=True)
    shutil.copy(Path(orders) / "snapshot" / "snapshot-2", tag)
    assert {"tag": "kept", "snapshot": 2, "rows": 20} in said("tag", "list", orders)["tags"]
    tag.write_text("{")
    assert str(tag) in run("tag", "list", orders, code=4).stderr


@pytest.mark.parametrize("age", ["9999999999d", "999999d", "x", "2026-11-27T12:00:00", "2026-11-27"])
def test_an_age_that_is_none_is_a_wrong_call(orders, age):
    """Also one that leads to a time before the year 1; and a time without a zone: commands print UTC, and that of the
    machine may be another one."""
    assert "is no" in run("orphans", orders, "--older-than", age, code=2).stderr


def test_a_name_that_nobody_has_has_no_words(orders):
    assert said("accept", orders, "-a", "nobody", code=3)["error"]["kind"] == "journal.unknown"


def _program(*arguments: str, **given) -> subprocess.CompletedProcess[bytes]:
    call = "from streamsink.cli.main import main; main()"
    return subprocess.run([sys.executable, "-c", call, *arguments], capture_output=True, timeout=60, **given)


def test_a_wrong_call_is_a_document_as_well():
    """With --json the standard output is one document, whatever happens."""
    done = _program("snapshots", "--nothing", "--json")
    assert done.returncode == 2 and json.loads(done.stdout)["error"]["kind"] == "usage"


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_names_that_cannot_be_written_are_escaped(tmp_path, encoding):
    """Paths may hold any bytes; an error of Python's codecs stood there."""
    name = os.fsencode(tmp_path) + "/nö😀".encode() + b"\xff"
    done = _program("pending", os.fsdecode(name), "--json", env={**os.environ, "PYTHONIOENCODING": encoding})
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout)["error"]["message"].startswith(os.fsdecode(name))


def test_what_a_terminal_would_obey_is_escaped(capsys):
    """Names of commit users and rows come from others."""
    show(Answer({}, ["a\x1b[2Jb\nc\x9b", Rows("", ("n",), [["x\ny\x07"]])]), False)
    assert capsys.readouterr().out == "a\\x1b[2Jb\nc\\x9b\nn\nx\\ny\\x07\n"


def test_ctrl_c_ends_a_watch_with_the_code_of_its_last_look(orders, monkeypatch):
    """It is how a watch ends. click would say 'Aborted!', and end with 1, which stands for findings."""

    def interrupted(clock, ms):
        raise KeyboardInterrupt

    monkeypatch.setattr(Clock, "sleep_ms", interrupted)
    done = CliRunner().invoke(cli, ["snapshots", orders, "--watch", "0.05"])
    assert (done.exit_code, len(done.stdout.splitlines()) > 3, done.stderr) == (0, True, "")


def test_the_doctor_repeats_how_the_store_was_given(orders):
    """A command without them would look at another store. What may be a secret is not shown."""
    given = ("--store-option", "s3.endpoint=http://x", "--store-option", "s3.secret-key=hidden")
    [command] = [each["command"] for each in said("doctor", orders, *given, code=1)["findings"]]
    assert command.endswith("--store-option s3.endpoint=http://x --store-option s3.secret-key=...")


def test_how_far_a_command_has_come_is_shown_on_a_terminal_alone(orders):
    """Beside the answer, which stays one document."""
    ours, theirs = pty.openpty()
    call = "from streamsink.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", call, "verify", orders, "--json"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        check=True,
        timeout=60,
    )
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert "2 of 3 snapshots are checked" in shown and json.loads(done.stdout)["ok"]
    assert run("verify", orders).stderr == ""


@pytest.mark.parametrize(("ms", "text"), [(5, "5 ms"), (61_000, "1 min"), (7_200_000, "2 h"), (None, None)])
def test_ages_are_in_their_largest_unit(ms, text):
    assert age(ms) == text


def test_completion_of_shells_knows_the_commands():
    """click's own: the script is made by the program itself."""
    environment = {
        "_STREAMSINK_COMPLETE": "bash_complete",
        "COMP_WORDS": "streamsink dead-letters r",
        "COMP_CWORD": "2",
    }
    done = subprocess.run(
        [sys.executable, "-c", "from streamsink.cli.main import main; main()"],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=60,
    )
    assert done.stdout.split() == ["plain,replay"]
