"""All that Paimon's own writers do after a commit, for one table: tags that are due, and what expires."""

from dataclasses import dataclass

from streamsink.table.care.auto_tags import TagCreation
from streamsink.table.care.expire_consumers import delete_consumers, silent
from streamsink.table.care.expire_snapshots import Retention, expire
from streamsink.table.care.removal import Needing
from streamsink.table.care.tags import delete_tags, past_their_time
from streamsink.table.table import Table

# A run lets so many times ``snapshot.expire.limit`` snapshots expire at most.
_MOST_ROUNDS = 100
_EXPIRE_TAGS = "tag.time-expire-enabled"


@dataclass(frozen=True)
class Maintenance:
    """What one run has done: numbers of snapshots that expired, and names of the others."""

    snapshots: tuple[int, ...] = ()
    tags_made: tuple[str, ...] = ()
    tags_expired: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.snapshots or self.tags_made or self.tags_expired or self.consumers)


class Maintainer:
    """Looks after one table, again and again. It has an opening of the table of its own."""

    def __init__(self, table: Table, needing: Needing):
        self._table = table
        self._needing = needing
        self._tags = TagCreation(table, needing)

    def run(self) -> Maintenance:
        """Tags come first, so that what is to be tagged has not expired. Idempotent; a death leaves the table whole.

        Raises Misuse for the table's options, and where it was dropped or created again; Corrupt where what must stay
        cannot be read.
        """
        table = self._table
        table.check_identity()
        options = table.latest_schema().options
        made = self._tags.run()
        old = past_their_time(table) if options.get(_EXPIRE_TAGS, "true").strip().lower() != "false" else []
        if old:
            delete_tags(table, old, self._needing)
        consumers = delete_consumers(table, silent(table)).names
        retention, gone = Retention.of(table.root, options), list[int]()
        for _ in range(_MOST_ROUNDS):
            expired = expire(table, retention, self._needing).snapshots
            gone += expired
            if len(expired) < retention.limit:
                break
        return Maintenance(tuple(gone), tuple(made), tuple(old), consumers)
