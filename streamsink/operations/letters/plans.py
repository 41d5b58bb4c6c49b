"""Which letters were replayed: the plans of runs, ``<journal>/replays/<run id>``, in all journals of a table.

A name is no identity: letters are known by their digests, whatever the replay is called that took them. So a replay
counts the plans of all applications of the table, and ends those of other names first, as it ends its own.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from streamsink import shell
from streamsink.errors import Corrupt, Fenced
from streamsink.journal.file_journal import FileJournal, journal_dir
from streamsink.journal.repair import REPLAYS, is_of_replay
from streamsink.operations.holds import ALIVE, look_at_hold
from streamsink.operations.journals import applications_of, owner_of
from streamsink.operations.recover import recover
from streamsink.options import SinkOptions
from streamsink.protocol.committable import AppState
from streamsink.storage.file_io import FileIO
from streamsink.table.table import Table

# Begins what stands for a replay in the record of who owns the application, where queries have their ids.
CLAIMED_BY = "replay"


def make_plan(file_io: FileIO, root: str, application: str, digests: Sequence[str], base: int) -> str:
    """Make durable which letters the run takes, and return its id. base: number of the last published record."""
    letters = sorted(digests)
    run_id = f"{base + 1}-{hashlib.sha256(json.dumps(letters).encode()).hexdigest()[:32]}"
    body = json.dumps({"run": run_id, "letters": letters}).encode()
    # A file of that name is of an earlier try, of the same letters.
    file_io.create_if_absent(os.path.join(_folder(root, application), run_id), body)
    return run_id


def end_others(file_io: FileIO, root: str, options: SinkOptions) -> None:
    """End the replays into this table that had other names: what they have left pending is published.

    Called with the application claimed, so that of two that begin at one time at least one sees the other. A driver of
    another name that was only paused, and whose hold has run out, is fenced when it goes on. Raises Fenced while one
    lives, and what ``recover`` raises about another one's records.
    """
    for name in applications_of(file_io, root):
        owner = owner_of(file_io, journal_dir(root, name)) if name != options.application else None
        if owner is None or not owner.query.startswith(f"{CLAIMED_BY}-"):
            continue
        if look_at_hold(file_io, root, name, wait=True).state == ALIVE:
            raise Fenced(
                f"{root}: a replay of dead letters into this table runs as application '{name}' (process {owner.pid} "
                f"on {owner.host}), and it may take the same letters. Nothing was written. Call this again when it has "
                "ended",
                kind="replay.in-use",
            )
        recover(file_io, root, replace(options, application=name))


def done_by_all(
    table: Table, application: str, states: Mapping[str, AppState], lost: Collection[str] = ()
) -> Counter[str]:
    """How often each letter was replayed into the table, by its digest.

    application: of the replay that asks. states: the last published state of each application. What is pending behind
    it counts as well, because that is published first. lost: names of replays whose journals are gone for good: what
    is not known of them does not count. Raises Corrupt where it is not known what one of the others has replayed.
    """
    done: Counter[str] = Counter()
    replays = {name for name, state in states.items() if is_of_replay(state)}
    for name in sorted({application, *replays, *applications_of(table.file_io, table.root)}):
        state = states.get(name)
        published = _add(done, table, name, state)
        base = state.sequence if state is not None else 0
        if name in replays | {application} and published != base and name not in lost:
            raise _unknown(table.root, name, base, published)
    return done


def check_journal(table: Table, application: str, state: AppState | None, lost: Collection[str]) -> None:
    """Raises Corrupt where the application has replayed letters, and has no journal here.

    It is called before one is begun: into the place of another one a journal cannot be brought back. state, lost: as of
    ``done_by_all``.
    """
    if state is not None and is_of_replay(state) and application not in lost:
        if not table.file_io.names(journal_dir(table.root, application)):
            raise _unknown(table.root, application, state.sequence, 0)


def _unknown(root: str, name: str, base: int, published: int) -> Corrupt:
    """The error where it is not known what was replayed under this name."""
    without = ("dead-letters", "replay", "LETTERS", "--application", "NEW-NAME", "--without-journal", name)
    return Corrupt(
        f"{root}: {base} replays of application '{name}' are published, and its journal {journal_dir(root, name)} has "
        f"the plans of {published}: it was removed, or is an older copy, or that of a branch stands elsewhere, so "
        "which letters are in the table already is not known. Nothing was written. Restore the journal "
        f"{shell.restore(journal_dir(root, name))}; where the table has taken over a branch, COPY is the journal of "
        "that name in the branch's folder. If it is lost, look which of the letters' rows are in the table, and replay "
        f"only others, which --reason or --from choose, under another name {shell.in_a_shell(*without)}",
        kind="replay.unknown",
    )


def _add(done: Counter[str], table: Table, application: str, last: AppState | None) -> int:
    """Count the letters that an application has replayed. Returns how many of its runs with a plan are published."""
    file_io, folder = table.file_io, _folder(table.root, application)
    plans = sorted(file_io.names(folder))
    if not plans:
        return 0
    journal = FileJournal(file_io, table.root, application, 2, of_table=True)
    journal.read_listing()
    pending = _pending_runs(journal, last.sequence if last is not None else 0)
    published = 0
    for run_id in plans:
        # The last one may have no mark yet.
        is_last = last is not None and run_id == last.query
        is_published = is_last or bool(journal.known_run(run_id, table.table_id).is_published)
        if is_published or run_id in pending:
            done.update(_read_plan(file_io, os.path.join(folder, run_id)))
            published += run_id not in pending
    return published


def _folder(root: str, application: str) -> str:
    return os.path.join(journal_dir(root, application), REPLAYS)


def _pending_runs(journal: FileJournal, base: int) -> set[str]:
    records = (journal.load(sequence) for sequence in journal.retained() if sequence > base)
    return {record.state.query for record in records if record is not None}


def _read_plan(file_io: FileIO, path: str) -> list[str]:
    try:
        return list(map(str, json.loads(file_io.read(path))["letters"]))
    except (ValueError, KeyError, TypeError) as broken:
        raise Corrupt(
            f"{path}: not a valid plan of a replay ({type(broken).__name__}), so which letters are in the table "
            f"already is not known. Nothing was written. Restore it {shell.restore(path)}",
            kind="replay.plan",
        ) from broken
