"""The world of a real walk: Spark drivers that die, a Kafka broker, a folder of files, and a table on the local disk.

It is the world of tests/walks with other parts. Sources are kept in memory as well, so that the model and the operator
can ask them.
"""

import itertools
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from streamsink.errors import StreamsinkError
from tests.e2e import kafka_data
from tests.e2e.walk_driver import Died, Drivers
from tests.walks.checkpoints import EARLIEST, Checkpoint, Planned, flat, nested
from tests.walks.machine import Fault
from tests.walks.model import Causes, Wrong
from tests.walks.queries import PARTS, SETTINGS, Job, Query, partitioned
from tests.walks.several import IN_A_ROW, TABLES, SeveralTables
from tests.walks.sources import Folder, Topic
from tests.walks.world import World

MOST_PARTS = 3


class SparkFailed(OSError):
    """An error in Spark's own words: who reads them starts the query again."""


# -- sources and checkpoints ----------------------------------------------------------------------------


class RealTopic(Topic):
    """A topic of a broker."""

    def __init__(self, bootstrap: str):
        self._bootstrap = bootstrap
        self._name = kafka_data.new_topic(bootstrap, 1)
        super().__init__(_no_id, (self._name,))

    def order(self, given: dict | None) -> dict:
        """What Spark is told of it. given: startingOffsets, of the partitions that there were then."""
        starting = "earliest"
        if given is not None:
            offsets = flat(given)
            starting = json.dumps(nested({name: offsets.get(name, EARLIEST) for name in self.parts}))
        options = {
            "kafka.bootstrap.servers": self._bootstrap,
            "subscribe": self._name,
            "startingOffsets": starting,
            "failOnDataLoss": "false",
            "kafkaConsumer.pollTimeoutMs": "10000",
        }
        return {"kind": "kafka", "options": options}

    def add_partition(self, number=0):
        super().add_partition()
        kafka_data.add_partitions(self._bootstrap, self._name, len(self.parts))

    def recreate(self, number, new_id, elsewhere):
        """The new topic is in this cluster, because there is only one."""
        before = super().recreate(number, _no_id, False)
        kafka_data.recreate(self._bootstrap, self._name, len(self.parts))
        return before

    def produce(self, ids, where):
        lengths = {name: len(rows) for name, rows in self.parts.items()}
        super().produce(ids, where)
        new = [(row, _number_of(name)) for name, rows in self.parts.items() for row in rows[lengths[name] :]]
        kafka_data.send_to(self._bootstrap, self._name, new)

    def expire(self, keep):
        gone = super().expire(keep)
        kafka_data.delete_before(
            self._bootstrap, self._name, {_number_of(name): first for name, first in self.earliest.items()}
        )
        return gone

    def planned(self, offsets: list[dict], folder: Path) -> list[Planned]:
        return [Planned(flat(offset)) for offset in offsets]

    def started(self, folder: Path, given: dict | None) -> dict:
        """Where the first batch begins, as Spark has written it down or will."""
        path = folder / "sources" / "0" / "0"
        if not path.exists():
            return self.begin(given)
        return flat(json.loads(re.search(r"\{.*", path.read_text(), re.DOTALL)[0]))


def _no_id() -> str:
    """Nothing: the broker knows the ids."""
    return ""


def _number_of(partition: str) -> int:
    return int(partition.split("/")[1])


class RealFolder(Folder):
    """A folder of JSON files."""

    def __init__(self, folder: Path):
        super().__init__(tells=True)
        self._in, self._aside = folder / "in", folder / "aside"
        for path in (self._in, self._aside):
            path.mkdir(parents=True)

    def order(self, given: dict | None) -> dict:
        return {"kind": "files", "dir": str(self._in)}

    def produce(self, ids, where):
        super().produce(ids, where)
        for name, rows in self.files.items():
            if not (self._in / name).exists() and name not in self.hidden:
                hidden = self._in / f".{name}"
                hidden.write_text("".join(json.dumps({"id": row}) + "\n" for row in rows))
                hidden.rename(self._in / name)

    def behind(self, is_done):
        given = super().behind(is_done)
        for path in [*self._in.iterdir(), *self._aside.iterdir()]:
            if path.name not in self.files:
                path.unlink()
        return given

    def set_aside(self, stays):
        is_more = super().set_aside(stays)
        for name in self.files:
            here, there = (self._in, self._aside) if name in self.hidden else (self._aside, self._in)
            if (here / name).exists():
                (here / name).rename(there / name)
        return is_more

    def put_back(self):
        super().put_back()
        for path in self._aside.iterdir():
            path.rename(self._in / path.name)

    def planned(self, offsets: list[dict], folder: Path) -> list[Planned]:
        """The files of a batch, from the source's own log, which says in which of its batches a file came."""
        came: dict[str, int] = {}
        logs = folder / "sources" / "0"
        for path in logs.iterdir() if logs.exists() else ():
            if re.fullmatch(r"\d+(\.compact)?", path.name):
                for line in path.read_text().splitlines()[1:]:
                    entry = json.loads(line)
                    came[os.path.basename(entry["path"])] = entry["batchId"]
        found, before = [], -1
        for offset in offsets:
            now = offset["logOffset"]
            found.append(Planned(now, tuple(name for name, batch in came.items() if before < batch <= now)))
            before = now
        return found

    def started(self, folder: Path, given: dict | None) -> dict:
        return {}


class RealCheckpoint(Checkpoint):
    """Spark's own logs. given: startingOffsets."""

    def __init__(self, source: RealTopic | RealFolder | None, folders, given: dict | None = None):
        """folders: returns a new folder at each call."""
        self._source, self._folders, self.given = source, folders, given
        self.folder: Path = folders()
        self.query = self.folder.name

    def copy(self) -> "RealCheckpoint":
        other = RealCheckpoint(self._source, self._folders, self.given)
        if self.folder.exists():
            shutil.copytree(self.folder, other.folder)
        return other

    @property
    def start(self) -> dict:
        return self._source.started(self.folder, self.given)

    @property
    def is_begun(self) -> bool:
        return (self.folder / "sources" / "0" / "0").exists()

    def begin(self, start) -> None:
        """Nothing to do: Spark does it."""

    @property
    def committed(self) -> int:
        return max(self._numbers("commits"), default=-1) + 1

    @property
    def planned(self) -> list[Planned]:
        texts = [(self.folder / "offsets" / str(number)).read_text() for number in self._numbers("offsets")]
        return self._source.planned([json.loads(text.splitlines()[2]) for text in texts], self.folder)

    def truncate(self, batch_id: int) -> None:
        for log in ("offsets", "commits"):
            for number in self._numbers(log):
                if number >= batch_id:
                    (self.folder / log / str(number)).unlink()
                    (self.folder / log / f".{number}.crc").unlink(missing_ok=True)

    def _numbers(self, log: str) -> list[int]:
        path = self.folder / log
        return sorted(int(name.name) for name in path.iterdir() if name.name.isdecimal()) if path.exists() else []


# -- the world -----------------------------------------------------------------------------------------------------


@dataclass
class Start:
    """One start of a query or of a bounded run. more: options of the run.
    slept: as a run of the walks in memory says it; none does here."""

    world: "RealWorld"
    query: Query
    run_id: str = ""
    more: dict = field(default_factory=dict)
    slept: bool = False

    def stream(self, most: int, how: str, batches: int, fault: Fault | None, kill_after_ms: int | None) -> None:
        checkpoint = self.query.checkpoint
        self._order(
            {
                "do": "stream",
                "checkpoint": str(checkpoint.folder),
                "source": self.query.source.order(checkpoint.given),
                "per_batch": most,
                "how": how,
                "batches": batches,
                "version": self.query.version,
            },
            fault,
            kill_after_ms,
        )

    def job(self, job: Job) -> None:
        folder = self._input_of(job)
        self._order(
            {"do": "write", "run_id": job.name, "dir": str(folder), "version": job.version},
            self.world.fault_of_job,
            None,
        )

    def _input_of(self, job: Job) -> Path:
        """The input folder of this run id. There is one for each, whose file is replaced where other rows come under
        the id, or the same ones are made anew."""
        folder = self.world.folder / "runs" / job.name
        file = folder / f"{job.files}-{job.rows[0] if job.rows else 'none'}.json"
        if not file.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            file.write_text("".join(json.dumps({"id": row}) + "\n" for row in job.rows))
        return folder

    def _order(self, order: dict, fault: Fault | None, kill_after_ms: int | None) -> None:
        """Give the driver the order. Raises Died, or what stopped it."""
        options = {**SETTINGS, "flush": False, "application": self.query.name, **self.query.options, **self.more}
        options.pop("delay", None)  # Only the clock of a walk in memory knows it.
        parts = " ".join(f"WHEN {n} THEN '{PARTS[n]}'" for n in range(self.world.parts) if PARTS[n] is not None)
        order |= self.world.target() | {
            "options": options,
            "part": f"CASE id % {self.world.parts} {parts} END",
            "fault": [fault.step, fault.occurrence] if fault else None,
        }
        answer = self.world.drivers.order(order, kill_after_ms)
        if answer["said"] is None:
            return
        if answer["kind"]:
            raise StreamsinkError(answer["said"], kind=answer["kind"])
        if (
            "Traceback (most recent call last)" in answer["said"]
            or "Py" not in answer["error"]
            and "Streaming" not in answer["error"]
        ):
            raise Wrong(f"raw {answer['error']}", answer["said"])
        raise SparkFailed(answer["said"])


@dataclass
class RealWorld(World):
    """failures: what Spark itself said, and nobody ordered."""

    drivers: Drivers | None = None
    bootstrap: str = ""
    folder: Path | None = None
    fault_of_job: Fault | None = None
    failures: list[str] = field(default_factory=list)
    schema: pa.Schema = pa.schema([("id", pa.int64()), ("part", pa.string())])
    _number: Iterator[int] = field(default_factory=itertools.count)

    def add_query(self, name, source, **options):
        self.queries[name] = Query(name, source, options, RealCheckpoint(source, self._new_folder), Causes())

    def target(self) -> dict:
        """What a driver is told about where it writes."""
        return {"table": self.root}

    def checkpoint_of(self, query, given):
        return RealCheckpoint(query.source, self._new_folder, given)

    def put_checkpoint(self, query, checkpoint):
        """The checkpoint has a folder of its own."""
        super().put_checkpoint(query, checkpoint)
        self.accident("moved-ever", query=query)

    def move(self, query):
        to = self._new_folder()
        if query.checkpoint.folder.exists():
            query.checkpoint.folder.rename(to)
        query.checkpoint.folder = to

    def _new_folder(self) -> Path:
        return self.folder / f"checkpoint-{next(self._number)}"

    def batch(self, query, most, fault=None, how="error", batches=1000, kill_after_ms=None) -> bool:
        """Write batches by a new run, until nothing is left or as many are done.
        Returns whether all was well and one was written or taken for done."""
        checkpoint = query.checkpoint
        before = checkpoint.committed
        if len(checkpoint.planned) == before and query.source.plan(checkpoint, most) is None:
            return False
        self.serial += 1
        why, is_dead, is_unknown = None, False, self._adopts_another_topic(query)
        try:
            Start(self, query).stream(most, how, batches, fault, kill_after_ms)
        except Died:
            is_dead = True
        except (StreamsinkError, SparkFailed) as stopped:
            why = stopped
        self._begins(query, checkpoint, before, is_unknown)
        has_moved = checkpoint.committed > before
        if has_moved:
            query.said, query.afterwards = None, ""
            query.causes.settled()
            query.source.put_back()
            query.topic_id = query.source.topic_id
        self.may_have_written(query)
        if why is not None:
            self._refused(query, why)
        return has_moved and not is_dead and why is None

    def start_job(self, query, job):
        return Start(self, query, job.name, job.options)

    def job(self, job: Job, fault: Fault | None = None) -> bool:
        self.fault_of_job = fault
        return super().job(job, fault)

    def attempt(self, query, work, fault, start=None):
        """Try a bounded run. Returns the run, or None when it died or stopped."""
        self.serial += 1
        run = start()
        try:
            work(run)
        except Died:
            return None
        except (StreamsinkError, SparkFailed) as stopped:
            self._refused(query, stopped)
            return None
        return run

    def _refused(self, query: Query, why: Exception) -> None:
        """An error must have a cause."""
        if isinstance(why, StreamsinkError):
            query.causes.check(why.kind, str(why))
        else:
            self.failures.append(str(why))
        query.said, query.said_at = why, self.serial

    def close(self, query, run):
        """Nothing to do: every start of a query has an end of its own."""
        return True

    def stop(self, query):
        """Nothing to do, as in ``close``."""
        return True

    def kill(self, query):
        """Nothing to do, as in ``close``."""


@dataclass
class RealSeveral(SeveralTables, RealWorld):
    """The tables below one folder."""

    schema: pa.Schema = RealWorld.schema

    def target(self):
        routes = ", ".join(f"'{table}'" for table in TABLES)
        return {
            "table": self.root,
            "tables": {table: {"partition_by": partitioned(self.parts)} for table in TABLES},
            "route": f"element_at(array({routes}), CAST(id DIV {IN_A_ROW} % {len(TABLES)} AS INT) + 1)",
        }
