"""A query that comes under another name than the one under which it has written here. A name is not an identity; the query's id is. Pure."""

from collections.abc import Mapping, Sequence

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol.committable import AppState, Batch, LastOfOther
from streamsink.protocol.positions import same_ranges


def ahead(batch: Batch, last: AppState | None, others: Mapping[str, LastOfOther]) -> list[tuple[str, LastOfOther]]:
    """The names under which this query has come further than under its own one, with its last record there; the newest one first.

    last: under its own name. Sinks that this run of the query has called beside this one are no earlier names, as long as all of them
    begin with batch 0 or have a past: one that joins later is a second sink only if its user says so.
    """
    joins = last is None and batch.batch_id != 0
    own = last.checkpoint_id if last is not None and last.query == batch.query else -1
    found = [
        (name not in batch.other_sinks, other.state.checkpoint_id, not other.is_published, name) for name, other in others.items()
        if other.state.query == batch.query and other.state.checkpoint_id > own and (joins or name not in batch.other_sinks)
    ]
    return [(name, others[name]) for *_, name in sorted(found, reverse=True)]


def is_done(batch: Batch, other: LastOfOther, options: SinkOptions) -> bool:
    """Whether the batch is the last one under the earlier name, whose user has said that the next one comes under this one."""
    state = other.state
    return (
        other.is_published and options.adopt_from_batch == state.checkpoint_id + 1 == batch.batch_id + 1
        and same_ranges(batch.sources, state.sources)
    )


def is_adopted(batch: Batch, other: LastOfOther, options: SinkOptions) -> bool:
    """Whether the batch is the first one under this name, as its user has said."""
    return other.is_published and options.adopt_from_batch == other.state.checkpoint_id + 1 == batch.batch_id


def refused(batch: Batch, found: Sequence[tuple[str, LastOfOther]], *, table: str, options: SinkOptions, word: str) -> Misuse:
    """word: the token that takes the batch for new. found: the applications under which the query has come further."""
    name, other = found[0]
    plain, last = name.partition("@")[0], other.state.checkpoint_id
    how = f"application='{plain}'" + (" and streamsink.to_tables, or dead_letters, as before" if "@" in name else "")
    under = f"under the name '{name}', up to batch {last}"
    if len(found) > 1:
        if found[1][1].state.checkpoint_id == last:  # sinks of one batch function
            how = "application to the one of these names that this sink had"
        under = "under the names " + " and ".join(f"'{name}', up to batch {other.state.checkpoint_id}," for name, other in found).rstrip(",")
    change = (
        f"To change the name, set adopt_from_batch={last + 1} for its first start under the new one" if other.is_published else
        f"To change the name, first start the query once more under the first one: batch {last} is recorded and not published yet"
    )
    return Misuse(
        f"{table}: this query ({batch.query}) has written here {under}; now its "
        f"name is '{options.application}', and its batch {batch.batch_id} comes. Under a new name its rows would be written a second "
        f"time. Nothing was written. Set {how} to go on; streamsink.to_tables has a name of its own. {change}. "
        "To write other rows than the sink of that name does, as a second sink in the same batch function, set "
        f"accept_as_new='{word}' for its first start, which writes batch {batch.batch_id} and what comes after it",
        kind="application.renamed",
    )
