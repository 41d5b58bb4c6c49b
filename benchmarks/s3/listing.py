"""Our requests one by one: `make bench ARGS="--only s3-requests"`."""

import contextlib
from pathlib import Path

from benchmarks import data
from benchmarks.report import Table
from benchmarks.s3.account import Batch, beside, by_kind, round_trips, spans
from benchmarks.s3.ground import Ground, in_its_way
from benchmarks.s3.marked import thread_of, trip_of, trips
from benchmarks.s3.sinks import ASYNC, OURS, PREFIX

_DELAY_MS, _BATCHES = 20, 4


def requests(spark, folder: Path, sizes: data.Sizes) -> list[Table]:
    """Every request of two runs into a fresh table, batch by batch, of our sink in sync and in async."""
    tables = []
    with contextlib.ExitStack() as servers:
        ground = Ground(spark, folder / "s3-requests", servers)
        for number, sink in enumerate((OURS, ASYNC)):
            name, source = f"listed-{number}", folder / f"s3-requests-in-{number}"
            for at, run in enumerate(("first run", "second run")):
                data.add_json(source, at * _BATCHES, _BATCHES, sizes.batch_rows)
                batches = ground.run(sink, name, data.json_stream(spark, source), _DELAY_MS)
                tables += [_listed(batch, f"{sink}, {run}", f"{PREFIX}/{name}/shop.db/orders/") for batch in batches]
    return tables


def _listed(batch: Batch, what: str, root: str) -> Table:
    begun = batch.span[0]
    rows = [
        [
            str(number),
            f"{(request.start_s - begun) * 1000:.0f}",
            f"{(request.end_s - begun) * 1000:.0f}" if request.end_s else "-",
            request.kind,
            request.key.removeprefix(root) + ("" if request.kind != "LIST" else " (prefix)"),
            str(request.status),
            "if-none-match" if "if-none-match" in request.headers else "",
            f"{request.up_bytes:,}",
            f"{request.down_bytes:,}",
            f"{trip_of(request) or ''}",
            thread_of(request),
            "beside" if beside(request, batch.jobs) else "",
        ]
        for number, request in enumerate(batch.requests, 1)
    ]
    kinds = " ".join(f"{kind} {count}" for kind, count in by_kind(batch.requests).items() if count)
    jobs = ", ".join(f"{(begin - begun) * 1000:.0f} to {(end - begun) * 1000:.0f}" for begin, end in batch.jobs)
    took = ", ".join(f"{name} {ms}" for name, ms in batch.took.items())
    note = (
        f"Trigger: ms {(batch.span[1] - begun) * 1000:.0f} ({took}). Spark's jobs: ms {jobs}. {kinds}. "
        f"Round trips {round_trips(spans(batch.requests))}, in its way {trips(in_its_way(batch))}."
    )
    head = (
        "#",
        "begin ms",
        "end ms",
        "kind",
        "key",
        "status",
        "",
        "B up",
        "B down",
        "trip",
        "wanted by",
        "Spark's job",
    )
    return Table(f"{what}: batch {batch.number}, each answer held back by {_DELAY_MS} ms", head, rows, note)
