"""One query for tests of publishing, whose batches are given one by one."""

from streamsink import events
from streamsink.clock import IdSource
from streamsink.protocol.run.publish_thread import PublishThread
from streamsink.storage.file_io import FileIO
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.driver import SparkCheckpoint
from streamsink.testing.stepping import Stepping

QUERY = "00000000-0000-0000-0000-000000000001"
WAIT_S = 200


class Query:
    """One start of a query, whose batches are given one by one. background: None for a real thread."""

    def __init__(self, world, background="steps", delay=None):
        calls = CrashingCalls(world.calls)
        world.driver.background = (lambda step: Stepping(step, calls, delay)) if background else PublishThread
        self.world = world
        self.sink = world.driver.start(FileIO(calls, IdSource().new_id), SparkCheckpoint(QUERY))
        self.ends = []

    def batch(self, end):
        self.ends.append(end)
        self.again(len(self.ends) - 1)

    def again(self, batch_id):
        self.sink.batch(self._described(batch_id))

    def admit(self, batch_id):
        return self.sink.protocol.admit(self._described(batch_id))

    def _described(self, batch_id):
        return self.world.driver.describe(SparkCheckpoint(QUERY, list(self.ends)), batch_id)


def snapshots(world):
    table = open_table(FileIO(world.calls, IdSource().new_id), world.driver.root, for_writing=False)
    return [table.snapshots.load(number) for number in table.snapshots.ids()]


def published(world):
    return [e for e in world.driver.events if isinstance(e, events.CheckpointPublished)]
