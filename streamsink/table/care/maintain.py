"""All that Paimon's own writers do after a commit, for one table: tags that are due, and what expires."""

from collections.abc import Mapping
from dataclasses import dataclass

from streamsink.clock import Clock
from streamsink.options import SinkOptions
from streamsink.table.care.auto_tags import AutoTags, TagCreation
from streamsink.table.care.expire_consumers import EXPIRATION_TIME, delete_consumers, silent
from streamsink.table.care.expire_partitions import PartitionRule, expire_partitions
from streamsink.table.care.expire_snapshots import Retention, expire
from streamsink.table.care.removal import Needing
from streamsink.table.care.tags import DEFAULT_TIME, delete_tags, past_their_time
from streamsink.table.durations import parse_duration
from streamsink.table.table import Table

# A run lets so many times ``snapshot.expire.limit`` snapshots expire at most.
_MOST_ROUNDS = 100
_EXPIRE_TAGS = "tag.time-expire-enabled"
_CHECK = "partition.expiration-check-interval"


@dataclass(frozen=True)
class Maintenance:
    """What one run has done: numbers of snapshots that expired, folders of partitions, and names of the others."""

    snapshots: tuple[int, ...] = ()
    tags_made: tuple[str, ...] = ()
    tags_expired: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any((self.snapshots, self.tags_made, self.tags_expired, self.consumers, self.partitions))


def check_options(table: str, options: Mapping[str, str]) -> None:
    """Raises Misuse for an option that a run would stop at. options: the table's, whether it is there yet or not."""
    AutoTags.of(table, options)
    for key in (EXPIRATION_TIME, DEFAULT_TIME, _CHECK):
        if key in options:
            parse_duration(table, key, options[key])
    PartitionRule.of(table, options)
    Retention.of(table, options)


class Maintainer:
    """Looks after one table, again and again. It has an opening of the table of its own."""

    def __init__(self, table: Table, needing: Needing, options: SinkOptions):
        """options: of the query, for the commit that drops partitions."""
        self._table = table
        self._needing = needing
        self._options = options
        self._tags = TagCreation(table, needing)
        self._clock = Clock()
        # When it was looked last which partitions have expired: that reads all manifests.
        self._looked_ms: float | None = None

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
        partitions = self._expire_partitions(options)
        retention, gone = Retention.of(table.root, options), list[int]()
        for _ in range(_MOST_ROUNDS):
            expired = expire(table, retention, self._needing).snapshots
            gone += expired
            if len(expired) < retention.limit:
                break
        return Maintenance(tuple(gone), tuple(made), tuple(old), consumers, partitions)

    def _expire_partitions(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """The folders of those that were dropped, at the first run and then after each check interval."""
        rule = PartitionRule.of(self._table.root, options)
        if rule is None:
            return ()
        interval_ms = parse_duration(self._table.root, _CHECK, options.get(_CHECK, "1 h"))
        now_ms = self._clock.monotonic_ms()
        if self._looked_ms is not None and now_ms - self._looked_ms < interval_ms:
            return ()
        self._looked_ms = now_ms
        return expire_partitions(self._table, self._options, rule).partitions
