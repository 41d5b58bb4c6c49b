"""A driver without Spark that serves its metrics until it is killed: ``python -m tests.metrics.killed ADDRESS FOLDER``.

What Spark keeps of a query lies beside the table, as in a checkpoint: a batch is planned before it runs.
"""

import json
import sys
import time
from pathlib import Path

from streamsink.clock import IdSource
from streamsink.metrics import Listeners, Metrics, serve, to_log
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO
from streamsink.testing.driver import SparkCheckpoint
from tests.crash.world import World
from tests.metrics.chaos import Heard, Watched

PAUSE_S = 0.1


def main(address: str, folder: str) -> None:
    """Run batches until somebody kills this process."""
    plans = Path(folder, "plans.json")
    ends = json.loads(plans.read_text()) if plans.exists() else []
    metrics = Metrics()
    serve(metrics, address)
    world = World(PosixCalls(), f"{folder}/killed", flush=False, restore="restore-and-continue")
    world.driver.events = Heard(Listeners(to_log, metrics))
    checkpoint = SparkCheckpoint(world.checkpoint.query, ends, max(len(ends) - 1, 0))
    sink = world.driver.start(FileIO(PosixCalls(), IdSource().new_id), checkpoint)
    query = Watched(world, sink=sink, ends=ends)
    if ends:
        query.again(len(ends) - 1)
    while True:
        ends.append((ends[-1] if ends else 0) + 3)
        plans.with_suffix(".tmp").write_text(json.dumps(ends))
        plans.with_suffix(".tmp").rename(plans)
        query.again(len(ends) - 1)
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
