"""The Iceberg metadata of a table follows its commits, and no commit fails because of it. Driver only.

Metadata that could not be made is made by the next commit, or by the next start: nothing of it is in the journal, since
all of it follows from the table.
"""

from collections.abc import Callable, Iterable

from streamsink.events import log
from streamsink.format.iceberg_options import makes_iceberg
from streamsink.table.iceberg_metadata.expiry import names_read
from streamsink.table.iceberg_metadata.mirror import Mirror
from streamsink.table.table import Table


class Following:
    """What a committer of a table does for its Iceberg metadata. Nothing, in a table without the option for it.

    failures: how often it could not be made, since it was made last. told: called with 1 and the error at the first of
    them, and with 0 and '' when it has caught up.
    """

    def __init__(self, table: Table):
        self._table = table
        self._mirror: tuple[int, Mirror] | None = None
        self.failures = 0
        self.told: Callable[[int, str], None] = lambda failures, why: None

    def follow(self) -> bool:
        """Bring the metadata up to the newest snapshot. Never raises an error of the store, or of what is read.

        False where that failed: readers may be led to what the table has no more.
        """
        return self._quietly(lambda mirror: mirror.follow())

    def start(self) -> None:
        """As ``follow``, behind a writer that may have died."""
        self._quietly(lambda mirror: mirror.start())

    def refresh(self) -> None:
        """As ``follow``, where only tags have changed."""
        self._quietly(lambda mirror: mirror.refresh())

    def forget(self, numbers: Iterable[int]) -> bool:
        """Take snapshots out of the metadata that are about to expire. False where that failed: they must stay."""
        return self._quietly(lambda mirror: mirror.forget(numbers))

    def read_still(self) -> frozenset[str]:
        """As ``follow``, before files are deleted that the table does not name any more.

        Returns the names of data files that must stay, since readers of metadata that could not follow read them; none
        where it could. Raises OSError where that cannot be told.
        """
        return frozenset() if self.follow() else names_read(self._table)

    def unnamed(self) -> list[tuple[str, int]]:
        """(path, size in bytes) of files that the metadata does not name, also of those that are being written."""
        found = list[tuple[str, int]]()
        self._quietly(lambda mirror: found.extend(mirror.unnamed()))
        return found

    def _quietly(self, action: Callable[[Mirror], None]) -> bool:
        schema = self._table.known_schema
        # A branch shares the table's folder, in which the metadata is that of the main branch.
        if not makes_iceberg(schema.options) or self._table.layout.branch:
            return True
        try:
            if self._mirror is None or self._mirror[0] != schema.id:
                self._mirror = schema.id, Mirror(self._table)
            action(self._mirror[1])
        except Exception as failed:  # whatever it is, the rows are committed, and only readers of Iceberg are behind
            self.failures += 1
            if self.failures == 1:
                log.warning(
                    "%s: its Iceberg metadata could not be made, and readers of it are behind: %s: %s. The rows are "
                    "committed. It is tried again with each commit and at each start, and is said once more when it "
                    "has caught up",
                    self._table.root,
                    type(failed).__name__,
                    failed,
                )
                self.told(self.failures, f"{type(failed).__name__}: {failed}")
            return False
        if self.failures:
            log.warning("%s: its Iceberg metadata has caught up, after %d failures", self._table.root, self.failures)
            self.failures = 0
            self.told(0, "")
        return True
