"""Tables with a long past, made in a second: the files of a small one, under snapshots that are made up."""

import json
import random
from dataclasses import replace
from pathlib import Path

from streamsink.format.snapshot import APPEND, COMPACT, OVERWRITE, Snapshot
from streamsink.storage.file_io import local_file_io
from streamsink.table.application_states import PREFIX
from streamsink.table.branching.rollback import PROPERTY
from streamsink.table.table import open_table
from streamsink.testing.driver import SparkCheckpoint
from tests.cli.lakes import driver

BEGIN_MS = 1_764_000_000_000
_MINUTE_MS = 60_000


def small(root: Path, batches: int = 3, **settings) -> Path:
    """A table that a query has written in so many batches of ten rows."""
    ends = [10 * (number + 1) for number in range(batches)]
    driver(root, **settings).run(local_file_io(False), SparkCheckpoint("q1"), ends)
    return root


def long_past(root: Path, snapshots: int, seed: int = 1) -> Path:
    """A table with so many snapshots: a query that is started again and again, a second one, compactions, a rollback,
    and another program. Its files are those of ``small``.
    """
    small(root)
    chance, table = random.Random(seed), open_table(local_file_io(False), str(root), for_writing=False)
    first = table.snapshots.latest()
    [(key, text)] = [each for each in first.properties.items() if each[0].startswith(PREFIX)]
    states = {key: json.loads(text), f"{PREFIX}clicks": json.loads(text) | {"query_id": "q2"}}
    now, total, epoch = BEGIN_MS, first.total_record_count, dict.fromkeys(states, 1)
    for number in range(1, snapshots + 1):
        now += int(_MINUTE_MS * chance.expovariate(1) * (20 if number % 997 == 0 else 1)) + 1
        made = _next(first, number, chance, states, epoch)
        if made.commit_kind == APPEND:
            total += made.delta_record_count
        made = replace(made, time_millis=now, total_record_count=total, watermark=now - chance.randrange(90_000))
        Path(table.layout.snapshot(number)).write_bytes(made.to_json())
    Path(table.layout.latest_hint).write_text(str(snapshots))
    return root


def _next(first: Snapshot, number: int, chance: random.Random, states: dict, epoch: dict) -> Snapshot:
    """The snapshot of this number, but for its time."""
    name = f"{PREFIX}clicks" if number % 4 == 0 and f"{PREFIX}clicks" in states else next(iter(states))
    properties = dict(first.properties)
    user, identifier, kind = f"streamsink-compact-{number}", 2**63 - 1, COMPACT
    rows = 0
    if number % 1201 == 0:
        user, kind, rows = "streamsink-rollback-1", OVERWRITE, -500
        properties[PROPERTY] = "{}"
    elif number % 641 == 0:
        return replace(
            first, id=number, commit_user="flink-job", commit_kind=OVERWRITE, delta_record_count=-20, properties=None
        )
    elif number % 9:
        state = states[name]
        epoch[name] += chance.random() < 0.004
        states[name] = state | {"sequence": state["sequence"] + 1, "checkpoint_id": number, "epoch": epoch[name]}
        user, identifier, kind = f"{name.removeprefix(PREFIX)}-{state['query_id']}", number, APPEND
        rows = int(chance.lognormvariate(7, 0.8))
    properties |= {each: json.dumps(state) for each, state in states.items()}
    return replace(
        first,
        id=number,
        commit_user=user,
        commit_identifier=identifier,
        commit_kind=kind,
        delta_record_count=rows,
        properties=properties,
        uuid=f"00000000-0000-4000-8000-{number:012}",
    )
