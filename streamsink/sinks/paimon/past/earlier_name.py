"""Tables with dead letters that earlier code has written: such a query goes on under its earlier name. Driver only.

That code took the table and its dead letters for several tables of another application. It kept the journal in the
folder above the table, and the state under another key.
"""

from streamsink.errors import Misuse
from streamsink.journal.file_journal import FileJournal, journal_dir
from streamsink.protocol.committable import AppState
from streamsink.sinks.paimon.past.place import SUFFIX
from streamsink.storage.file_io import FileIO
from streamsink.table.table import Table, is_table, open_table


def goes_on_under(
    file_io: FileIO, path: str, application: str, earlier: str, *, query: str, dead_letters: str
) -> str | None:
    """``earlier`` when the table at ``path`` goes on as one of several tables under that name; None otherwise.

    None means that the query goes on under the table's own application. Where both names have a past, the one that
    knows the later batch of the query decides. query: the query's id. dead_letters: name of the table for dead letters.
    Raises Misuse when neither name knows the query, so that it cannot be told which is meant.
    """
    table = open_table(file_io, path, for_writing=False) if is_table(file_io, path) else None
    root, _, name = path.rpartition("/")
    newest = FileJournal(file_io, root, earlier, 2).newest()
    written = set(newest.payload.get("heads", {})) if newest is not None else set()
    of_this = newest is not None and (name in written or written <= {dead_letters})
    before = newest.state if newest is not None and of_this else _newest(table, earlier + SUFFIX, None)
    # A driver of that code may have claimed the name and not recorded its first batch yet. A start under that name
    # fences it.
    is_claimed = newest is None and bool(file_io.names(journal_dir(root, earlier)))
    if before is None and not is_claimed:
        return None
    own = _newest(table, application, FileJournal(file_io, path, application, 2))
    if own is None or before is None:
        return earlier if own is None else None
    if query not in (own.query, before.query):
        if application == earlier:
            return None  # a journal of one table was begun under the same name after that of several
        raise Misuse(
            f"{path}: it was written under two names, and this query ({query}) is the last one of neither: as "
            f"application '{application}' up to {own.checkpoint_name} of query {own.query}, and as '{earlier}', with "
            f"dead letters, up to {before.checkpoint_name} of query {before.query}. Nothing was written. Set "
            f"application='{application}' or application='{earlier}' to say which one goes on",
            kind="application.two-names",
        )
    ours, theirs = ((state.query == query, state.checkpoint_id) for state in (own, before))
    return earlier if theirs > ours else None


def _newest(table: Table | None, key: str, journal: FileJournal | None) -> AppState | None:
    """The last record under this name, published or not: the newer one of the table's and the journal's."""
    said = table.states.read(table.snapshots.latest()).by_application.get(key) if table is not None else None
    state = AppState.from_json(said) if said is not None else None
    newest = journal.newest() if journal is not None else None
    return newest.state if newest is not None and (state is None or newest.state.sequence > state.sequence) else state
