"""Queries whose offset log is in version 1 or 2, with sources by place or by name: what this PySpark knows.
Two file sources each."""

import json
from pathlib import Path

import pyspark
import pytest

import streamsink
from streamsink.errors import Misuse
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table
from tests.e2e.harness import assert_each_once, forget_commit

pytestmark = pytest.mark.spark
_KNOWS_VERSION_2 = tuple(int(part) for part in pyspark.__version__.split(".")[:2]) >= (4, 2)
LOGS = ["v1", "v2", "named"] if _KNOWS_VERSION_2 else ["v1"]


class Two:
    """A query over the folders ``b`` and ``a``, in this order, of one file a batch each."""

    def __init__(self, spark, ground, log: str):
        self.ground, self.log = ground, log
        self.session = spark.newSession()
        self.session.conf.set("spark.sql.streaming.offsetLog.formatVersion", "1" if log == "v1" else "2")
        self.session.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", str(log == "named").lower())
        self.names = ["b", "a"]
        self.files = 0
        self.expected: set[int] = set()
        self.sink = streamsink.to_table(ground.table, lambda event: None, flush=False)

    def add(self, *folders: str) -> None:
        for folder in folders:
            place = self.ground.root / folder
            place.mkdir(exist_ok=True)
            (place / f".{self.files}").write_text(json.dumps({"id": self.files}))
            (place / f".{self.files}").rename(place / f"{self.files}.json")
            self.expected.add(self.files)
            self.files += 1

    def run(self) -> None:
        """Run a new start, as after a crash, over everything that is there."""

        def query():
            frames = [self._source(name) for name in self.names]
            rows = frames[0].union(frames[1])
            return (
                rows.writeStream.foreachBatch(self.sink)
                .option("checkpointLocation", self.ground.checkpoint)
                .trigger(availableNow=True)
                .start()
            )

        streamsink.run(query, min_wait_ms=1, max_wait_ms=1)
        assert_each_once(self.ground.table, self.expected)

    def entry(self, batch_id: int) -> Path:
        return Path(self.ground.checkpoint, "offsets", str(batch_id))

    def rewrite(self, batch_id: int, *lines: str) -> None:
        """Rewrite the entry as a Spark would have written it that goes on in version 2."""
        entry = self.entry(batch_id)
        metadata = json.loads(entry.read_text().split("\n")[1])
        metadata["conf"]["spark.sql.streaming.queryEvolution.enableSourceEvolution"] = str(
            not lines[0][0].isdigit()
        ).lower()
        entry.write_text("\n".join(["v2", json.dumps(metadata), *lines]))
        Path(entry.parent, f".{entry.name}.crc").unlink(missing_ok=True)

    def _source(self, name: str):
        reader = self.session.readStream.schema("id BIGINT").format("json").option("maxFilesPerTrigger", 1)
        return (reader.name(f"from_{name}") if self.log == "named" else reader).load(str(self.ground.root / name))


@pytest.mark.parametrize("log", LOGS)
def test_batches_replays_and_restarts_are_exact(spark, ground, log):
    """Some of several batches have rows of one source only. The last one is replayed, alone and with new files."""
    two = Two(spark, ground, log)
    two.add("a", "b", "a")
    two.run()
    assert two.entry(0).read_text().startswith("v1\n" if log == "v1" else "v2\n")
    forget_commit(ground.checkpoint, 1)
    two.run()
    forget_commit(ground.checkpoint, 1)
    two.add("b", "b")
    two.run()
    newest = max(Path(ground.checkpoint, "offsets").glob("[0-9]*"), key=lambda entry: int(entry.name))
    table = open_table(local_file_io(), ground.table, for_writing=False)
    recorded = json.loads(table.snapshots.latest().properties["streamsink.app.streamsink"])
    planned_ms = json.loads(newest.read_text().split("\n")[1])["batchTimestampMs"]
    assert (recorded["checkpoint_id"], recorded["planned_ms"]) == (int(newest.name), planned_ms) and planned_ms > 10**12


@pytest.mark.parametrize("log", LOGS)
def test_a_checkpoint_that_is_restored_from_an_older_copy_is_refused(spark, ground, log):
    """Positions of an earlier batch come back with one file more: the error is the one that a file source without a
    file column gets, and nothing is guessed."""
    two = Two(spark, ground, log)
    two.add("a", "b")
    two.run()
    two.add("a", "b")
    two.run()
    for folder in ("offsets", "commits", f"sources/{'from_a' if log == 'named' else '1'}"):
        for name in ("1", ".1.crc"):
            Path(ground.checkpoint, folder, name).unlink(missing_ok=True)
    two.add("b")
    with pytest.raises(Misuse) as refused:
        two.run()
    assert refused.value.kind == "files.overlap"


if "named" in LOGS:

    def test_named_sources_may_be_written_in_another_order(spark, ground):
        """Sources are known by their names: there is no false alarm, and no row comes twice."""
        two = Two(spark, ground, "named")
        two.add("a", "b", "a")
        two.run()
        two.names.reverse()
        two.add("b")
        two.run()
        two.add("a", "b")
        two.run()

    def test_a_named_source_may_be_added_and_another_one_removed(spark, ground):
        """This is Spark's source evolution, for which version 2 was made."""
        two = Two(spark, ground, "named")
        two.add("a", "b", "a")
        two.run()
        two.names = ["c", "b"]
        two.add("c", "b", "c")
        two.run()

    @pytest.mark.parametrize("replayed", [False, True])
    def test_a_log_of_version_1_goes_on_in_version_2(spark, ground, replayed):
        """The entry of the last batch is one of version 2, whose lines are in another order.
        Its batch is done, or is replayed."""
        two = Two(spark, ground, "v2")
        two.session.conf.set("spark.sql.streaming.offsetLog.formatVersion", "1")
        two.add("a", "b", "a")
        two.run()
        first, second = two.entry(1).read_text().split("\n")[2:]
        two.rewrite(1, f"1:{second}", f"0:{first}")
        if replayed:
            forget_commit(ground.checkpoint, 1)
        two.add("b", "a")
        two.run()
        assert two.entry(2).read_text().startswith("v2\n")

    @pytest.mark.parametrize("replayed", [False, True])
    def test_a_log_of_places_goes_on_with_names(spark, ground, replayed):
        """Names stand for places in the order of the query, which neither the log nor the alphabet says."""
        two = Two(spark, ground, "v2")
        two.session.conf.set("spark.sql.streaming.offsetLog.formatVersion", "1")
        two.add("a", "b", "a")
        two.run()
        first, second = two.entry(1).read_text().split("\n")[2:]
        two.rewrite(1, f"from_a:{second}", f"from_b:{first}")
        for place, name in enumerate(("from_b", "from_a")):
            Path(ground.checkpoint, "sources", str(place)).rename(Path(ground.checkpoint, "sources", name))
        if replayed:
            forget_commit(ground.checkpoint, 1)
        two.log = "named"
        two.session.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
        two.add("b", "a")
        two.run()
