"""The commands on a real HDFS and a real S3 server, reached with the settings that the sink has."""

import json
import shlex
import threading

import pytest

from streamsink.journal.file_journal import FileJournal
from streamsink.storage.hold import BEAT_THREAD
from streamsink.testing.driver import SparkCheckpoint
from tests.cli.conftest import run, said
from tests.cli.lakes import PENDING, PUBLISHED, dying
from tests.storage.back_ends import REMOTE, back_end


@pytest.mark.in_turn("dead queries on a store", 1)
@pytest.mark.parametrize("kind", REMOTE)
def test_a_dead_query_on_a_store_is_looked_at_and_recovered(kind, request, tmp_path):
    """Settings of the store come from a file; those of HDFS are in the path."""
    made = back_end(kind, request)
    root, settings = f"{made.root}/orders", tmp_path / "store.json"
    settings.write_text(json.dumps(dict(made.options)))
    given = (root, "--store-options", str(settings))
    dying(root, SparkCheckpoint("q1"), [*PUBLISHED, PENDING], file_io=made.io())
    assert said("snapshots", *given)["retained"] == 3
    [journal] = said("pending", *given)["journals"]
    assert [each["rows"] for each in journal["pending"]] == [PENDING - PUBLISHED[-1]]
    page = tmp_path / "page.html"
    report = said("report", *given, "--no-findings", "--out", str(page))
    assert report["summary"]["rows"] == PUBLISHED[-1] and report["pending"][0]["count"] == 1
    shown = page.read_text()
    assert root in shown and str(settings) in shown, "the commands in it reach the store, too"
    assert made.options.get("s3.secret-key", "a secret") not in shown
    assert said("unlock", *given, "-a", "streamsink", "--yes")["state"] == "free"
    [finding] = said("doctor", *given, code=1)["findings"]
    program, *typed = shlex.split(finding["command"])
    assert program == "streamsink" and said(*typed, "--yes")["recovered"][0]["checkpoints"] == [3]
    assert said("verify", *given)["rows"] == PENDING and said("doctor", *given)["findings"] == []


@pytest.mark.parametrize("kind", REMOTE)
@pytest.mark.soak
def test_a_hold_that_a_dead_driver_has_left_is_released(kind, request):
    """Its file is not changed for one lease, 15 seconds; while it is, the command refuses."""
    made = back_end(kind, request)
    options = [word for name, value in made.options.items() for word in ("--store-option", f"{name}={value}")]
    given = (made.root, *options, "-a", "streamsink")
    living = FileJournal(made.io(), made.root, "streamsink", 2)
    living.claim("q1", 0)
    living._io.do_waiting()
    assert said("unlock", *given, "--yes", code=3)["error"]["kind"] == "unlock.alive"
    _stop_beating(living)
    assert said("unlock", *given)["state"] == "dead"
    assert said("unlock", *given, "--yes")["released"] and said("unlock", *given)["state"] == "free"
    run("unlock", *given)


def _stop_beating(journal: FileJournal) -> None:
    """As if the driver had died: its file stays, and nobody changes it any more."""
    hold = journal._owners._hold
    hold._ended.set()
    for thread in threading.enumerate():
        if thread.name.startswith(BEAT_THREAD):
            thread.join()
