"""The same walks on S3. A machine that loses its power is one whose drivers die: the store forgets nothing. A writer
that renames is one that creates its snapshot without a condition."""

from streamsink.storage.hold import BeatingHold
from tests.walks.distant import DistantStore
from tests.walks.several_walker import SeveralWalker
from tests.walks.walker import Walker


class DistantWalker(Walker):
    """Walks one walk of one table."""

    setup = "s3"

    def stores(self):
        _, parts, *_, restore = self._walk[0]
        return DistantStore(writes_few=parts // 10 % 3 > 0, order=restore)

    def run(self, said=None):
        beats, BeatingHold._beat_on = BeatingHold._beat_on, _does_not_beat
        try:
            super().run(said)
        finally:
            BeatingHold._beat_on = beats

    def _set_up(self, *numbers):
        self.time.passes_asleep = True
        super()._set_up(*numbers)


def _does_not_beat(hold: BeatingHold, epoch: int) -> None:
    """Whoever of a walk is still there while another one starts is asleep, and his lease ends."""


class DistantSeveralWalker(DistantWalker, SeveralWalker):
    """Walks one walk over several tables."""

    setup = "s3-several"
