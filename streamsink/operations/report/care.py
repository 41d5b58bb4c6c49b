"""The care of a table for the report: what would expire, tags, branches, and consumers. Changes nothing."""

from collections.abc import Callable
from typing import Any

from streamsink.errors import Misuse
from streamsink.sinks.paimon.care.needed import needed_by_journals
from streamsink.table.branching.branches import branches
from streamsink.table.care.expire_consumers import silent
from streamsink.table.care.expire_partitions import PartitionRule
from streamsink.table.care.expire_partitions import plan as partitions_that_expire
from streamsink.table.care.expire_snapshots import Retention, choose
from streamsink.table.care.tags import past_their_time
from streamsink.table.history.retained import consumers, tags
from streamsink.table.table import Table

# So many names of each kind are listed.
_MOST_NAMES = 20


def care_of(table: Table, attempt: Callable[[str, Callable[[], Any]], Any]) -> dict[str, Any]:
    """What the care of a table would do now, and what keeps snapshots. A branch has no care of its own.

    attempt(name, look): the result of a look, or what went wrong with it, as JSON.
    """
    if table.layout.branch:
        return {"problem": f"This is branch '{table.layout.branch}': care is taken of the table itself."}
    looks: dict[str, Callable[[], Any]] = {
        "snapshots": lambda: _expiry(table),
        "partitions": lambda: _partitions(table),
        "tags": lambda: _tags(table),
        "branches": lambda: _branches(table),
        "consumers": lambda: _consumers(table),
    }
    return {name: attempt(name, look) for name, look in looks.items()}


def _expiry(table: Table) -> dict[str, Any]:
    options = table.known_schema.options
    found, _ = choose(table, Retention.of(table.root, options), needed_by_journals(table))
    return {
        "options": {name: value for name, value in sorted(options.items()) if name.startswith("snapshot.")},
        "going": len(found.snapshots),
        "first_kept": found.first_kept,
        "why_kept": found.held,
        "notes": list(found.notes),
    }


def _partitions(table: Table) -> dict[str, Any]:
    rule = PartitionRule.of(table.root, table.known_schema.options)
    if rule is None:
        return {"text": "Partitions do not expire: the table has no option partition.expiration-time."}
    return {"text": str(partitions_that_expire(table, rule))}


def _tags(table: Table) -> dict[str, Any]:
    found = tags(table)
    over = past_their_time(table)
    listed = [{"tag": each.name, "snapshot": each.snapshot.id} for each in found[-_MOST_NAMES:]]
    return {"count": len(found), "past_their_time": len(over), "listed": listed}


def _branches(table: Table) -> dict[str, Any]:
    found = branches(table)
    listed = [
        {
            "branch": each.name,
            "snapshot": each.newest.id if each.newest else None,
            "rows": each.newest.total_record_count if each.newest else 0,
            "time_ms": each.newest.time_millis if each.newest else None,
        }
        for each in found[:_MOST_NAMES]
    ]
    return {"count": len(found), "listed": listed}


def _consumers(table: Table) -> dict[str, Any]:
    found = consumers(table)
    try:
        gone = len(silent(table).names)
    except Misuse as wrong:
        return {"problem": str(wrong)}
    listed = [{"consumer": each.name, "next_snapshot": each.next_snapshot} for each in found[:_MOST_NAMES]]
    return {"count": len(found), "silent": gone, "listed": listed}
