"""The accidents S14, S16 to S18 and S20 to S22, each on files; kafka.py has S15.
A situation returns in words what is in the table."""

import itertools
import shutil
from collections import Counter
from collections.abc import Callable

from pyspark.sql import functions

import streamsink
from benchmarks.accidents.ground import ROWS, Ground, ids_of
from benchmarks.accidents.sinks import REJECTED

NO_CALL = "n/a"
# The last two are names of folders for a null.
VALUES = {
    "300 bytes": "x" * 300,
    "'..'": "..",
    "'a/b'": "a/b",
    "the empty string": "",
    "a null character": "a\0b",
    **{name: name for name in ("__HIVE_DEFAULT_PARTITION__", "__DEFAULT_PARTITION__")},
}


def called_twice(ground: Ground) -> str:
    """S14: two filters of one batch are handed to the sink one after the other."""
    put = ground.sink.put
    if put is None:
        return NO_CALL
    expected = ground.add_ids(0, 2)
    write = put(ground.root)

    def both(batch, number):
        write(batch.where("id % 2 = 0"), number)
        write(batch.where("id % 2 = 1"), number)

    ground.run_function(both)
    return ground.outcome(expected)


def constant_id(ground: Ground) -> str:
    """S14: the function passes 0 instead of Spark's batch id."""
    put = ground.sink.put
    if put is None:
        return NO_CALL
    expected = ground.add_ids(0, 3)
    write = put(ground.root)
    ground.run_function(lambda batch, number: write(batch, 0))
    return ground.outcome(expected)


def restarting_id(ground: Ground) -> str:
    """S14: the function counts its calls itself, and begins again with each start of the program."""
    put = ground.sink.put
    if put is None:
        return NO_CALL
    expected = []
    for start in range(2):
        expected += ground.add_ids(2 * start, 2)
        count, write = itertools.count(), put(ground.root)
        ground.run_function(lambda batch, number: write(batch, next(count)))
    return ground.outcome(expected)


def another_filter(ground: Ground) -> str:
    """S16: a second job of that name reads the same files and wants other rows of them."""
    ids = ground.add_ids(0, 3)
    ground.run(ground.files().where("id % 3 = 0"))
    ground.lose_checkpoint()
    ground.run(ground.files().where("id % 3 = 1"))
    return ground.outcome(i for i in ids if i % 3 < 2)


def no_filter_any_more(ground: Ground) -> str:
    """S16: a new version of the job, without its filter."""
    ids = ground.add_ids(0, 3)
    ground.run(ground.files().where("id % 3 = 0"))
    ground.lose_checkpoint()
    ground.run(ground.files())
    return ground.outcome(ids)


def _dedup(ground: Ground, per_batch: int = 1):
    return ground.files(per_batch).dropDuplicates(["id"])


def state_lost(ground: Ground) -> str:
    """S17: deduplication; the checkpoint is deleted, and a new one reads all files again in one batch."""
    ids = ground.add_ids(0, 3)
    ground.run(_dedup(ground))
    ground.lose_checkpoint()
    ids += ground.add_ids(3, 1)
    ground.run(_dedup(ground, 100))
    return ground.outcome(ids)


def state_lost_with_files(ground: Ground) -> str:
    """S17: the same, but the files that were read are gone; the new one repeats five old ids, which the state knew."""
    ids = ground.add_ids(0, 3)
    ground.run(_dedup(ground))
    ground.lose_checkpoint()
    ground.forget_files()
    ground.add(3, ({"id": i} for i in [*ids[:5], *ids_of(3, 1)]))
    ground.run(_dedup(ground))
    return ground.outcome(ids + ids_of(3, 1))


def state_replayed(ground: Ground) -> str:
    """S17: deduplication;
    the driver is killed after the table was written and before Spark's commit log, as any driver may be."""
    ids = ground.add_ids(0, 2)
    ground.run(_dedup(ground))
    for name in ("1", ".1.crc"):
        (ground.checkpoint / "commits" / name).unlink()
    for number in (2, 3):
        ids += ground.add_ids(number, 1)
        ground.run(_dedup(ground))
    return ground.outcome(ids)


def state_restored(ground: Ground) -> str:
    """S17: deduplication;
    the checkpoint is taken back to an older copy, and the files since then come in one batch with a new one."""
    ids = ground.add_ids(0, 1)
    ground.run(_dedup(ground))
    copy = ground.root / "copy"
    shutil.copytree(ground.checkpoint, copy)
    ids += ground.add_ids(1, 2)
    ground.run(_dedup(ground))
    ground.lose_checkpoint()
    copy.rename(ground.checkpoint)
    ids += ground.add_ids(3, 1)
    ground.run(_dedup(ground, 100))
    return ground.outcome(ids)


def window_half_counted(ground: Ground) -> str:
    """S17: hourly counts; the checkpoint is deleted and the read files are gone while an hour is open.
    The result is in counted rows."""
    ground.schema, ground.columns = "id BIGINT, at TIMESTAMP", ("hour", "counted")
    # file 0: six rows of hour 0, four of hour 1; file 1: four of hour 1, six of hour 2, which closes hour 1
    for number, first in ((0, 6), (1, 4)):
        hours = [number] * first + [number + 1] * (ROWS - first)
        rows = [{"id": number * ROWS + i, "at": f"2024-05-01T{hour:02}:{i:02}:00Z"} for i, hour in enumerate(hours)]
        ground.add(number, rows)
        counts = ground.files().withWatermark("at", "0 seconds").groupBy(functions.window("at", "1 hour")).count()
        ground.run(counts.selectExpr("hour(window.start) AS hour", "count AS counted"))
        if number == 0:
            ground.lose_checkpoint()
            ground.forget_files()
    found: Counter = Counter()
    for (hour, counted), times in ground.rows().items():
        found[(hour,)] += counted * times
    return ground.outcome(Counter({(0,): 6, (1,): 8}).elements(), found)


def odd_partition(value: str) -> Callable[[Ground], str]:
    """S18: one file's rows belong to a partition of that name; a good file comes before it, and one after it."""

    def situation(ground: Ground) -> str:
        ground.schema, ground.columns, ground.keys = "id BIGINT, p STRING", ("id", "p"), ("p",)
        expected = []
        for number, p in enumerate(("good", value, "good")):
            rows = [{"id": i, "p": p} for i in ids_of(number, 1)]
            ground.add(number, rows)
            expected += [(row["id"], p) for row in rows]
            ground.run(ground.files())
        found = ground.rows()
        changed = [row for row in found if row[1] not in ("good", value)]
        if changed and {(i, value) for i, _ in changed} <= set(expected):
            return f"the value became {changed[0][1]!r}"
        if (ground.root / REJECTED).exists():
            aside = streamsink.read(ground.spark, str(ground.root / REJECTED)).count()
            return f"{aside} dead letters, else {ground.outcome(row for row in expected if row[1] == 'good')}"
        return ground.outcome(expected)

    return situation


def copied_checkpoint(ground: Ground) -> str:
    """S20: a second job, for other rows, is started from a copy of the first job's checkpoint;
    the first one has gone on meanwhile."""
    ids = ground.add_ids(0, 2)
    ground.run(ground.files().where("id % 3 = 0"))
    shutil.copytree(ground.checkpoint, ground.root / "copy")
    fresh = ground.add_ids(2, 1)
    ground.run(ground.files().where("id % 3 = 0"))
    ground.folder = "copy"
    ground.run(ground.files().where("id % 3 = 1"))
    return ground.outcome([i for i in [*ids, *fresh] if i % 3 == 0] + [i for i in fresh if i % 3 == 1])


def renamed(ground: Ground) -> str:
    """S21: the driver is killed before Spark's commit log and started again under another name of the application."""
    put = ground.sink.put
    if put is None:
        return NO_CALL
    expected = ground.add_ids(0, 2)
    ground.run_function(put(ground.root))
    for name in ("1", ".1.crc"):
        (ground.checkpoint / "commits" / name).unlink()
    expected += ground.add_ids(2, 1)
    ground.run_function(put(ground.root, "shop"))
    return ground.outcome(expected)


def one_run_id(ground: Ground) -> str:
    """S22: two bounded jobs write one table under one run id, as two nightly jobs do that both use the date."""
    run = ground.sink.run
    if run is None:
        return NO_CALL
    for first, rows in ((0, 10), (10, 20)):
        ground.once(lambda first=first, rows=rows: run(ground.root, ground.spark.range(first, first + rows), 20261121))
    return ground.outcome(range(30))


SITUATIONS = {
    "S14 called twice in a batch": called_twice,
    "S14 always the id 0": constant_id,
    "S14 an id that restarts": restarting_id,
    "S16 a second job with another filter": another_filter,
    "S16 a new version without its filter": no_filter_any_more,
    "S17 dedup, checkpoint deleted": state_lost,
    "S17 dedup, checkpoint deleted, old files gone": state_lost_with_files,
    "S17 dedup, killed before Spark's commit log": state_replayed,
    "S17 dedup, checkpoint restored": state_restored,
    "S17 window, checkpoint deleted, old files gone": window_half_counted,
    **{f"S18 partition value: {name}": odd_partition(value) for name, value in VALUES.items()},
    "S20 a second job with a copy of the checkpoint": copied_checkpoint,
    "S21 renamed while a batch is repeated": renamed,
    "S22 one run id for two jobs": one_run_id,
}
