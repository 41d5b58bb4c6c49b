"""Commands for dead letters: list and count them, and replay them into their table after a fix."""

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from streamsink.cli.frame import SETTINGS, At, command, confirmed, of_path, of_query, proposed, watched
from streamsink.cli.output import FINDINGS, RIGHT, Answer, Rows
from streamsink.storage.stores import table_path

if TYPE_CHECKING:
    from streamsink.operations.letters.replay import Replay
    from streamsink.operations.letters.selection import Chosen, Letter

_CHECKPOINTS = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?")
_CHOICES = (
    click.option("--target", metavar="NAME", help="Only letters whose rows were to go to this table."),
    click.option("--from", "source", metavar="NAME", help="Only letters of this query, its option application."),
    click.option("--reason", metavar="KIND", help="Only letters with this kind of reason, such as data.cast."),
    click.option(
        "--checkpoint",
        metavar="FIRST[-LAST]",
        callback=lambda ctx, param, given: _checkpoints(given),
        help="Only letters of this checkpoint, the number of a batch, or of those from FIRST to LAST.",
    ),
)


def _choosing(function: Any) -> Any:
    for option in reversed(_CHOICES):
        function = option(function)
    return function


def _checkpoints(given: str | None) -> tuple[int, int] | None:
    found = _CHECKPOINTS.fullmatch(given) if given is not None else None
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if given is not None and first > last:
        raise click.BadParameter(f"'{given}' is neither a number nor FIRST-LAST")
    return (first, last) if given is not None else None


def _chosen(target: str | None, source: str | None, reason: str | None, checkpoint: tuple[int, int] | None) -> "Chosen":
    from streamsink.operations.letters.selection import Chosen

    return Chosen(target, source, reason, checkpoint)


@click.group("dead-letters", context_settings=SETTINGS)
def dead_letters() -> None:
    """Rows that did not fit their table: list them, count them by reason, replay them after a fix.

    PATH is the table for dead letters, which lies beside the tables that the rows were meant for.
    """


@command("list", "$ streamsink dead-letters list lake/shop.db/rejected --reason data.cast --limit 5")
@of_path()
@_choosing
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Show at most so many.")
@watched
def list_letters(
    *,
    at: At,
    target: str | None,
    source: str | None,
    reason: str | None,
    checkpoint: tuple[int, int] | None,
    limit: int,
) -> Answer:
    """The dead letters in the table at PATH: whole rows, with the reason why each did not fit.

    JSON: {path, letters: number, listed: [{application, checkpoint_id, target, reason, column, row, positions,
    table_id}]}; 'table_id' is the identity of the table that the query wrote to then, or of its journal for several.
    """
    from streamsink.operations.letters.selection import letters_of, open_letters

    found = letters_of(open_letters(at.store.open(), at.root), _chosen(target, source, reason, checkpoint))
    shown = [[each.application, each.checkpoint_id, each.target, each.reason, each.row] for each in found[:limit]]
    columns = ("application", "checkpoint", "target", "reason", "row")
    head = f"{at.root}: {len(found):,} dead letters"
    return Answer(
        {"path": at.root, "letters": len(found), "listed": [_said(each) for each in found[:limit]]},
        [head, *([Rows("", columns, shown)] if shown else [])],
    )


@command(
    "count",
    """
    $ streamsink dead-letters count lake/shop.db/rejected
    $ streamsink dead-letters count lake/shop.db/rejected --target clicks --json
    """,
)
@of_path()
@_choosing
@watched
def count_letters(
    at: At, target: str | None, source: str | None, reason: str | None, checkpoint: tuple[int, int] | None
) -> Answer:
    """How many dead letters the table at PATH has, by query, target, reason and column.

    Letters that were replayed are counted as well: they stay where they are. JSON: {path, letters, counts:
    [{application, target, reason, column, letters}]}.
    """
    from streamsink.operations.letters.selection import counts, letters_of, open_letters

    found = letters_of(open_letters(at.store.open(), at.root), _chosen(target, source, reason, checkpoint))
    shown = [[*key, number] for key, number in counts(found)]
    columns = ("application", "target", "reason", "column", "letters")
    head = f"{at.root}: {len(found):,} dead letters"
    return Answer(
        {"path": at.root, "letters": len(found), "counts": [dict(zip(columns, row)) for row in shown]},
        [head, *([Rows("", columns, shown)] if shown else [])],
    )


@command(
    "replay",
    """
    $ streamsink dead-letters replay lake/shop.db/rejected --target clicks
    $ streamsink dead-letters replay lake/shop.db/rejected --target clicks --checkpoint 0-1
    $ streamsink dead-letters replay lake/shop.db/rejected --target clicks --yes --json
    """,
    exits="1 when letters still do not fit",
)
@of_path()
@_choosing
@click.option("--into", metavar="PATH", help="The table; else the target's name beside the letters.")
@click.option(
    "--columns",
    metavar="NAMES",
    help="Those of the rows' columns that the table takes, as the query's table has the option columns: names with "
    "commas, or 'existing' for those that the table has; else all but the position columns.",
)
@click.option("--application", "-a", metavar="NAME", help="Name of the replay; else 'replay-' and the letters' table.")
@click.option(
    "--without-journal",
    multiple=True,
    metavar="NAME",
    help="An earlier replay whose journal is gone for good. What it has written is not known then: choose other "
    "letters with --reason or --from.",
)
@click.option(
    "--earlier-tables/--this-table",
    default=None,
    help="Also letters that may be of an earlier table of this name, which was dropped, or of the table before it was "
    "restored: look first whether rows came again. Or only those of the table as it is.",
)
@of_query
@confirmed
def replay_letters(
    *,
    at: At,
    target: str | None,
    source: str | None,
    reason: str | None,
    checkpoint: tuple[int, int] | None,
    into: str | None,
    columns: str | None,
    application: str | None,
    without_journal: tuple[str, ...],
    earlier_tables: bool | None,
    given: tuple[str, ...],
    yes: bool,
) -> Answer:
    """Write dead letters into the table that they were meant for, after it was fixed, each row once.

    Fix the table first (a wider type, a column more, a column that takes nulls). Rows that fit now are written as one
    checkpoint of an application of its own; those that still do not fit stay for a later replay. A second call, and a
    call after a death anywhere, writes no row again. The letters stay in their table. The replay's journal knows what
    was replayed, so it is not retired. Rows of replays that 'streamsink rollback' took out of the table stay out: write
    them anew, by a run of their own (streamsink.write). JSON: {path, table, application, run, replayed, before, unfit:
    [{..., why}], taken_out: [snapshot], left_out}; 'before' is how many of the letters were replayed earlier,
    'taken_out' the rollbacks that took rows of replays out, 'left_out' how many letters --this-table left.
    """
    from streamsink.operations.letters.replay import application_of, look, replay
    from streamsink.table.routed.rules import EXISTING

    if target is None:
        raise click.UsageError("give --target: the name of the table that the letters' rows were meant for")
    root = table_path(into) if into is not None else table_path(f"{at.root.rpartition('/')[0]}/{target}")
    name = application if application is not None else application_of(at.root)
    options = At(root, at.store_options).options(given, application=name)
    chosen = _chosen(target, source, reason, checkpoint)
    taken = columns if columns in (None, EXISTING) else [name.strip() for name in columns.split(",")]
    done = (replay if yes else look)(
        at.store.open(),
        root,
        at.root,
        chosen,
        options,
        columns=taken,
        without_journals=without_journal,
        earlier_tables=earlier_tables,
    )
    answer = Answer(_document(at, done), _lines(done, yes=yes), FINDINGS if done.unfit else RIGHT)
    return proposed(answer, yes, would=done.replayed > 0)


def _lines(done: "Replay", *, yes: bool) -> list[str | Rows]:
    what = f"{done.replayed:,} rows {'were' if yes else 'would be'} written"
    lines: list[str | Rows] = [f"{done.table}: {what}; {done.before:,} letters were replayed before"]
    if done.left_out:
        lines.append(f"{done.left_out:,} letters are left out, which may be of an earlier table")
    if done.taken_out:
        numbers = ", ".join(map(str, done.taken_out))
        lines.append(
            f"The table went back on purpose (snapshot {numbers}), and rows of replays left it with that. They are not "
            "written again: write them anew, by a run of their own (streamsink.write)"
        )
    if done.unfit:
        reasons = Counter(why for _, why in done.unfit)
        lines.append(
            Rows("These still do not fit:", ("letters", "why"), [[n, why] for why, n in reasons.most_common()])
        )
    return lines


def _document(at: At, done: "Replay") -> dict[str, Any]:
    return {
        "path": at.root,
        "table": done.table,
        "application": done.application,
        "run": done.run,
        "replayed": done.replayed,
        "before": done.before,
        "unfit": [{**_said(letter), "why": why} for letter, why in done.unfit],
        "taken_out": list(done.taken_out),
        "left_out": done.left_out,
    }


def _said(letter: "Letter") -> dict[str, Any]:
    return {
        "application": letter.application,
        "checkpoint_id": letter.checkpoint_id,
        "target": letter.target,
        "reason": letter.reason,
        "column": letter.column,
        "row": letter.row,
        "positions": {name: str(value) for name, value in letter.positions},
        "table_id": letter.table_id,
    }


for _each in (list_letters, count_letters, replay_letters):
    dead_letters.add_command(_each)
