"""Commands that look at a table: its snapshots, files and partitions, and all of it in a page. Metadata only."""

import dataclasses
import os
import pathlib
from collections import defaultdict
from typing import TYPE_CHECKING

import click

from streamsink.cli.frame import At, command, of_path, progress, watched
from streamsink.cli.output import FINDINGS, RIGHT, Answer, Rows, when
from streamsink.table.layout import Layout
from streamsink.table.snapshots import Snapshots

if TYPE_CHECKING:
    from streamsink.format.snapshot import Snapshot
    from streamsink.table.read.scan import ScanFile
    from streamsink.table.table import Table

_SNAPSHOT = ("id", "time", "kind", "rows", "added", "commit user", "identifier")


@command(
    "snapshots",
    """
    $ streamsink snapshots lake/shop.db/orders
    $ streamsink snapshots lake/shop.db/orders --limit 3 --json
    """,
)
@of_path()
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, help="Show at most so many, the newest."
)
@watched
def snapshots(at: At, limit: int) -> Answer:
    """The retained snapshots of the table at PATH, the newest first.

    'rows' is how many the snapshot has, 'added' how many more than the one before. JSON: {table, retained, snapshots:
    [{id, time_ms, kind, rows, added_rows, commit_user, commit_identifier, schema_id, watermark_ms}]}.
    """
    file_io, layout = at.store.open(), Layout(at.root)
    if not file_io.exists(layout.schema(0)):
        _open(at)
    chain = Snapshots(file_io, layout)
    ids = chain.ids()
    found = [snapshot for number in ids[-limit:][::-1] if (snapshot := chain.load(number)) is not None]
    head = f"{at.root}: {len(ids)} snapshots are retained" + (f", {ids[0]} to {ids[-1]}" if ids else "")
    return Answer(
        {"table": at.root, "retained": len(ids), "snapshots": [_said(each) for each in found]},
        [head, *([Rows("", _SNAPSHOT, [_row(each) for each in found])] if found else [])],
    )


@command(
    "files",
    """
    $ streamsink files lake/shop.db/orders
    $ streamsink files lake/shop.db/orders --snapshot 2 --all
    """,
)
@of_path()
@click.option("--snapshot", type=click.IntRange(1), metavar="ID", help="Of this snapshot; else of the newest one.")
@click.option("--all", "every", is_flag=True, help="List every file, not only the 20 largest.")
@watched
def files(at: At, snapshot: int | None, every: bool) -> Answer:
    """The data files of a snapshot of the table at PATH: how many, how large, and the largest ones.

    JSON: {table, snapshot, files, bytes, rows, listed: [{path, bytes, rows, schema_id}]}; path is relative to the
    table.
    """
    table = _open(at)
    newest, found = _files(table, snapshot)
    largest = sorted(found, key=lambda file: (-file.size, file.path))[: None if every else 20]
    total, rows = sum(file.size for file in found), sum(file.rows for file in found)
    listed = [
        {"path": table.layout.relative(file.path), "bytes": file.size, "rows": file.rows, "schema_id": file.schema_id}
        for file in largest
    ]
    number = newest.id if newest else None
    head = f"{table.root}: snapshot {number or '-'} has {len(found):,} files, {total:,} bytes, {rows:,} rows"
    shown = [[each["bytes"], each["rows"], each["schema_id"], each["path"]] for each in listed]
    return Answer(
        {"table": table.root, "snapshot": number, "files": len(found), "bytes": total, "rows": rows, "listed": listed},
        [head, *([Rows("", ("bytes", "rows", "schema", "file"), shown)] if shown else [])],
    )


@command(
    "partitions",
    """
    $ streamsink partitions lake/shop.db/orders
    $ streamsink partitions lake/shop.db/orders --json
    """,
)
@of_path()
@click.option("--snapshot", type=click.IntRange(1), metavar="ID", help="Of this snapshot; else of the newest one.")
@watched
def partitions(at: At, snapshot: int | None) -> Answer:
    """The partitions of a snapshot of the table at PATH, with their files, rows and bytes.

    A table without partitions is one. JSON: {table, snapshot, partitions: [{partition, files, rows, bytes}]}.
    """
    table = _open(at)
    newest, found = _files(table, snapshot)
    groups: dict[str, list[ScanFile]] = defaultdict(list)
    for file in found:
        groups[os.path.dirname(os.path.dirname(table.layout.relative(file.path)))].append(file)
    shown = [
        [name or "(all)", len(mine), sum(f.rows for f in mine), sum(f.size for f in mine)]
        for name, mine in sorted(groups.items())
    ]
    number, columns = newest.id if newest else None, ("partition", "files", "rows", "bytes")
    listed = [dict(zip(columns, row)) for row in shown]
    head = f"{table.root}: snapshot {number or '-'} has {len(shown):,} partitions"
    return Answer(
        {"table": table.root, "snapshot": number, "partitions": listed},
        [head, *([Rows("", columns, shown)] if shown else [])],
    )


@command(
    "report",
    """
    $ streamsink report lake/shop.db/orders
    $ streamsink report lake/shop.db/orders --out orders.html --branch work
    $ streamsink report lake/shop.db/orders --no-findings --json
    """,
    exits="1 when something is damaged, or a command is to be run, as for doctor",
)
@of_path()
@click.option("--out", metavar="FILE", type=click.Path(dir_okay=False), help="The page; else NAME-report.html, here.")
@click.option("--branch", metavar="NAME", help="Of this branch of the table.")
@click.option(
    "--snapshots",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="Read at most so many, the newest. One file each.",
)
@click.option("--no-findings", is_flag=True, help="Do not look for what is wrong, which asks for each file.")
def report(at: At, out: str | None, branch: str | None, snapshots: int, no_findings: bool) -> Answer:
    """Write one HTML page about the table at PATH, which stands alone: for a browser, a mail, or a ticket.

    It has snapshots over time, restarts and accidents, latency of commits, rows and bytes of batches, file sizes,
    partitions, positions, pending work, maintenance, and what doctor finds. With --json its data are printed, and a
    page is written only to --out. FILE may be an older page, and no other file. docs/REPORT.md has the names of the
    JSON.
    """
    from streamsink.operations.report.gather import Wanted, gather, is_ill_at
    from streamsink.operations.report.page import page
    from streamsink.operations.report.written import default_name, is_replaceable, write

    at = at if branch is None else dataclasses.replace(at, root=Layout(Layout(at.root).main).branch_root(branch))
    to_file = out is not None or not click.get_current_context().params["as_json"]
    file = out if out is not None else default_name(at.root)
    if to_file and not is_replaceable(file):
        raise click.BadParameter(f"{file} is there, and is no report. Nothing was written", param_hint="--out")
    document = gather(at.store.open(), at.root, Wanted(snapshots, not no_findings), progress)
    code = FINDINGS if is_ill_at(document) else RIGHT
    if not to_file:
        return Answer(document, code=code)
    written = write(file, page(document, at.typed))
    summary, found = document["summary"], document["findings"]
    said = f"{file}: {written:,} bytes about {summary['read']:,} snapshots, {summary['rows']:,} rows"
    ills = "" if found is None else f"; {found['count'] or 'no'} finding{'' if found['count'] == 1 else 's'}"
    return Answer(document, [said + ills, f"open it: {pathlib.Path(os.path.abspath(file)).as_uri()}"], code)


def _open(at: At) -> "Table":
    from streamsink.table.table import open_table

    return open_table(at.store.open(), at.root, for_writing=False)


def _files(table: "Table", snapshot: int | None) -> "tuple[Snapshot | None, list[ScanFile]]":
    from streamsink.table.read.scan import plan

    return plan(table, snapshot)


def _said(snapshot: "Snapshot") -> dict[str, object]:
    return {
        "id": snapshot.id,
        "time_ms": snapshot.time_millis,
        "kind": snapshot.commit_kind,
        "rows": snapshot.total_record_count,
        "added_rows": snapshot.delta_record_count,
        "commit_user": snapshot.commit_user,
        "commit_identifier": snapshot.commit_identifier,
        "schema_id": snapshot.schema_id,
        "watermark_ms": snapshot.watermark,
    }


def _row(snapshot: "Snapshot") -> list[object]:
    return [
        snapshot.id,
        when(snapshot.time_millis),
        snapshot.commit_kind,
        snapshot.total_record_count,
        snapshot.delta_record_count,
        snapshot.commit_user,
        str(snapshot.commit_identifier),
    ]
