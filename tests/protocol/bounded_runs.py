"""Bounded runs of the in-memory world, as ``streamsink.write`` makes them."""

import dataclasses

from streamsink.errors import RestoredThenFailed
from streamsink.protocol.committable import Batch
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.testing.driver import SparkCheckpoint
from tests.protocol.history import io_of


def bounded(world, run_id: str, end: int) -> None:
    """One bounded run, as ``streamsink.write`` makes it."""
    for _ in range(2):
        sink = world.driver.start(io_of(world), SparkCheckpoint(run_id))
        try:
            sink.batch(job_of(world, run_id, end))
            return
        except RestoredThenFailed:
            continue
        finally:
            sink.close()


def job_of(world, run_id: str, end: int) -> Batch:
    described = world.driver.describe(SparkCheckpoint(run_id, [end]), 0)
    return dataclasses.replace(described, batch_id=END_OF_INPUT, run=run_id, sources=(), has_one_count=True)


def run_job(world, run_id: str, rows: tuple[int, int]) -> None:
    world.driver.job_rows = rows
    bounded(world, run_id, rows[1])


def word_in(refused) -> str:
    return str(refused.value).partition("accept_as_seen='")[2][:12]


def set_fingerprint(world, **parts) -> None:
    world.driver.fingerprint = dataclasses.replace(world.driver.fingerprint, **parts)


def forget_record(world, how: str) -> None:
    """Unless ``how`` is "last", another run's record becomes the last one.
    "snapshot": the journal is deleted as well, and its marks with it."""
    if how == "last":
        return
    run_job(world, "later", (20, 21))
    if how == "snapshot":
        io_of(world).delete_tree(f"{world.driver.root}/streamsink/batch")
