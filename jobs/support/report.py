"""The closing table: what the source gave, what the table holds, and whether the two are the same."""

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from streamsink.errors import StreamsinkError
from streamsink.operations.report.gather import gather
from streamsink.operations.report.page import page
from streamsink.operations.report.written import write
from streamsink.storage.stores import store_of
from support.places import Places
from support.progress import Progress, say

_CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Outcome:
    """Counts of rows. ``given_as``: what the source calls its records."""

    given_as: str
    given: int
    rows: int
    duplicates: int
    lost: int

    @property
    def exactly_once(self) -> bool:
        return self.duplicates == 0 and self.lost == 0 and self.rows == self.given


def close(outcome: Outcome, progress: Progress) -> int:
    """Print the closing table. Returns the exit code of the job."""
    more = {
        "batches since the start": f"{progress.batches:,}",
        "rows/s since the start": f"{progress.rows_per_second():,.0f}",
    }
    say(_closing_table(outcome, more))
    if outcome.lost > 0:
        say(
            "What was taken out of the destination on purpose (a rollback, a dropped partition), and dead letters, "
            "count as lost here."
        )
    return 0 if outcome.exactly_once else 1


def commands_for(table: str) -> str:
    """The commands that look at the table, as they are typed in any folder."""
    make = f"make -sC {shlex.quote(str(_CHECKOUT))} streamsink ARGS={{}}"
    commands = ("snapshots", "files", "partitions", "positions", "doctor")
    words = [f"{command} {shlex.quote(table)}" for command in commands]
    by_make = "MAKELEVEL" in os.environ
    looks = [make.format(shlex.quote(each)) if by_make else f"streamsink {each}" for each in words]
    return "\n".join(["look at the table:", *(f"  {each}" for each in looks)])


def report_of(places: Places, store_options: Mapping[str, str] | None = None) -> str:
    """Write the report's page, and return the command that opens it. A report that cannot be made fails no job."""
    store = store_of(places.table, store_options)
    try:
        write(str(places.page), page(gather(store.open(), store.root)))
    except (StreamsinkError, OSError) as failed:
        return f"there is no report: {failed}"
    return f"open the report:\n  {shlex.quote(sys.executable)} -m webbrowser {places.page.as_uri()}"


def _closing_table(outcome: Outcome, more: dict[str, str]) -> str:
    counts = {
        outcome.given_as: outcome.given,
        "rows in the table": outcome.rows,
        "duplicates": outcome.duplicates,
        "lost": outcome.lost,
    }
    lines = {name: f"{count:,}" for name, count in counts.items()} | more
    width = max(map(len, lines))
    rule = "-" * (width + 16)
    return "\n".join([rule, *(f"{name:<{width}}  {value:>14}" for name, value in lines.items()), rule])
