"""What ``streamsink.give_up`` reports: the records it has forgotten, and how their rows are read again. Driver only."""

from collections.abc import Sequence

from streamsink import shell
from streamsink.options import SinkOptions
from streamsink.protocol.admission.renamed import first_that_is_there, starting_at
from streamsink.protocol.committable import AppState, Committable
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.positions import all_numeric
from streamsink.protocol.run.first_name import is_cut_off
from streamsink.sinks.paimon.letters import TableCommitter
from streamsink.sinks.paimon.many_tables import ManyTables
from streamsink.sinks.paimon.past.place import SUFFIX


def where_it_begins(
    path: str,
    committer: TableCommitter | ManyTables,
    options: SinkOptions,
    records: Sequence[int],
    *,
    known: Sequence[Committable],
    behind: tuple[str, int] | tuple[()],
) -> str:
    """Where a new checkpoint of a source with positions begins, so that it reads these records again; for a message.

    records: numbers of those that were given up. known: those of them that could be read. behind: the name that the
    query had before them and its last record, from the first of them or as an earlier call of the command left it;
    empty without one.
    """
    others = committer.others(options.application) if behind else {}
    before = first_that_is_there(behind, others) or behind[0] if behind else ""
    is_of_other_form = before.endswith(SUFFIX) != isinstance(committer, ManyTables)
    if before and is_of_other_form and known:
        # What was written under that name is in another folder, or in several tables. The first record goes on where it
        # ends.
        return f"with {starting_at(known[0].state.sources)}{_without_its_loss(known[0], before, committer)}"
    if before and not is_of_other_form and committer.has_reached(before, 1):
        is_settled = before.endswith(SUFFIX) or before not in others or others[before].is_published
        at = _offsets(path, before.partition("@")[0])
        if is_settled:
            return at
        return (
            f"{at}; before that start the query once under application='{before}' with on_rollback='republish', whose "
            "journal has what the table has not"
        )
    return _offsets(path, options.application) if records and records[0] > 1 else "at the beginning of the source"


def _offsets(path: str, application: str) -> str:
    printed = shell.in_a_shell("offsets", path, "-a", application)
    return f"at streamsink.starting_offsets({path!r}, application={application!r}) {printed}"


def _without_its_loss(first: Committable, before: str, committer: TableCommitter | ManyTables) -> str:
    """What the message adds where the table has lost rows of the name before, from which the first record goes on."""
    return (
        f"; what the table does not have any more of '{before.removesuffix(SUFFIX)}' is left out then"
        if is_cut_off(first, committer)
        else ""
    )


def report(
    path: str,
    options: SinkOptions,
    state: AppState | None,
    records: Sequence[int],
    *,
    known: Sequence[Committable],
    runs: Sequence[str],
    begins: str,
) -> str:
    """The text of a ``GivenUp``.

    state: what is published. records: numbers of those that were given up. known: those of them that could be read.
    runs: ids of the bounded runs among them. begins: as ``where_it_begins`` says.
    """
    if not records:
        return (
            f"{path}: every record of application '{options.application}' is published, or will be at the next start: "
            "nothing was given up"
        )
    name = options.application
    numbers = f"record {records[0]}" if len(records) == 1 else f"records {records[0]} to {records[-1]}"
    at = f"record {state.sequence}, {state.checkpoint_name}" if state else "no record"
    head = (
        f"{path}: {numbers} of application '{name}' given up; the table ends, or will at the next start, before them "
        f"(now at {at}). "
    )
    if runs:
        each = "this run" if len(runs) == 1 else f"each of these {len(runs)} runs"
        calls = ", ".join(f"streamsink.write(..., {run!r})" for run in runs)
        head += f"Run the job again for {each}, under its id: {calls}: it writes its rows. "
    of_queries = [record.state for record in known if record.state.checkpoint_id != END_OF_INPUT]
    first = of_queries[0] if of_queries else None
    like = first or state
    if first is None and (runs or like is not None and like.checkpoint_id == END_OF_INPUT):
        damaged = len(records) - len(known)
        if not damaged:
            return head
        return (
            f"{head}{damaged} of these records cannot be read. Run the job again under the id of each run of which you "
            "do not know that it is in the table: its rows are written if it is not"
        )
    batch = first.checkpoint_id if first else state.checkpoint_id + 1 if state else 0
    # If the first record goes on from a name before, that name tells what is to be adopted.
    is_empty = state is None and not (first is not None and first.leads_on)
    without, gap = (" and without adopt_from_batch", "gap.first-batch") if is_empty else ("", "positions.gap")
    again = (
        f"Restart the query with its checkpoint{without}: if Spark gives batch {batch} again, its rows are written, "
        "each once. "
    )
    if like is not None and like.recorded and all_numeric(like.sources):
        return (
            f"{head}{again}If it has gone past it, the query stops with an error ({gap}) before it writes anything: "
            f"then start a new checkpoint {begins}"
        )
    return (
        f"{head}{again}If it has gone past it, the query stops with an error (batch.gap, or gap.first-batch) before it "
        f"writes anything: then {_rewind(batch)}, and restart: Spark plans their rows again"
    )


def _rewind(batch: int) -> str:
    """How Spark is told to plan this batch, and all behind it, once more."""
    rewind = shell.command("rewind", "CHECKPOINT", "--from-batch", str(batch), "--yes")
    return (
        "delete, in the folders 'offsets' and 'commits' of the checkpoint, the files numbered "
        f"{batch} and higher {rewind}"
    )
