"""A real SIGKILL of a real Spark driver at named steps, on one table and one checkpoint: some in the gate, every one in
the soak.

Each test starts a driver on what the killed one before left behind, and kills it too: its restart is the next test's
driver, and the last one runs to the end in the session of the tests. So every kill costs one start. Among them is S13:
drivers are killed again and again in the middle of a batch, and each time the next start names what was left and
removes it.
"""

import os
import signal
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from streamsink.faults import STEPS
from tests.e2e import task_faults
from tests.e2e.harness import (
    Ground,
    Outcome,
    assert_each_once,
    ids_in,
    ids_of,
    lost_and_doubled,
    orphans,
    run_driver,
    run_here,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# Steps of a query into several tables are tried in test_many_tables.py, those of dead letters in
# crash/test_many_letters.py, and those of a fan-out in test_fan_out.py.
SINGLE = [step for step in STEPS if not step.startswith(("tables.", "letters.", "fan-out.", "iceberg."))]
# Only a start that finds a checkpoint pending reaches these: a kill here, just before, leaves one.
NEEDS = {"restore.before_publish": "precommit.saved"}
# A step at the start of a run is reached for the first time, a step in a batch for the second: one batch gets through
# before.
AT_START = ("table.", "restore.")
# These are reached when everything there was has been read, and the rest of the chain needs more than that.
AT_END = "group.stopping"
# A kill here leaves files that neither a snapshot nor a record names.
LEAVES_ORPHANS = {
    "task.file_opened",
    "task.file_closed",
    "task.end",
    "spark.written",
    "write.staged",
    "precommit.manifest_staged",
    "precommit.before_record",
    "commit.lists_written",
    "commit.before_publish",
}
# Each of these has just made durable what the next start decides by: the table, the owner, the record, the snapshot,
# the mark, and that the oldest record is gone.
DURABLE = ("table.created", "restore.claimed", "precommit.saved", "commit.published", "commit.marked", "forget.pruned")
# The gate tries two on which others depend, one of those, and one of all others, other ones for other code.
# ``tests/crash`` dies at each of them in every gate.
_ALWAYS = ("restore.before_publish", AT_END)
_SEED = int(os.environ.get("STREAMSINK_SEED", 0))
_OTHERS = [step for step in SINGLE if step not in (*_ALWAYS, *DURABLE)]
_TURN = (DURABLE[_SEED % len(DURABLE)], _OTHERS[_SEED % len(_OTHERS)])
IN_THE_GATE = [step for step in SINGLE if step in (*_ALWAYS, *_TURN)]
# Nothing is published before the run ends.
ALL_PENDING = {"publish_every_batches": 1000}


@dataclass
class Chain:
    """All kills on one table."""

    ground: Ground
    steps: list[str]
    files: int = 0
    kills: list[str] = field(default_factory=list)
    left: set[str] = field(default_factory=set)  # Orphan files that no start has removed yet.
    leaving: set[str] = field(default_factory=set)  # Steps that left some.

    def add_files(self, steps: list[str]) -> None:
        """As many as the kills at these steps need: each driver publishes at most two batches, and one is left for the
        last.
        """
        count = 2 * sum(not step.startswith(AT_START) for step in steps) + 1
        self.ground.add_files(self.files, count)
        self.files += count

    def kill_at(self, step: str) -> None:
        occurrence = 1 if step.startswith((*AT_START, AT_END)) else 2
        # Two records are the least that the journal may keep, so that each batch prunes one.
        job = self.ground.job(options={"journal_retain": 2}, max_restarts=3)
        if step.startswith("task."):
            # The kill is in the Python worker of a task, which kills its driver.
            job = job.but(options={"driver_max_rows": 0, "large_batches": "tasks"}, conf=task_faults.CONF)
            env = task_faults.environment(f"{step}:kill-driver:1", self.ground.root / "marks")
            outcome = run_driver(self.ground, job, env=env)
        else:
            if step in ("group.queued", AT_END):
                job = job.but(options=ALL_PENDING)
            if step.startswith("spark."):
                job = job.but(options={"driver_max_rows": 0, "large_batches": "spark"})
            outcome = run_driver(self.ground, job, fault=f"{step}@{occurrence}:kill")
        assert outcome.code == -signal.SIGKILL, f"a driver does not reach {step}: {outcome}"
        self.kills.append(step)
        self.check_what_was_left(outcome)
        if self.left:
            self.leaving.add(step)
        if step == AT_END:
            self.add_files(self.steps[self.steps.index(step) + 1 :])

    def kill_and_look(self, step: str) -> None:
        """The step is reached, the driver dies there, and what a reader then sees is a prefix of the source, each row
        once.
        """
        if step in NEEDS:
            self.kill_at(NEEDS[step])
        self.kill_at(step)
        if Path(self.ground.table, "schema", "schema-0").exists():
            found = ids_in(self.ground.table)
            assert len(found) == len(set(found)) and set(found) == ids_of(0, len(found) // 10)

    def end(self, spark) -> None:
        """The last start publishes the rest: the exact set of ids, none lost, none doubled; every orphan was named and
        removed.
        """
        outcome = run_here(spark, self.ground.job(options={"journal_retain": 2}))
        assert outcome.code == 0, outcome
        self.check_what_was_left(outcome)
        lost, doubled = lost_and_doubled(ids_in(self.ground.table), ids_of(0, self.files))
        print(
            f"RESULT kill-every-step: steps={len(self.steps)} kills={len(self.kills)} rows={self.files * 10} "
            f"lost={lost} doubled={doubled}"
        )
        assert_each_once(self.ground.table, ids_of(0, self.files))
        assert set(self.steps) <= set(self.kills)
        assert self.left == set() and LEAVES_ORPHANS & set(self.steps) <= self.leaving

    def check_what_was_left(self, outcome: Outcome) -> None:
        """A start that got beyond its restore has named every file that was left before, and none of them is there.

        Files that a record could yet come to name wait until its number is taken.
        """
        if outcome.of("Restored"):
            named = {path for event in outcome.of("Restored") for path in event["orphans_removed"]}
            waiting = {path for path in self.left if Path(path).exists() and self.is_waiting(path)}
            gone = {path for path in self.left if self.is_of_staging(path) and not Path(path).exists()}
            assert self.left <= named | waiting | gone, (
                f"left before {self.kills[-1]}: {self.left - named - waiting - gone}"
            )
            assert not any(Path(path).exists() for path in named)
        self.left = orphans(self.ground.table) if Path(self.ground.table, "schema", "schema-0").exists() else set()

    @staticmethod
    def is_of_staging(path: str) -> bool:
        return Path(path).parent.parent.name == "staging"

    def is_waiting(self, path: str) -> bool:
        """In a staging folder that is ready for its record, and there is no record of that number, or one that is still
        to be published.
        """
        folder = Path(path).parent
        number = folder.name.rpartition("-")[2]
        record, mark = (folder.parent.parent / name for name in (f"record-{number}.json", f"done-{number}"))
        return self.is_of_staging(path) and any(folder.glob("manifest-*")) and not (record.exists() and mark.exists())


def _chain(folder: Path, steps: list[str]) -> Chain:
    chain = Chain(Ground(folder), steps)
    chain.add_files([*steps[: steps.index(AT_END)], *NEEDS.values()])
    return chain


@pytest.fixture(scope="module")
def chain(tmp_path_factory, spark_settings) -> Chain:
    return _chain(tmp_path_factory.mktemp("chain"), IN_THE_GATE)


@pytest.mark.parametrize("step", IN_THE_GATE)
def test_a_driver_killed_at_this_step_loses_and_doubles_nothing(chain, step):
    """See ``Chain.kill_and_look``."""
    chain.kill_and_look(step)


def test_s13_after_all_kills_each_row_is_there_once_and_no_orphan_is_left(chain, spark):
    """See ``Chain.end``."""
    chain.end(spark)


@pytest.mark.soak
def test_drivers_killed_at_every_step_lose_and_double_nothing(tmp_path, spark):
    chain = _chain(tmp_path, SINGLE)
    for step in SINGLE:
        chain.kill_and_look(step)
    chain.end(spark)
