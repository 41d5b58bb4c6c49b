"""``streamsink.maintenance.delete_branch``: a branch is taken away, with the journals of those who wrote to it."""

from contextlib import ExitStack, suppress

from streamsink import shell
from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.journal.file_journal import JOURNAL_DIR
from streamsink.journal.repair import RepairJournal, is_of_replay
from streamsink.protocol.committable import AppState
from streamsink.storage.file_io import FileIO
from streamsink.table.branching.branches import TAG_PREFIX, check_name
from streamsink.table.branching.targets import tags_of
from streamsink.table.layout import Layout
from streamsink.table.schemas import Schemas
from streamsink.table.table import Table, open_table

# As ``streamsink.retire`` opens a journal: nothing is pruned by it.
_RETAIN = 2


def delete_branch(file_io: FileIO, root: str, name: str, *, dry_run: bool = False) -> tuple[str, ...]:
    """Delete the folder of a branch, and the tags of the table that were made to keep it. Returns what goes: paths.

    Data files that only the branch had stay, for the cleaning of orphans. What is pending in its journals is given up.
    Idempotent until it is done; after a crash: call it again. Raises Misuse where there is nothing of such a branch, or
    where a journal of it alone knows which dead letters the table has; and Fenced while a query writes to it.
    """
    table = open_table(file_io, root, for_writing=False)
    check_name(table.layout.main, name)
    path = table.layout.branch_root(name)
    tags = tuple(at for tag, at in tags_of(table) if _is_of(tag, name))
    if not file_io.entries(path) and not tags:
        raise Misuse(
            f"{table.layout.main}: there is no branch '{name}'. Nothing was deleted. Look at what there is: "
            f"streamsink.maintenance.branches({table.layout.main!r})",
            kind="branch.missing",
        )
    _check_replays(table, name)
    if dry_run:
        return (path, *tags)
    at = Layout(path)
    with ExitStack() as claimed:
        for _, application in applications_of(file_io, root, name):
            journal = RepairJournal(file_io, path, application, _RETAIN, of_table=True)
            journal.claim(f"delete-branch-{IdSource().new_id()}", 0)
            claimed.callback(journal.release)
        for schema_id in _schema_ids(file_io, at):  # with the first one the branch is gone
            file_io.delete(at.schema(schema_id))
        file_io.delete_tree(path)
    file_io.delete_tree(path)  # what giving the claims back has left
    _make_durable(file_io, path)
    for tag in tags:
        file_io.delete(tag)
    for tag in tags[:1]:
        _make_durable(file_io, tag)
    return (path, *tags)


def _check_replays(table: Table, name: str) -> None:
    """Raises Misuse when the table has taken over dead letters that were replayed into the branch, whose journal alone
    knows which.
    """
    io, main = table.file_io, table.layout.main
    for path, application in applications_of(io, main, name):
        of_branch, of_main = (RepairJournal(io, at, application, _RETAIN, of_table=True) for at in (path, main))
        alone = set(of_branch.replays()) - set(of_main.replays())
        said = table.states.read(table.snapshots.latest()).by_application.get(application) if alone else None
        state = AppState.from_json(said) if said is not None else None
        if state is not None and is_of_replay(state) and state.query in alone:
            raise Misuse(
                f"{main}: the journal {of_branch.place} of branch '{name}' alone knows which dead letters were "
                "replayed into the table, which has taken the branch over: without it each further replay is refused. "
                "Nothing was deleted. Bring it into the table, and delete the branch then "
                f"{shell.command('restore', of_main.place, '--from', of_branch.place, '--yes')}",
                kind="branch.replays",
            )


def applications_of(file_io: FileIO, root: str, name: str) -> list[tuple[str, str]]:
    """(path of the branch, application) of the journals in a branch of this table."""
    path = Layout(root).branch_root(name)
    return [(path, entry.name) for entry in file_io.entries(Layout(path).within(JOURNAL_DIR)) if entry.is_dir]


def _make_durable(file_io: FileIO, deleted: str) -> None:
    """Let no power failure bring back what is deleted: it would come without the manifests that others have taken away
    since, and then nothing in the table could be cared for.
    """
    with suppress(FileNotFoundError):
        file_io.sync_dir(deleted.rpartition("/")[0])


def _is_of(tag: str, name: str) -> bool:
    """Whether the tag was made to keep a branch of this name: its own name ends with the number of a snapshot."""
    return tag.startswith(f"{TAG_PREFIX}{name}-") and tag.removeprefix(f"{TAG_PREFIX}{name}-").isdigit()


def _schema_ids(file_io: FileIO, at: Layout) -> list[int]:
    if not file_io.exists(at.schema(0)):
        return []
    return [each for each in range(Schemas(file_io, at).latest().id + 1) if file_io.exists(at.schema(each))]
