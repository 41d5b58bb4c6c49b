"""The same walks on S3. A machine that loses its power is one whose drivers die: the store forgets nothing. A writer
that renames is one that creates its snapshot without a condition."""

from streamsink.storage.hold import BeatingHold
from tests.walks.distant import DistantStore
from tests.walks.several_walker import SeveralWalker
from tests.walks.walker import WAYS, Walker

# What drivers and other writers do, at any moment. Before everything else time passes, since what a driver has seen
# counts for some seconds there, within which nobody takes a table back or deletes what it needs.
_QUICK = {
    *("produce", "batch", "crash", "call", "pause", "pause_at", "wake", "kill", "power", "twice", "at_once"),
    *("half_published", "foreign_append", "foreign_overwrite", "foreign_prepare", "foreign_rename", "lost_race"),
    *("compaction", "own_compaction", "tag", "partition", "run"),
}
_SLOW_MS = 60_000
# A restart prepares many records together.
_WAYS = (
    *WAYS,
    {"publish_every_batches": 7},
    {"publish": "async", "publish_queue": 9, "delay": None},
    {"publish_every_batches": 5, "restore": "restore-and-continue"},
)


class DistantWalker(Walker):
    """Walks one walk of one table."""

    setup = "s3"
    sleep_ms = 0
    ways = _WAYS

    def stores(self):
        _, parts, *_, restore = self._walk[0]
        return DistantStore(writes_few=parts // 10 % 3 > 0, order=restore)

    def run(self, said=None):
        beats, BeatingHold._beat_on = BeatingHold._beat_on, _does_not_beat
        try:
            super().run(said)
        finally:
            BeatingHold._beat_on = beats

    def _next(self):
        if self._walk[self._at + 1][0] not in _QUICK:
            self.time.pass_by(_SLOW_MS)
        return super()._next()

    def _heal(self, query, choice):
        self.time.pass_by(_SLOW_MS)
        super()._heal(query, choice)

    def _set_up(self, *numbers):
        self.time.passes_asleep = True
        super()._set_up(*numbers)


def _does_not_beat(hold: BeatingHold, epoch: int) -> None:
    """Whoever of a walk is still there while another one starts is asleep, and his lease ends."""


class DistantSeveralWalker(DistantWalker, SeveralWalker):
    """Walks one walk over several tables."""

    setup = "s3-several"
