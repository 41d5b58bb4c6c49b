"""Prints one line a batch, from the events that the sink emits.
Plain lines read the same in a terminal, a pipe and a log."""

import time
from collections.abc import Callable

from streamsink import events


class Progress:
    """A listener for ``streamsink.to_table``. ``lag(checkpoint)``: rows that the source has beyond that checkpoint."""

    def __init__(self, lag: Callable[[int], int]):
        self._lag = lag
        self._begun: float | None = None
        self._last_end: float | None = None
        self.rows = 0
        self.batches = 0
        self.last_batch: int | None = None

    def __call__(self, event: events.Event) -> None:
        events.to_log(event)
        if isinstance(event, (events.CheckpointPublished, events.BatchSkipped)):
            self.last_batch = event.checkpoint_id
        if isinstance(event, events.Claimed):
            self._last_end = time.monotonic()
            self._begun = self._begun or self._last_end
        elif isinstance(event, events.CheckpointPublished):
            self._published(event)
        elif isinstance(event, events.Restored) and (event.published_checkpoints or event.orphans_removed):
            say(
                f"restored  published what was pending: batch {_list(event.published_checkpoints)}; removed "
                f"{len(event.orphans_removed)} files that no batch needs"
            )
        elif isinstance(event, events.BatchSkipped):
            say(f"batch {event.checkpoint_id:>5}  skipped: {event.reason}")
        elif isinstance(event, events.BatchFiltered):
            say(f"batch {event.checkpoint_id:>5}  overlaps what the table has: only new rows are written")

    def rows_per_second(self) -> float:
        """Counted from the first claim of the table to the last batch, restarts of the query included."""
        if self._begun is None or self._last_end is None:
            return 0.0
        return _rate(self.rows, self._last_end - self._begun)

    def _published(self, event: events.CheckpointPublished) -> None:
        now = time.monotonic()
        self._last_end = now
        self.rows += event.rows
        self.batches += 1
        # An earlier driver wrote a restored checkpoint; this one only published it.
        rate = f"{_rate(event.rows, event.commit_ms / 1000):,.0f}" if event.commit_ms else "-"
        say(
            f"batch {event.checkpoint_id:>5}  rows {event.rows:>9,}  rows/s {rate:>9}  "
            f"snapshot {event.snapshot_id:>5}  pending {event.pending:>2}  lag {self._lag(event.checkpoint_id):>9,}"
        )


def say(line: str) -> None:
    print(line, flush=True)


def _rate(rows: int, seconds: float) -> float:
    return rows / seconds if seconds > 0 else 0.0


def _list(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers)) or "none"
