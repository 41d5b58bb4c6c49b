"""Two drivers of one checkpoint meet in Spark's logs of it, where Spark ends the query of the second one, whichever of
the two is the newer driver. The newer one goes on; the older one ends with the error that says so."""

import json
import shutil
import threading
from pathlib import Path

import pytest

import streamsink
from streamsink.errors import Fenced, Retryable
from streamsink.spark.query import rivals
from tests.advice.following import advice, follows
from tests.e2e.harness import assert_each_once, ids_of

pytestmark = pytest.mark.spark
# Each log, and the entry that the other driver is the first to write while batch 1 is in the sink.
LOGS = {"offsets": "2", "commits": "1", "sources/0": "2"}


class Meeting:
    """A query whose other driver writes an entry of a log while batch 1 is in the sink.

    starts: how often it was started.
    """

    def __init__(self, spark, ground):
        self._spark, self._ground = spark, ground
        self._sink = streamsink.to_table(ground.table, lambda event: None, flush=False)
        self._to_come = []
        self.starts = 0
        ground.add_files(0, 1)
        self.run()
        ground.add_files(1, 3)
        self._other = ground.root / "other"
        shutil.copytree(ground.checkpoint, self._other)
        self._start(self._other, lambda df, batch_id: None).awaitTermination()

    def _start(self, checkpoint, function):
        stream = self._spark.readStream.schema("id BIGINT, name STRING").option("maxFilesPerTrigger", 1)
        query = stream.json(str(self._ground.source)).writeStream.foreachBatch(function)
        return query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()

    def comes(self, *happens) -> None:
        """What happens while batch 1 is in the sink, once."""
        self._to_come += happens

    def logs(self, log: str) -> None:
        """The other driver writes the entry of that log."""
        shutil.copy(self._other / log / LOGS[log], Path(self._ground.checkpoint, log))

    def claims(self) -> None:
        """The other driver takes the application over, as its first batch does."""
        [journal] = Path(self._ground.table, "streamsink").iterdir()
        epochs = [int(owner.name.removeprefix("owner-")) for owner in journal.glob("owner-*")]
        mine = json.loads((journal / f"owner-{max(epochs)}").read_text())
        (journal / f"owner-{max(epochs) + 1}").write_text(json.dumps(mine | {"run": "another", "id": "another"}))

    def run(self, max_restarts: int = 2) -> None:
        def publish(df, batch_id: int) -> None:
            self._sink(df, batch_id)
            while batch_id == 1 and self._to_come:
                self._to_come.pop()()

        def start():
            self.starts += 1
            return self._start(self._ground.checkpoint, publish)

        streamsink.run(start, max_restarts=max_restarts, min_wait_ms=1, max_wait_ms=1)


@pytest.fixture
def meeting(spark, ground, monkeypatch):
    monkeypatch.setattr(rivals, "LOOK_MS", 50)
    made = Meeting(spark, ground)
    made.starts = 0
    return made


@pytest.mark.in_turn("two drivers of one checkpoint", 1)
@follows("checkpoint.two-drivers")
@pytest.mark.parametrize("log", LOGS)
def test_the_newer_driver_goes_on_where_the_older_one_was_first_in_a_log(ground, meeting, monkeypatch, log):
    """Formerly it ended with Spark's own error, and both were gone."""
    monkeypatch.setattr(rivals, "PATIENCE_MS", 0)
    meeting.comes(lambda: meeting.logs(log))
    with pytest.raises(Retryable) as met:
        meeting.run(max_restarts=0)
    advice(met.value, "checkpoint.two-drivers").says("its restart takes the query over", "start this one again")
    assert_each_once(ground.table, ids_of(0, 2))
    meeting.run()
    assert_each_once(ground.table, ids_of(0, 4))


@pytest.mark.in_turn("two drivers of one checkpoint", 1)
def test_it_is_started_again_by_itself(ground, meeting, monkeypatch):
    monkeypatch.setattr(rivals, "PATIENCE_MS", 0)
    meeting.comes(lambda: meeting.logs("offsets"))
    meeting.run()
    assert meeting.starts == 2
    assert_each_once(ground.table, ids_of(0, 4))


@pytest.mark.in_turn("two drivers of one checkpoint", 1)
@pytest.mark.parametrize("after_s", [0, 1])
def test_the_older_driver_ends_as_one_that_was_taken_over(ground, meeting, after_s):
    """The newer one has called its sink, or does so soon after. Formerly this one ended with Spark's own error, whose
    advice does not say which of the two it is. It does not take the query back."""
    claiming = threading.Timer(after_s, meeting.claims)
    meeting.comes(lambda: meeting.logs("offsets"), claiming.start)
    with pytest.raises(Fenced) as ended:
        meeting.run()
    claiming.join()
    assert ended.value.kind == "writer.fenced" and ground.table in str(ended.value)
    assert meeting.starts == 1
    assert_each_once(ground.table, ids_of(0, 2))
