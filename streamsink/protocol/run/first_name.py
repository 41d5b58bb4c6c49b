"""What records need of the name that their query had before. Pure.

The table must have what they go on from, and nothing may have come in their place under that name.
"""

from collections.abc import Container, Mapping, Sequence

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol import ways
from streamsink.protocol.admission.continuity import relate
from streamsink.protocol.admission.renamed import names_before
from streamsink.protocol.committable import LED_ID, AppState, Committable, LastOfOther
from streamsink.protocol.positions import all_numeric
from streamsink.protocol.sink import Committer, Destination


def is_cut_off(record: Committable, committer: Committer) -> bool:
    """Whether the table no longer has what the query has published under the name before.

    The journal of this name cannot publish that again.
    """
    return bool(record.state.leads_on) and not committer.has_what_was_before(record)


def check_name_before(
    to: Destination, publish: Sequence[Committable], committer: Committer, options: SinkOptions
) -> None:
    """Raises Misuse when the table was rolled back past the change of the query's name.

    publish: the next records to be published. Those before a record that cannot be published are published all the
    same, because another name may have gone on from them.
    """
    for record in publish:
        if record.state.leads_on and is_cut_off(record, committer):
            name, sequence = record.state.leads_on
            raise Misuse(
                f"{to.path}: record {record.state.sequence} of application '{options.application}' goes on from record "
                f"{sequence} of '{name}', which was the query's name before, and the table does not say any more that "
                f"it has that: it was rolled back further than the journal of '{options.application}' remembers. "
                "Nothing of it was written. Restore the "
                f"table{_from_the_first_name(to, name, sequence, committer, options)}. "
                f"{ways.give_up(to.path, options.application, to.is_table)}",
                kind="table.rolled-back-too-far",
            )


def _from_the_first_name(to: Destination, name: str, sequence: int, committer: Committer, options: SinkOptions) -> str:
    """The way on by the journal of the name before, where that journal has what it takes; else ''.

    A start of one table cannot bring back what is of several tables, and not every destination can be given again what
    it had.
    """
    if not to.republishes:
        return ""
    other = committer.others(options.application).get(name)
    if "@" in name or other is None or other.state.sequence < sequence:
        return ""
    return (
        f"; or start the query once under application='{name}' with on_rollback='republish', which publishes what that "
        f"journal has and the table has not, or asks, and then under application='{options.application}' again, with "
        f"on_rollback='republish' too. Where it goes on under '{name}' instead of being told that it was renamed, as "
        "with a new checkpoint, leave it there"
    )


def check_gone_on(to: Destination, records: Sequence[Committable], committer: Committer, options: SinkOptions) -> None:
    """Raises Misuse when the name that the query had before has gone on meanwhile, and may have these records' rows.

    records: those that are to be published. The name before then has records behind the one from which they go on.
    """
    first = next((record for record in records if record.state.leads_on), None)
    if first is None or not first.state.leads_on:
        return
    name, sequence = first.state.leads_on
    others = committer.others(options.application)
    other = others.get(name)
    if other is None or not _is_behind(other.state, sequence, first.payload.get(LED_ID)):
        return
    ahead = {record.state.sequence for record in records}
    comes_behind = _goes_on_from(other.state, options.application, ahead, others) and not committer.has_reached(
        name, sequence + 1
    )
    if not comes_behind and _may_have_the_rows(other.state, records):
        raise Misuse(
            f"{to.path}: record {first.state.sequence} of application '{options.application}', which the table has "
            f"not, goes on from record {sequence} of '{name}', which was the query's name before, and the query has "
            f"gone on under that name since, up to record {other.state.sequence}: published now, rows would be there "
            f"a second time. Nothing was written. {ways.go_on_under(name)}; or, to go on under "
            f"'{options.application}', {ways.give_up_at_once(to.path, options.application, to.is_table)}",
            kind="table.rolled-back-too-far",
        )


def _goes_on_from(state: AppState, application: str, ahead: Container[int], others: Mapping[str, LastOfOther]) -> bool:
    """Whether the last record under another name goes on from one of these records of the application.

    It may do so through further names. ahead: the numbers of the records.
    """
    return (
        next((sequence for name, sequence in names_before(state.behind, others) if name == application), None) in ahead
    )


def _is_behind(state: AppState, sequence: int, record_id: str | None) -> bool:
    """Whether this state is of a record behind the one with that number and id. record_id: None where nobody knows it.

    The id counts because numbers that are given up are used again.
    """
    return (
        state.sequence > sequence
        or state.sequence == sequence
        and record_id is not None
        and state.record_id != record_id
    )


def _may_have_the_rows(state: AppState, records: Sequence[Committable]) -> bool:
    """Whether the query that this state is of may have written rows of the records.

    It may if the records are its own, or if positions do not show that it has not.
    """
    return any(
        record.state.query == state.query
        or not all_numeric(record.state.sources)
        or relate(state.recorded, record.state.sources).overlap
        for record in records
    )
