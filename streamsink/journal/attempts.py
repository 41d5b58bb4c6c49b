"""The attempts of this writer whose files get their final names at once: what it announces, and when. Driver only.

An attempt is announced while the record before it is created, so that nobody waits for that. Only the first attempt of
a run, and one that turns out to be another than was taken for granted, waits for its announcement.
"""

import contextlib
from collections.abc import Callable, Sequence

from streamsink.clock import IdSource
from streamsink.errors import StreamsinkError
from streamsink.journal.announced import Announcement, InTable
from streamsink.journal.staging import Staging
from streamsink.protocol.decision import Checkpoint


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

    def announce(self, checkpoint: Checkpoint, tables: Sequence[InTable]) -> None:
        """Announce this attempt, unless that was done. Durable when this returns.

        tables: where its files may come to be; nothing is done without any. The driver of a small checkpoint, of which
        little can be left, does not ask who owns the application before its record.
        """
        said = Announcement(checkpoint.attempt, tuple(tables), asks=not checkpoint.is_small)
        if tables:
            self._staging.announce(checkpoint.sequence, checkpoint.staging, said)

    def announce_following(
        self, checkpoint: Checkpoint, tables: Callable[[str], Sequence[InTable]], *, is_small: bool
    ) -> None:
        """Announce the attempt behind this checkpoint while this one's record is created (``take_following``).

        tables: where files of an attempt may come to be, by its id. is_small: whether it is taken to be small. It
        announces itself again when something else is true then.
        """
        attempt, sequence = IdSource().new_id(), checkpoint.sequence + 1
        folder, _, name = checkpoint.staging.rpartition("/")
        staging = f"{folder}/{name.partition('-')[0]}-{sequence}"
        said = Announcement(attempt, tuple(tables(attempt)), asks=not is_small)
        if not said.tables:
            return

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

    def has_more(self, checkpoint: Checkpoint, tables: Sequence[InTable]) -> None:
        """The checkpoint's staging folder must be listed to be deleted: it has files, or other announcements.

        tables: what writers have announced.
        """
        said = Announcement(checkpoint.attempt, tuple(tables))
        self._staging.has_more(checkpoint.sequence, checkpoint.staging, said)

    def end(self) -> None:
        """No attempt follows: what was announced of one is deleted, or stays until a later start."""
        sequence, _ = self._attempt
        with contextlib.suppress(OSError, StreamsinkError):
            self._staging.withdraw(sequence)
