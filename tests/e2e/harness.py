"""Accidents to order: input files, drivers that are killed or paused, and the oracle that counts rows without Spark."""

import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import streamsink
from streamsink.errors import StreamsinkError
from streamsink.events import Event
from streamsink.testing.faults import VARIABLE
from tests.conftest import checkpoints_without_processes
from tests.e2e.job import ROWS_PER_FILE, Job, supervised
from tests.services.forking import Forked

ROOT = Path(__file__).resolve().parent.parent.parent
WAIT_S = 200
LOOK_S = 0.02
# What a start leaves although it wrote nothing: files that say who holds the application, never data.
_OWNERSHIP = re.compile(r"streamsink/[^/]+/(owner-\d+|hold|journal-\d+)")


@dataclass
class Outcome:
    """How a run ended. events: (name, fields). code: exit code, negative for a signal."""

    code: int
    events: list[tuple[str, dict]] = field(default_factory=list, repr=False)
    error: str | None = None
    kind: str | None = None
    message: str = ""
    rows_read: int | None = None

    def of(self, name: str) -> list[dict]:
        return [fields for event, fields in self.events if event == name]


@dataclass(frozen=True)
class Ground:
    """The place where one test happens."""

    root: Path

    @property
    def table(self) -> str:
        return str(self.root / "lake" / "orders")

    @property
    def checkpoint(self) -> str:
        return str(self.root / "checkpoint")

    @property
    def source(self) -> Path:
        return self.root / "in"

    def job(self, **changes) -> Job:
        job = Job(self.table, self.checkpoint, {"kind": "files", "dir": str(self.source)}, options={"flush": False})
        return job.but(**changes)

    def add_files(self, first: int, count: int) -> set[int]:
        """Add ``count`` files of ten rows each from number ``first`` on, in this order. Returns their ids."""
        self.source.mkdir(parents=True, exist_ok=True)
        for number in range(first, first + count):
            ids = range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)
            text = "".join(json.dumps({"id": i, "name": f"n{i}"}) + "\n" for i in ids)
            hidden = self.source / f".{number:05}.json"
            hidden.write_text(text)
            os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
            hidden.rename(self.source / f"{number:05}.json")
        return ids_of(first, count)


def ids_of(first: int, count: int) -> set[int]:
    return set(range(first * ROWS_PER_FILE, (first + count) * ROWS_PER_FILE))


def forget_commit(checkpoint: str, batch_id: int) -> None:
    """Let Spark's commit log forget a batch,
    as if the driver had died after the batch function returned and before Spark wrote it."""
    for name in (str(batch_id), f".{batch_id}.crc"):
        Path(checkpoint, "commits", name).unlink(missing_ok=True)


# -- running -------------------------------------------------------------------------------------------------------


def run_here(spark, job: Job) -> Outcome:
    """Run the query in the test's own Spark session, to its end."""
    outcome = Outcome(0)

    def listen(event: Event) -> None:
        outcome.events.append((type(event).__name__, dict(vars(event))))

    try:
        outcome.rows_read = supervised(spark, job, listen)
    except StreamsinkError as failed:
        outcome.code, outcome.error, outcome.kind, outcome.message = 1, type(failed).__name__, failed.kind, str(failed)
    return outcome


class Driver:
    """A driver in a process group of its own. As a context manager it is ended on exit."""

    def __init__(self, ground: Ground, job: Job, fault: str | None = None, env: dict | None = None):
        number = len(list(ground.root.glob("driver-*.json")))
        self.output = ground.root / f"driver-{number}.out"
        self.log = ground.root / f"driver-{number}.err"
        config = job.save(ground.root / f"driver-{number}.json")
        scratch = ground.root / "spark"
        scratch.mkdir(exist_ok=True)
        environment = dict(os.environ) | {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_DIRS": str(scratch)} | (env or {})
        environment.pop(VARIABLE, None)
        if fault:
            environment[VARIABLE] = fault
        with open(self.output, "wb") as out, open(self.log, "wb") as err:
            self.process = Forked(
                "tests.e2e.driver",
                config,
                env=environment,
                session=True,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def __enter__(self) -> "Driver":
        return self

    def __exit__(self, *_) -> None:
        self.kill()

    def signal(self, number: int) -> None:
        """Send a signal to Python and to the JVM, as a container or a machine would stop, go on or end."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait(WAIT_S)

    def lines(self) -> list[dict]:
        text = self.output.read_text()
        return [json.loads(line) for line in text.split("\n")[: text.count("\n")] if line.startswith("{")]

    def wait(self) -> Outcome:
        """Wait for the end of the driver, by itself or by its fault. What it leaves running (its JVM) is ended too."""
        code = self.process.wait(WAIT_S)
        self.kill()
        return self.outcome(code)

    def wait_for(self, event: str, times: int = 1) -> None:
        """Wait until it has printed this event so often."""
        until(lambda: sum(line.get("event") == event for line in self.lines()) >= times, self._still_there)

    def wait_stopped(self) -> None:
        """Wait until its fault has paused Python; then pause the whole driver."""
        until(lambda: _state(self.process.pid) == "T", self._still_there)
        self.signal(signal.SIGSTOP)

    def outcome(self, code: int) -> Outcome:
        outcome = Outcome(code)
        for line in self.lines():
            if "event" in line:
                outcome.events.append((line.pop("event"), line))
            elif "error" in line:
                outcome.error, outcome.kind, outcome.message = line["error"], line["kind"], line["message"]
            elif "done" in line:
                outcome.rows_read = line["done"]
        if code == 1 and outcome.error is None:
            raise AssertionError(f"the driver broke: {self.log.read_text()[-3000:]}")
        return outcome

    def _still_there(self) -> None:
        if self.process.poll() is not None:
            raise AssertionError(
                f"the driver ended ({self.process.returncode}): {self.lines()[-2:]} {self.log.read_text()[-2000:]}"
            )


def run_driver(ground: Ground, job: Job, fault: str | None = None, env: dict | None = None) -> Outcome:
    """Run a driver of its own, to its end: by itself, or by a fault.

    A fault is in a step of ours, while Spark waits for our function and writes nothing: so its checkpoint needs none of
    the thirty processes a batch by which Spark's default renames. Where a thread publishes beside, a fault of it may
    meet Spark anywhere, and so does a signal to a ``Driver``: these keep the default.
    """
    if job.options.get("publish") != "async":
        job = job.but(conf={**checkpoints_without_processes(), **job.conf})
    with Driver(ground, job, fault, env) as driver:
        return driver.wait()


def until(true, check=lambda: None, wait_s: float = WAIT_S) -> None:
    """Look again and again until it is true; fail after ``wait_s``."""
    end = time.monotonic() + wait_s
    while not true():
        check()
        if time.monotonic() > end:
            raise AssertionError(f"waited {wait_s} s in vain")
        time.sleep(LOOK_S)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""  # it has ended


# -- the oracle ----------------------------------------------------------------------------------------------------


def ids_in(table: str, snapshot_id: int | None = None) -> list[int]:
    """All ids that a reader sees, read without Spark."""
    return streamsink.read_arrow(table, snapshot_id).column("id").to_pylist()


def lost_and_doubled(found: Iterable[int], expected: set[int]) -> tuple[int, int]:
    counts = Counter(found)
    return len(expected - set(counts)), sum(n - 1 for n in counts.values()) + len(set(counts) - expected)


def assert_each_once(table: str, expected: set[int]) -> None:
    """Check count, sum and the exact set."""
    found = ids_in(table)
    assert lost_and_doubled(found, expected) == (0, 0), f"(lost, doubled) of {len(expected)} rows"
    assert (len(found), sum(found), set(found)) == (len(expected), sum(expected), expected)


def files_under(folder: str) -> dict[str, tuple[int, int, int]]:
    """Relative path -> (inode, mtime in ns, size) of every file."""
    found = {}
    for at, _, names in os.walk(folder):
        for name in names:
            status = os.stat(os.path.join(at, name))
            path = os.path.relpath(os.path.join(at, name), folder)
            found[path] = (status.st_ino, status.st_mtime_ns, status.st_size)
    return found


def content(table: str) -> dict[str, tuple[int, int, int]]:
    """Every file of the table except those that say who owns the application:
    what a refused start must leave as it was."""
    return {path: status for path, status in files_under(table).items() if not _OWNERSHIP.fullmatch(path)}


def assert_refused(outcome: Outcome, kind: str, table: str, *words: str) -> None:
    """Check the error: its class is for programs, and its text names the table and these words."""
    assert (outcome.error, outcome.kind) == ("Misuse", kind), outcome
    assert table in outcome.message
    for word in words:
        assert word in outcome.message, f"'{word}' is not in: {outcome.message}"


def accept_token(outcome: Outcome) -> str:
    """What both ways on repeat, as the error prints it: its token, and before it, where rows are to be written, answers
    that are in force.
    """
    new = re.search(r"accept_as_new='([^']+)'", outcome.message)
    seen = re.search(r"accept_as_seen='([^']+)'", outcome.message)
    assert new and seen and new[1].split()[-1] == seen[1], outcome.message
    return new[1]


def orphans(table: str) -> set[str]:
    """The paths of all files that neither a snapshot, nor a record of the journal, nor the format names as its own."""
    from streamsink.storage.file_io import local_file_io
    from streamsink.table.table import open_table

    opened = open_table(local_file_io(), table, for_writing=False)
    named = {"snapshot/LATEST", "snapshot/EARLIEST"}
    for snapshot_id in opened.snapshots.ids():
        snapshot = opened.snapshots.load(snapshot_id)
        metas = opened.manifests.base_of(snapshot) + opened.manifests.delta_of(snapshot)
        named |= {f"snapshot/snapshot-{snapshot_id}"}
        named |= {f"manifest/{name}" for name in (snapshot.base_manifest_list, snapshot.delta_manifest_list)}
        for name in {meta.file_name for meta in metas}:
            named |= {f"manifest/{name}"} | {
                f"bucket-0/{entry.file.file_name}" for entry in opened.manifests.read(name)
            }
    for path in files_under(table):
        if re.fullmatch(
            r"schema/schema-\d+|streamsink/[^/]+/(owner-\d+|journal-\d+|files-[\d-]+|hold|record-\d+\.json|done-\d+)",
            path,
        ):
            named.add(path)
        if re.fullmatch(r"streamsink/[^/]+/record-\d+\.json", path):
            named |= _pending_files(table, path)
    return {os.path.join(table, path) for path in files_under(table) if path not in named}


def _pending_files(table: str, record: str) -> set[str]:
    """Where the files of a record may be: staged, or under their final names."""
    body = json.loads(Path(table, record).read_text().split("\n")[1])
    files = body["files"] + ([body["payload"]["manifest"]] if body["payload"]["manifest"] else [])
    return {file[name] for file in files for name in ("staged", "final")}
