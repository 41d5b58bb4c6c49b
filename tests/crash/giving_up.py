"""What the tests of giving up share: pending records that can never be published, and the advice of the error,
followed.
"""

import contextlib
import dataclasses
import json
import os

import pytest

from streamsink.commands.give_up import give_up
from streamsink.commands.offsets import Wanted, offsets_of
from streamsink.errors import RestoredThenFailed, StreamsinkError
from streamsink.journal.record_format import decode_record
from streamsink.options import SinkOptions
from streamsink.testing.driver import SparkCheckpoint
from tests.advice.following import Advice
from tests.crash.world import World, die_at_step, memory_world

ENDS = (3, 6, 9, 12)
GROUPED = {"publish_every_batches": 9}
OTHER = "00000000-0000-0000-0000-000000000002"


def follow(world, told: StreamsinkError | Advice, **words: str):
    """Call what the message says, with the arguments that it says, and with words of a later one."""
    (path,), options = (told if isinstance(told, Advice) else Advice(told)).call("streamsink.give_up")
    assert path == (getattr(world, "root", None) or world.driver.root)
    return give_up(
        world.file_io(world.calls), path, SinkOptions.of(path, {**options, **words, "commit_min_wait_ms": 0})
    )


def refused(world, kind, boundaries=ENDS) -> StreamsinkError:
    with pytest.raises(StreamsinkError) as refused:
        world.run(boundaries=boundaries)
    assert refused.value.kind == kind, refused.value
    return refused.value


def record(world, sequence):
    path = f"{world.driver.root}/streamsink/streamsink/record-{sequence}.json"
    return decode_record(world.file_io(world.calls).read(path), path)


def clean(world, sequence, count=None) -> list[str]:
    """Another engine's orphan cleaning: files of the record that no snapshot names go, wherever they are."""
    io, root = world.file_io(world.calls), world.driver.root
    gone = []
    for file in record(world, sequence).files[:count]:
        for path in (f"{root}/{file.staged}", f"{root}/{file.final}"):
            if io.exists(path):
                gone.append(path)
                io.delete(path)
                io.sync_dir(os.path.dirname(path))
    assert gone
    return gone


def left(step, occurrence=1, ends=ENDS, **settings) -> World:
    world = memory_world(**settings)
    assert die_at_step(step, occurrence, world, boundaries=ends)
    return world


def recorded_end(world) -> int:
    """Where a new checkpoint begins, as ``startingOffsets``."""
    return json.loads(offsets_of(world.file_io(world.calls), world.driver.root, "streamsink", Wanted()))["t"]["0"]


def publish_what_is_left(world) -> None:
    """A start of the query that fails on purpose when it has published something."""
    with contextlib.suppress(RestoredThenFailed):
        world.driver.start(world.file_io(world.calls), world.checkpoint).close()


def run_from(world, start, ends) -> None:
    """A new checkpoint whose first batch begins at ``start``."""
    plain = world.driver.describe

    def describe(checkpoint, batch_id):
        shifted = SparkCheckpoint(checkpoint.query, [start, *checkpoint.ends])
        return dataclasses.replace(plain(shifted, batch_id + 1), batch_id=batch_id)

    world.driver.describe = describe
    try:
        world.run(boundaries=ends)
    finally:
        del world.driver.describe


def giving_up(world, path=None):
    return give_up(world.file_io(world.calls), path or world.driver.root, SinkOptions.of("t", {}))
