"""The attempts of this writer whose files get their final names at once: what it announces, and when. Driver only.

An attempt is announced while the record before it is created, so that nobody waits for that. Only the first attempt of
a run, and one that turns out to be another than was taken for granted, waits for its announcement.
"""

import contextlib
from collections.abc import Callable, Sequence

from streamsink.clock import IdSource
from streamsink.errors import StreamsinkError
from streamsink.journal.announced import Announcement
from streamsink.journal.staging import Staging
from streamsink.protocol.decision import Checkpoint

# (folder relative to the table, beginning of the names) of the files that an attempt may leave there.
Places = Sequence[tuple[str, str]]


class Attempts:
    """Announces, before they exist, where files of a checkpoint come to be. One thread uses it."""

    def __init__(self, staging: Staging):
        self._staging = staging
        # What is to be done while the next record is created, and the attempt (number, id) that it announces.
        self._following: Callable[[], None] | None = None
        self._attempt = (0, "")

    def begin(self, sequence: int, new_id: Callable[[], str]) -> str:
        """The id of an attempt that begins: the announced one, if it is of this number, or a new one."""
        (announced, attempt), self._attempt = self._attempt, (0, "")
        return attempt if announced == sequence else new_id()

    def announce(self, checkpoint: Checkpoint, places: Places, since: tuple[int, str]) -> None:
        """Announce this attempt, unless that was done. Durable when this returns.

        since: as of ``Announcement``. The driver of a small checkpoint, of which little can be left, does not ask who
        owns the application before its record.
        """
        said = Announcement(checkpoint.attempt, tuple(places), since, asks=not checkpoint.is_small)
        self._staging.announce(checkpoint.sequence, checkpoint.staging, said)

    def announce_following(
        self, checkpoint: Checkpoint, places: Callable[[str], Places], since: tuple[int, str], *, is_small: bool
    ) -> None:
        """Announce the attempt behind this checkpoint while this one's record is created (``take_following``).

        places: of an attempt, by its id. is_small: whether it is taken to be small. It announces itself again when
        something else is true then.
        """
        attempt, sequence = IdSource().new_id(), checkpoint.sequence + 1
        folder, _, name = checkpoint.staging.rpartition("/")
        staging = f"{folder}/{name.partition('-')[0]}-{sequence}"
        said = Announcement(attempt, tuple(places(attempt)), since, asks=not is_small)

        def announce() -> None:
            # Then it announces itself. A bucket that is gone, or keys that are: what the record's own creation says.
            with contextlib.suppress(OSError, StreamsinkError):
                self._staging.announce(sequence, staging, said)

        self._following = announce
        self._attempt = (sequence, attempt)

    def take_following(self) -> Callable[[], None] | None:
        """What announces the attempt behind the record that is about to be created; it raises nothing."""
        following, self._following = self._following, None
        return following

    def has_more(self, checkpoint: Checkpoint, places: Places, since: tuple[int, str]) -> None:
        """Writers have announced these places too, so the checkpoint's staging folder must be listed to be deleted."""
        said = Announcement(checkpoint.attempt, tuple(places), since)
        self._staging.has_more(checkpoint.sequence, checkpoint.staging, said)

    def end(self) -> None:
        """No attempt follows: what was announced of one is deleted, or stays until a later start."""
        sequence, _ = self._attempt
        with contextlib.suppress(OSError, StreamsinkError):
            self._staging.withdraw(sequence)
