"""What an Iceberg table says of the applications that write it. Driver only.

A table property, ``streamsink.app.<application>``, has the state of the application's last record and the snapshot of
that. It is set in the commit of that snapshot. Other writers leave it alone, and it does not expire; nor does it go
back when the table is rolled back. So it counts only while its snapshot is an ancestor of the current one. Summaries of
snapshots say only whose they are: application, number and id of the record.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamsink.errors import Corrupt, Misuse
from streamsink.protocol.committable import AppState, Committable
from streamsink.table.application_states import PREFIX, state_of_text, text_of_state

# Keys of a snapshot's summary.
_APPLICATION, _NUMBER, _RECORD = "streamsink.application", "streamsink.number", "streamsink.record"
_PICKED = "source-snapshot-id"  # of a snapshot that Iceberg's cherrypick_snapshot has made: what it is a copy of


@dataclass(frozen=True)
class Said:
    """What the property of an application says. snapshot_id, order: of its snapshot, which may have expired."""

    state: AppState
    snapshot_id: int
    order: int


@dataclass(frozen=True)
class Standing:
    """How an application stands in the table.

    state: of the last record that the property names; None where there is no property. is_lost: whether the table does
    not have that record any more. newest: number and id of the application's newest record among the snapshots that
    lead to the current one; (0, '') where none of them is retained. is_whole: whether all of these are retained.
    """

    state: AppState | None
    is_lost: bool
    newest: tuple[int, str]
    is_whole: bool


def summary_of(record: Committable) -> dict[str, str]:
    """What the summary of a record's snapshot says besides numbers of files."""
    state = record.state
    return {_APPLICATION: record.application, _NUMBER: str(state.sequence), _RECORD: state.record_id}


def property_of(record: Committable, snapshot_id: int, order: int) -> dict[str, str]:
    """The property that is set together with the record's snapshot. order: the snapshot's sequence number."""
    value = {"snapshot": snapshot_id, "order": order, "state": record.state.to_json()}
    return {f"{PREFIX}{record.application}": text_of_state(value)}


def applications(table: Any) -> list[str]:
    """Those that have written here."""
    return [name.removeprefix(PREFIX) for name in table.metadata.properties if name.startswith(PREFIX)]


def said_of(table: Any, application: str, path: str) -> Said | None:
    """What the property says, whether it is true or not; None where there is none. Raises Corrupt."""
    text = table.metadata.properties.get(f"{PREFIX}{application}")
    if text is None:
        return None
    try:
        value: Mapping[str, Any] = state_of_text(text)
        return Said(AppState.from_json(value["state"]), int(value["snapshot"]), int(value["order"]))
    except (ValueError, TypeError, KeyError, AttributeError, OSError, zlib.error) as broken:
        raise Corrupt(
            f"{path}: the table property '{PREFIX}{application}' was altered: expected the state of application "
            f"'{application}' as JSON. Nothing was written. Set it to the value that it has in an earlier metadata "
            f"file of the table; the newest of these is {_newest_log(table)}",
            kind="destination.state-corrupt",
        ) from broken


def said_before(table: Any, application: str, record_id: str) -> AppState | None:
    """The state of a record of which the property does not tell any more, from one of the earlier metadata files.

    None where none of them has it, or is there. It reads them one after another, the newest first.
    """
    from pyiceberg.serializers import FromInputFile

    for entry in reversed(table.metadata.metadata_log):
        try:
            metadata = FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))
            value = state_of_text(metadata.properties[f"{PREFIX}{application}"])
            state = AppState.from_json(value["state"])
        except (OSError, ValueError, TypeError, KeyError, AttributeError, zlib.error):
            continue  # deleted, without the property, or altered
        if state.record_id == record_id and state.table_id == str(table.metadata.table_uuid):
            return state
    return None


def standing(table: Any, application: str, path: str) -> Standing:
    """How the application stands. Raises Corrupt, and Misuse when its property was removed or set back."""
    said = said_of(table, application, path)
    if said is not None and said.snapshot_id == table.metadata.current_snapshot_id:
        return Standing(said.state, False, (said.state.sequence, said.state.record_id), True)
    lineage = _lineage(table)
    mine = next((found for each in lineage if (found := _record_in(each, application))[0]), (0, ""))
    # A writer that lets snapshots expire may take the parent off those that stay. The first of all has the order 1.
    is_whole = not lineage or lineage[-1].parent_snapshot_id is None and lineage[-1].sequence_number == 1
    if mine[0] > (said.state.sequence if said is not None else 0):
        raise _removed(table, application, path, mine[0])
    if said is None:
        return Standing(None, False, mine, is_whole)
    return Standing(said.state, _is_lost(table, lineage, said, is_whole=is_whole), mine, is_whole)


def _is_lost(table: Any, lineage: Sequence[Any], said: Said, *, is_whole: bool) -> bool:
    """Whether what is retained shows that the property's snapshot does not lead to the current one.

    Where it has expired, and all that came before as well, only a snapshot that was made right behind it can show that,
    by its parent.
    """
    if said.state.table_id != str(table.metadata.table_uuid):
        return True  # a statement that creates a table has copied the properties of another one
    if any(each.snapshot_id == said.snapshot_id for each in lineage):
        return False
    if is_whole or any(each.sequence_number <= said.order for each in lineage):
        return True
    retained = {each.snapshot_id: each for each in table.metadata.snapshots}
    oldest = lineage[-1]
    if oldest.sequence_number == said.order + 1 and oldest.parent_snapshot_id != said.snapshot_id:
        # pyiceberg takes the parents off whose snapshots have expired, and no others.
        if oldest.parent_snapshot_id is not None or said.snapshot_id in retained:
            return True
    if said.snapshot_id not in retained:
        return False
    # What led from it to the current one may have expired. If so, the log says that it was current, and that nothing
    # older was since.
    log = [each.snapshot_id for each in table.metadata.snapshot_log]
    if said.snapshot_id not in log:
        return True
    since = log[len(log) - log[::-1].index(said.snapshot_id) :]
    return any(each in retained and retained[each].sequence_number < said.order for each in since)


def _lineage(table: Any) -> list[Any]:
    """The snapshots that lead to the current one, the newest first, as far as they are retained."""
    by_id, found = {each.snapshot_id: each for each in table.metadata.snapshots}, list[Any]()
    at = table.metadata.current_snapshot_id
    while at in by_id and len(found) < len(by_id):
        found.append(by_id[at])
        at = found[-1].parent_snapshot_id
    return found


def _record_in(snapshot: Any, application: str) -> tuple[int, str]:
    """Number and id of the application's record that the snapshot is of; (0, '') for any other snapshot."""
    summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
    if summary.get(_APPLICATION) != application:
        return 0, ""
    return int(summary.get(_NUMBER, 0)), str(summary.get(_RECORD, ""))


def mentions(table: Any, record: Committable) -> bool:
    """Whether one of the snapshots that lead to the current one, and are retained, is the record's."""
    return any(_record_in(each, record.application)[1] == record.state.record_id for each in _lineage(table))


def reaches_back_to(table: Any, snapshot_id: int | None) -> bool:
    """Whether all is retained that leads to the current snapshot and came since this one was the newest.

    False where it has expired itself.
    """
    order = next((each.sequence_number for each in table.metadata.snapshots if each.snapshot_id == snapshot_id), None)
    return order is not None and any(each.sequence_number <= order for each in _lineage(table))


def was_picked(table: Any, record: Committable) -> bool:
    """Whether a snapshot that leads to the current one is a copy of the record's (``cherrypick_snapshot``)."""
    by_id = {str(each.snapshot_id): each for each in table.metadata.snapshots}
    copied = (each.summary.additional_properties.get(_PICKED) for each in _lineage(table) if each.summary is not None)
    return any(
        _record_in(by_id[each], record.application)[1] == record.state.record_id for each in copied if each in by_id
    )


def _removed(table: Any, application: str, path: str, number: int) -> Misuse:
    return Misuse(
        f"{path}: the table has record {number} of application '{application}', and the table property "
        f"'{PREFIX}{application}', which says how far it has come, was removed, or set back to an older value. Nothing "
        "was written. Set the property to the value that it has in the newest of the earlier metadata files that has "
        f"it with the number of that record; the newest of these is {_newest_log(table)}. If all is to be written "
        "anew, give the query another name (application='...')",
        kind="iceberg.state-removed",
    )


def _newest_log(table: Any) -> str:
    log = table.metadata.metadata_log
    return str(log[-1].metadata_file) if log else "not known any more"
