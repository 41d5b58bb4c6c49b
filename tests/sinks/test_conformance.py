"""The suite for sinks:
the sink that the docs show passes it, Paimon tables do, and a sink that breaks a rule does not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import streamsink
from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.sink import Destination, History, LastOfOther, Published, StagedFile, last_of_others, to_sink
from streamsink.sinks.paimon.opening import PaimonTable
from streamsink.storage.file_io import local_file_io
from streamsink.table.read.scan import read_arrow
from streamsink.table.table import is_table, open_table
from streamsink.testing.conformance import SCHEMA, BrokenSink, check_sink
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from tests.advice.following import follows, told
from tests.sinks.lake import Lake, rows
from tests.sinks.shown import code, plain_files, rows_of, shown

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 60


@pytest.mark.in_turn("shown sinks in the suite of all sinks", 2)
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.soak)])
def test_the_sink_of_the_docs_passes(every):
    """Every call is tried, in every way; in the gate every fourth."""
    assert check_sink(plain_files, rows_of, every=every) > 1_500 // every


def test_it_is_short():
    """An author writes no more than this, comments and imports included, in the lines that the formatter makes."""
    assert sum(bool(line.strip()) for line in code().splitlines()) <= MOST_LINES
    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--no-cache", "--stdin-filename", "plain_files.py", "-"],
        input=code(),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert formatted.stdout == code(), formatted.stderr


def rows_of_table(file_io, root):
    if not is_table(file_io, root):
        return []
    return read_arrow(open_table(file_io, root, for_writing=False)).column("id").to_pylist()


@pytest.mark.in_turn("ways of a Paimon table in the suite of all sinks", 1)
@pytest.mark.parametrize(
    "options", [{}, {"publish_every_batches": 3}, {"publish_every_batches": 3, "publish_as": "one-snapshot"}], ids=str
)
def test_a_paimon_table_passes(options):
    """A few hundred calls are tried here; tests/crash tries all of them, and more."""
    assert check_sink(PaimonTable, rows_of_table, every=23, **options) > 50


def _broken(**methods):
    """The sink of the docs, whose committer has these methods instead."""
    module = shown()
    committer = type("Broken", (module.PlainCommitter,), methods)

    class BrokenFiles(module.PlainFiles):
        def open(self, file_io, options, batch, fields, emit):
            opened = super().open(file_io, options, batch, fields, emit)
            opened.committer = committer(file_io, self.path)
            return opened

    return BrokenFiles


def _manifest_of(committable) -> bytes:
    return json.dumps(
        {"files": [file.final for file in committable.files], "state": committable.state.to_json()}
    ).encode()


def _publishes_whatever_is_there(self, committable, *, expect, restored, fence):
    """It looks neither at the last record nor at the name."""
    for file in committable.files:
        self._io.place(f"{self._path}/{file.staged}", f"{self._path}/{file.final}", True)
    state = committable.state
    path = f"{self._path}/commits/{committable.application}/{state.sequence:010}{state.record_id}.json"
    self._io.replace(path, _manifest_of(committable), state.record_id)
    return Published(committable.state.checkpoint_id, committable.state.sequence, 1)


def _publishes_nothing(self, committable, *, expect, restored, fence):
    return Published(committable.state.checkpoint_id, committable.state.sequence, 1)


def _names_are_not_durable(self, committable, *, expect, restored, fence):
    """Files get their final names, which a power failure takes back."""
    io, self._io = self._io, _Unsynced(self._io)
    try:
        return shown().PlainCommitter.publish(self, committable, expect=expect, restored=restored, fence=fence)
    finally:
        self._io = io


class _Unsynced:
    def __init__(self, io):
        self._io = io

    def __getattr__(self, name):
        return getattr(self._io, name)

    def sync_dir(self, path):
        pass


def _opened_with(**methods):
    """The sink of the docs, whose opened form has these methods instead."""
    module = shown()
    opened_form = type("BrokenOpen", (module.OpenPlainFiles,), methods)

    class BrokenFiles(module.PlainFiles):
        def open(self, file_io, options, batch, fields, emit):
            opened = super().open(file_io, options, batch, fields, emit)
            return opened_form(file_io, opened.to, options)

    return BrokenFiles


def _has_one_identity(self, file_io, to, options):
    shown().OpenPlainFiles.__init__(self, file_io, to, options)
    self.to = Destination(to.path, "always the same")


def _is_never_ready(self, checkpoint, written, group):
    folder = os.path.relpath(checkpoint.staging, self.to.path)
    return tuple(StagedFile(f"{folder}/{file.name}", f"data/{file.name}", file.size, file.rows) for file in written), {}


def _knows_what_is_published(self, application):
    """It does not know what is recorded."""
    names = [entry.name for entry in self._io.entries(f"{self._path}/commits") if entry.name != application]
    return {name: LastOfOther(state, True, said=state) for name in names if (state := self._manifests.newest(name))}


def _publishes_unasked(self, committable, *, expect, restored, fence):
    """It does not check who the owner is."""
    return shown().PlainCommitter.publish(self, committable, expect=expect, restored=restored, fence=lambda: None)


def _publishes_over_anything(self, committable, *, expect, restored, fence):
    """It does not look at the last record."""
    newest = self._manifests.newest(committable.application)
    return shown().PlainCommitter.publish(
        self, committable, expect=newest.sequence if newest else 0, restored=restored, fence=fence
    )


@pytest.mark.in_turn("rules that a sink breaks", 4)
@pytest.mark.parametrize(
    "broken",
    [
        _broken(publish=_publishes_nothing),
        _broken(publish=_publishes_whatever_is_there),
        _broken(publish=_names_are_not_durable),
        _broken(history=lambda self, application: History(None, complete=True)),
        _broken(others=lambda self, application: {}),
        _broken(others=_knows_what_is_published),
        _broken(publish=_publishes_unasked),
        _broken(publish=_publishes_over_anything),
        _broken(mentions=lambda self, committable: False),
        _broken(sweep=lambda self, published: []),
        _opened_with(__init__=_has_one_identity),
        _opened_with(stage=_is_never_ready),
    ],
    ids=[
        "publishes nothing",
        "publishes whatever is there",
        "names are not durable",
        "remembers nothing",
        "knows no other name",
        "knows no other name's record",
        "asks no owner",
        "publishes over anything",
        "mentions nothing",
        "what is found is not durable",
        "has one identity",
        "is never ready",
    ],
)
def test_a_sink_that_breaks_a_rule_does_not_pass(broken):
    with pytest.raises(BrokenSink):
        check_sink(broken, rows_of)


def test_where_few_calls_are_tried_those_that_make_rows_visible_are_among_them():
    """What is found is not durable shows at these alone."""
    with pytest.raises(BrokenSink, match="a power failure a reader sees"):
        check_sink(_broken(sweep=lambda self, published: []), rows_of, every=1_000)


def test_commands_for_tables_say_that_they_know_no_other_destination(tmp_path):
    """Formerly they took the folder for that of several tables, and left files of their own in the journal."""
    io = local_file_io(flush=False)
    driver = MicroBatchDriver(
        str(tmp_path), SCHEMA, lambda first, end: rows(first, end), SinkOptions.of(str(tmp_path), {})
    )
    driver.destination = lambda: plain_files(str(tmp_path))
    driver.run(io, SparkCheckpoint("query"), (3, 5))
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    for command in (
        streamsink.give_up,
        streamsink.starting_offsets,
        lambda path: streamsink.retire(path, "streamsink"),
    ):
        with pytest.raises(Misuse) as refused:
            command(str(tmp_path))
        assert refused.value.kind == "sink.no-tables" and "Nothing was changed" in str(refused.value)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before


def test_what_the_name_before_has_lost_is_noticed():
    """Formerly a record under another name went on over nothing, and what the first name had written was missing."""
    lake = Lake()
    lake.run((3, 5))
    lake.record((3, 5, 8), application="new", adopt_from_batch=2)
    lake.io().delete_tree("/lake/commits/streamsink")
    with pytest.raises(Misuse) as refused:
        lake.run((3, 5, 8), application="new")
    assert refused.value.kind == "table.rolled-back-too-far" and rows_of(lake.io(), "/lake") == []


def test_a_name_that_has_a_record_alone_is_found_by_its_journal():
    """The destination knows nothing of it yet."""
    lake = Lake()
    lake.record((3,))
    found = last_of_others(lake.io(), "/lake", "new", (), lambda name: None)
    assert {name: (last.state.sequence, last.is_published) for name, last in found.items()} == {
        "streamsink": (1, False)
    }


@follows("destination.no-id")
def test_a_folder_that_has_lost_its_identity_is_written_when_that_is_there_again():
    """Else it would get a new one, and records that are pending would be of another destination."""
    lake = Lake()
    lake.run((3,))
    lake.record((3, 5))
    identity = lake.io().read("/lake/id")
    lake.io().delete("/lake/id")
    told("destination.no-id", lambda: lake.run((3, 5, 8))).says("'id'", "Restore the file")
    lake.io().create_if_absent("/lake/id", identity)
    lake.run((3, 5, 8))
    assert rows_of(lake.io(), "/lake") == list(range(8))


@follows("option.of-tables")
def test_an_option_of_tables_is_refused(tmp_path):
    """It would otherwise be ignored."""
    said = told("option.of-tables", lambda: to_sink(plain_files(str(tmp_path)), mode="overwrite"))
    said.says("mode", "Leave them out")
    to_sink(plain_files(str(tmp_path)))
