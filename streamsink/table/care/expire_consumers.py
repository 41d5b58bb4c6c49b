"""Consumers that have not read for a long time expire, so that they do not keep snapshots for ever.

A consumer is a reader that says in a file of the table which snapshot it needs next; each time it goes on, it writes
that file again. So the file's time tells when it was last seen.
"""

import re
from dataclasses import dataclass

from streamsink.clock import Clock
from streamsink.errors import Misuse
from streamsink.table.durations import parse_duration
from streamsink.table.history.retained import Consumer, consumers
from streamsink.table.table import Table

EXPIRATION_TIME = "consumer.expiration-time"


@dataclass(frozen=True)
class ConsumerPlan:
    """Consumers that are to be deleted; ``str()`` of it says it for people. paths: of their files."""

    table: str
    names: tuple[str, ...]
    paths: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.table}: " + (f"consumers {', '.join(self.names)} go" if self.names else "no consumer goes")


def silent(table: Table, now_ms: int | None = None) -> ConsumerPlan:
    """The consumers that have been silent for longer than the table's option allows; none without that option.

    One of which the store does not tell the time stays. Changes nothing. Raises Misuse ``option.value``, Corrupt.
    """
    given = table.known_schema.options.get(EXPIRATION_TIME)
    if given is None:
        return _plan(table, [])
    before = (Clock().now_ms() if now_ms is None else now_ms) - parse_duration(table.root, EXPIRATION_TIME, given)
    found = [(each, table.file_io.modified_ms(each.path)) for each in consumers(table)]
    return _plan(table, [each for each, at_ms in found if at_ms is not None and at_ms < before])


def matching(table: Table, including: str = ".*", excluding: str | None = None) -> ConsumerPlan:
    """The consumers whose whole names match a regular expression, and not the other one. Changes nothing.

    Raises Misuse for what is no regular expression, Corrupt.
    """
    try:
        wanted, other = re.compile(including), re.compile(excluding) if excluding is not None else None
    except re.error as wrong:
        raise Misuse(
            f"{table.root}: {including if excluding is None else (including, excluding)!r} is no regular expression "
            f"({wrong}), expected one such as 'report-.*'. Nothing was deleted. Give such a one",
            kind="consumer.pattern",
        ) from wrong
    names = [each for each in consumers(table) if wanted.fullmatch(each.name)]
    return _plan(table, [each for each in names if other is None or not other.fullmatch(each.name)])


def delete_consumers(table: Table, planned: ConsumerPlan) -> ConsumerPlan:
    """Delete these consumers. Idempotent. A reader that goes on by its name begins anew, as its options say."""
    table.file_io.delete_all(planned.paths)
    return planned


def _plan(table: Table, found: list[Consumer]) -> ConsumerPlan:
    return ConsumerPlan(table.root, tuple(each.name for each in found), tuple(each.path for each in found))
