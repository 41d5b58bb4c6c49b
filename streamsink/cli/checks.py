"""Commands that look whether a table is whole, and say what mends it."""

import dataclasses

import click

from streamsink.cli.frame import At, command, of_application, of_path, of_sink, progress, query_of, sink_named, watched
from streamsink.cli.output import FINDINGS, RIGHT, Answer, Rows


@command(
    "verify",
    """
    $ streamsink verify lake/shop.db/orders
    $ streamsink verify lake/shop.db/orders --contents --json
    """,
    exits="1 when something is damaged; notes alone are all right",
)
@of_path()
@of_sink
@of_application(required=False)
@click.option("--contents", is_flag=True, help="Read each data file as well.")
@watched
def verify(at: At, sink: str | None, application: str | None, contents: bool) -> Answer:
    """Look whether the table at PATH is whole: snapshots, manifests, files, counts, and the journals of its queries.

    Of a sink it looks at the journal of one query, which --application names where several have one there. JSON:
    {table, ok, snapshots, files, rows, findings: [{severity, kind, message}]}.
    """
    import streamsink
    from streamsink.commands.verify import verify as of_table

    if sink is not None:
        of = sink_named(sink)
        _, query = query_of(at, of, application)
        named = {} if query is None else {"application": query}
        report = streamsink.verify(of, at.store_options, contents, **named)
    elif application is not None:
        raise click.UsageError("--application goes with --sink: of a table the journals of all its queries are checked")
    else:
        report = of_table(at.store.open(), at.root, contents, _told)
    said = {
        "table": report.table,
        "ok": report.ok,
        "snapshots": report.snapshots,
        "files": report.files,
        "rows": report.rows,
        "findings": [vars(finding) for finding in report.findings],
    }
    return Answer(said, [str(report)], RIGHT if report.ok else FINDINGS)


def _told(done: int, every: int) -> None:
    progress(f"{done:,} of {every:,} snapshots are checked")


@command(
    "doctor",
    """
    $ streamsink doctor lake/shop.db/orders
    $ streamsink doctor lake/shop.db/orders --contents --json
    """,
    exits="1 when something is damaged, or a command is to be run",
)
@of_path(journals=True)
@click.option("--contents", is_flag=True, help="Read each data file as well.")
@watched
def doctor(at: At, contents: bool) -> Answer:
    """What is wrong with the table at PATH and its queries, in sentences, each with the command that mends it.

    PATH may also be the folder of several tables, or of another sink; then its journals are looked at. JSON: {path,
    findings: [{severity, kind, text, command}]}.
    """
    from streamsink.operations.doctor import diagnose, is_ill

    found = [
        dataclasses.replace(each, command=f"{each.command} {at.typed}".rstrip()) if each.command else each
        for each in diagnose(at.store.open(), at.root, contents=contents, told=_told)
    ]
    lines: list[str | Rows] = [f"{at.root}: {len(found) or 'no'} finding{'' if len(found) == 1 else 's'}"]
    for each in found:
        lines.append(f"{each.severity}: {each.text}")
        if each.command:
            lines.append(f"    $ {each.command}")
    return Answer(
        {"path": at.root, "findings": [vars(each) for each in found]}, lines, FINDINGS if is_ill(found) else RIGHT
    )
