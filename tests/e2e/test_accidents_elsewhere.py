"""The accidents of docs/ACCIDENTS.md, each on each destination that is no Paimon table: a directory of files, a
database, a sink in Flink's form, an Iceberg table and a Delta table. Real queries, and readers that know nothing of
streamsink.

Those on Kafka topics are in ``test_accidents_into_kafka.py``.
"""

import json
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from streamsink.errors import StreamsinkError
from tests.e2e.harness import Driver, Outcome, forget_commit, ids_of, run_driver, run_here
from tests.e2e.job import frame, start

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Destination:
    """read: (root) -> the ids that a reader sees. known, rows: what says which rows are there, and what holds them,
    below the root. job: changes of a job, by root. dropped, unknown: the errors when the rows are gone, and when what
    is known is gone."""

    read: Callable[[Path], list[int]]
    known: tuple[str, ...]
    rows: tuple[str, ...]
    job: Callable[[Path], dict]
    dropped: str = "gap.first-batch"
    unknown: str = "table.rolled-back"


def _of_manifests(root: Path) -> list[int]:
    """Also a plain listing must show these rows."""
    out = root / "lake" / "orders"
    files = [name for path in out.glob("_commits/*/*.json") for name in json.loads(path.read_text())["files"]]
    listed = [str(path.relative_to(out)) for path in out.glob("checkpoint=*/part-*")]
    assert sorted(files) == sorted(listed)
    return [row for name in files for row in pq.read_table(out / name, columns=["id"]).column("id").to_pylist()]


def _of_lines(root: Path) -> list[int]:
    paths = (root / "lake" / "orders" / "rows").glob("*.jsonl")
    return [json.loads(line)["id"] for path in paths for line in path.read_text().splitlines()]


def _of_sqlite(root: Path) -> list[int]:
    database = sqlite3.connect(root / "shop.db")
    try:
        return [row for (row,) in database.execute("SELECT id FROM orders")]
    finally:
        database.close()


def _database(root: Path) -> dict:
    url, journal = f"sqlite:{root}/shop.db", str(root / "journal")
    return {"database": {"url": url, "table": "orders", "journal": journal, "create_table": True}}


def _catalog(root: Path) -> dict:
    return {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/wh"}


def _of_iceberg(root: Path) -> list[int]:
    catalog = load_catalog("lake", **_catalog(root))
    try:
        there = catalog.table_exists("shop.orders")
        return catalog.load_table("shop.orders").scan().to_arrow().column("id").to_pylist() if there else []
    finally:
        catalog.close()


def _iceberg(root: Path) -> dict:
    return {"iceberg": {"table": "shop.orders", "catalog": "lake", "catalog_properties": _catalog(root)}}


def _of_delta(root: Path) -> list[int]:
    table = str(root / "lake" / "orders")
    there = DeltaTable.is_deltatable(table)
    return DeltaTable(table).to_pyarrow_table().column("id").to_pylist() if there else []


PLACES = {
    "files": Destination(_of_manifests, ("lake/orders/_commits",), ("lake/orders",), lambda root: {"shown": "files"}),
    "database": Destination(_of_sqlite, ("shop.db",), ("shop.db",), _database, dropped="table.recreated"),
    "flink": Destination(_of_lines, ("lake/orders/commits",), ("lake/orders",), lambda root: {"shown": "json lines"}),
    "iceberg": Destination(_of_iceberg, ("catalog.db",), ("catalog.db", "wh"), _iceberg, "table.gone", "table.gone"),
    "delta": Destination(
        _of_delta,
        ("lake/orders/_delta_log",),
        ("lake/orders",),
        lambda root: {"delta": True},
        "table.gone",
        "table.missing",
    ),
}


class World:
    """One query into one destination. ground: where it happens."""

    def __init__(self, spark, ground, place: Destination):
        self.spark, self.ground, self.place = spark, ground, place
        self.job = ground.job(**self.place.job(ground.root))

    def run(self, job=None) -> Outcome:
        return run_here(self.spark, job or self.job)

    def three_batches(self) -> None:
        self.ground.add_files(0, 3)
        assert self.run().code == 0
        self.sees(3)

    def sees(self, files: int) -> None:
        """Each row of so many files is there once."""
        assert sorted(self.place.read(self.ground.root)) == sorted(ids_of(0, files))

    def refuses(self, kind: str, job=None) -> Outcome:
        """The query stops with this error, and nothing is written."""
        before = self.seen()
        outcome = self.run(job)
        assert outcome.kind == kind and "Nothing " in outcome.message, outcome
        assert self.seen() == before
        return outcome

    def seen(self) -> list[int]:
        """What a reader sees; nothing where there is no destination."""
        if not all((self.ground.root / name).exists() for name in self.place.rows):
            return []
        try:
            return sorted(self.place.read(self.ground.root))
        except sqlite3.OperationalError:
            return []

    def copied(self) -> Callable[[], None]:
        """A copy of what is known, with the rows where they lie together. Returns what puts it back."""
        names, root = self.place.known, self.ground.root
        pairs = [(root / name, root / f"backup-{name.replace('/', '-')}") for name in names]
        for path, backup in pairs:
            _copy(path, backup)
        return lambda: [_copy(backup, path) for path, backup in pairs] and None

    def drop(self) -> None:
        """The destination is gone."""
        for name in self.place.rows:
            _remove(self.ground.root / name)

    def lose_known(self) -> None:
        """What says which rows are there is gone, and they are not."""
        if self.job.database:
            database = sqlite3.connect(self.ground.root / "shop.db")
            database.execute("DELETE FROM streamsink_checkpoints")
            database.commit()
            database.close()
            return
        for name in self.place.known:
            _remove(self.ground.root / name)

    @property
    def republishes(self) -> bool:
        """Whether it takes on_rollback='republish'."""
        return self.job.shown != "json lines"

    def sink(self) -> Callable:
        """The sink of the job, by itself."""
        from streamsink.databases import DatabaseSink
        from streamsink.delta import DeltaSink
        from streamsink.iceberg import IcebergSink
        from streamsink.sink import to_sink
        from tests.e2e.job import SHOWN

        job = self.job
        if job.database or job.iceberg:
            made = DatabaseSink(**job.database) if job.database else IcebergSink(**job.iceberg)
        else:
            made = DeltaSink(job.table) if job.delta else SHOWN[job.shown](job.table)
        return to_sink(made, listener=lambda event: None, **job.options)


def _copy(path: Path, to: Path) -> None:
    _remove(to)
    shutil.copytree(path, to) if path.is_dir() else shutil.copy(path, to)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def s1_killed_before_sparks_commit_log(world: World):
    world.three_batches()
    forget_commit(world.job.checkpoint, 2)
    world.ground.add_files(3, 1)
    assert world.run().code == 0
    world.sees(4)


def s2_checkpoint_deleted(world: World):
    """All files are still there, and one more."""
    world.three_batches()
    shutil.rmtree(world.job.checkpoint)
    world.ground.add_files(3, 1)
    assert world.run().code == 0
    world.sees(4)


def s3_two_queries(world: World):
    world.ground.add_files(0, 2)
    other = world.ground.root / "other"
    shutil.copytree(world.ground.source, other)
    _remove(world.ground.source)
    world.ground.add_files(2, 2)
    one = world.job.but(options={"application": "one"})
    source = {"kind": "files", "dir": str(other)}
    two = world.job.but(options={"application": "two"}, checkpoint=world.job.checkpoint + "-2", source=source)
    for query in [start(world.spark, job, lambda event: None) for job in (one, two)]:
        query.awaitTermination()
    world.sees(4)


def s4_checkpoint_from_an_older_copy(world: World):
    world.ground.add_files(0, 1)
    assert world.run().code == 0
    shutil.copytree(world.job.checkpoint, world.job.checkpoint + "-old")
    world.ground.add_files(1, 2)
    assert world.run().code == 0
    shutil.rmtree(world.job.checkpoint)
    shutil.move(world.job.checkpoint + "-old", world.job.checkpoint)
    world.ground.add_files(3, 1)
    assert world.run().code == 0
    world.sees(4)


def _gone_back(world: World) -> None:
    """What is known is that of two batches before, with its rows where they lie together."""
    world.ground.add_files(0, 1)
    assert world.run().code == 0
    put_back = world.copied()
    world.ground.add_files(1, 2)
    assert world.run().code == 0
    put_back()
    world.ground.add_files(3, 1)


def s6_rolled_back(world: World):
    """The query stops; in the sink of Flink's form only the notes went back."""
    _gone_back(world)
    world.refuses("table.rolled-back") if world.job.shown != "files" else _refused_with_files(world)


def _refused_with_files(world: World) -> None:
    """Files without manifests are there for who lists the directory; nothing is added."""
    outcome = world.run()
    assert outcome.kind == "table.rolled-back" and "Nothing was written" in outcome.message
    assert world.run(world.job.but(options={"on_rollback": "republish"})).code == 0
    world.sees(4)


def s6_rolled_back_and_published_again(world: World):
    """With on_rollback='republish', set before."""
    if not world.republishes:
        world.ground.add_files(0, 1)
        outcome = world.run(world.job.but(options={"on_rollback": "republish"}))
        assert outcome.kind == "option.on-rollback", outcome
        return
    world.job = world.job.but(options={"on_rollback": "republish"})
    _gone_back(world)
    assert world.run().code == 0
    world.sees(4)


def s7_dropped_and_made_anew(world: World):
    world.three_batches()
    world.drop()
    world.ground.add_files(3, 1)
    world.refuses(world.place.dropped)


def s8_what_is_known_is_removed(world: World):
    world.three_batches()
    world.lose_known()
    world.ground.add_files(3, 1)
    assert world.run().kind == world.place.unknown


def s10_a_paused_driver_wakes_up(world: World):
    world.ground.add_files(0, 5)
    with Driver(world.ground, world.job, fault="precommit.before_record@2:stop") as zombie:
        zombie.wait_stopped()
        assert world.run().code == 0
        world.sees(5)
        zombie.signal(signal.SIGCONT)
        assert zombie.wait().error == "Fenced"
    world.sees(5)


def s13_killed(world: World):
    for number, step in enumerate(("precommit.before_record", "precommit.saved", "commit.marked")):
        world.ground.add_files(2 * number, 2)
        assert run_driver(world.ground, world.job, fault=f"{step}@2:kill").code == -signal.SIGKILL
    world.ground.add_files(6, 1)
    assert world.run().code == 0
    world.sees(7)


def s14_called_twice_in_a_batch(world: World):
    world.ground.add_files(0, 1)
    kinds = []

    def calls(frame_of_batch, batch_id):
        try:
            sink(frame_of_batch.where("id % 2 = 0"), batch_id)
            sink(frame_of_batch.where("id % 2 = 1"), batch_id)
        except StreamsinkError as refused:
            kinds.append(refused.kind)
            raise

    sink = world.sink()
    writer = frame(world.spark, world.job).writeStream.foreachBatch(calls).trigger(availableNow=True)
    with pytest.raises(Exception, match="batch.twice|batch 0"):
        writer.option("checkpointLocation", world.job.checkpoint).start().awaitTermination()
    assert kinds == ["batch.twice"]
    assert sorted(world.seen()) == [row for row in sorted(ids_of(0, 1)) if row % 2 == 0]


def s16_another_query_under_the_name(world: World):
    world.job = world.job.but(where="id % 3 = 0")
    world.ground.add_files(0, 3)
    assert world.run().code == 0
    shutil.rmtree(world.job.checkpoint)
    world.refuses("query.other", world.job.but(where="id % 3 = 1"))


def s20_a_second_job_with_a_copy_of_the_checkpoint(world: World):
    world.job = world.job.but(where="id % 3 = 0")
    world.ground.add_files(0, 2)
    assert world.run().code == 0
    copy = world.job.checkpoint + "-copy"
    shutil.copytree(world.job.checkpoint, copy)
    world.ground.add_files(2, 1)
    assert world.run().code == 0
    world.refuses("checkpoint.copied", world.job.but(where="id % 3 = 1", checkpoint=copy))


def s21_renamed_while_a_batch_is_repeated(world: World):
    world.three_batches()
    forget_commit(world.job.checkpoint, 2)
    outcome = world.refuses("application.renamed", world.job.but(options={"application": "other"}))
    assert "Set application='streamsink'" in outcome.message
    assert world.run().code == 0
    world.sees(3)


ACCIDENTS = {name: does for name, does in list(globals().items()) if name.startswith("s") and name[1].isdigit()}
# A driver of its own takes long.
OF_DRIVERS = ("s10_a_paused_driver_wakes_up", "s13_killed")


def cases(kinds: Iterable[str]) -> Iterator:
    """Each accident on each of these destinations; one of each is in the gate."""
    for kind in kinds:
        turn = pytest.mark.in_turn(f"accidents of a destination: {kind}", 1)
        for name in ACCIDENTS:
            yield pytest.param(kind, name, marks=pytest.mark.soak if name in OF_DRIVERS else turn)


@pytest.mark.slow
@pytest.mark.parametrize("kind, accident", list(cases(PLACES)))
def test_an_accident_of_another_destination(spark, ground, kind, accident):
    """Each row is there once, or the query stops with the error that docs/ACCIDENTS.md states."""
    ACCIDENTS[accident](World(spark, ground, PLACES[kind]))
