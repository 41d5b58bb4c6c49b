"""Commands for what others read of a table: its options, the readers that keep snapshots, its entry in a catalog."""

import importlib

import click

from streamsink.cli.frame import (
    SETTINGS,
    At,
    command,
    confirmed,
    of_path,
    of_query,
    pairs,
    proposed,
    settings_of,
    watched,
)
from streamsink.cli.output import Answer, Rows, age
from streamsink.clock import Clock


@command(
    "set-options",
    """
    $ streamsink set-options lake/shop.db/orders
    $ streamsink set-options lake/shop.db/orders snapshot.num-retained.max=20
    $ streamsink set-options lake/shop.db/orders --remove snapshot.num-retained.max --yes --json
    """,
)
@of_path()
@click.argument("settings", metavar="[NAME=VALUE]...", nargs=-1)
@click.option("--remove", multiple=True, metavar="NAME", help="Take this option away. May be repeated.")
@of_query
@confirmed
def set_options(
    *, at: At, settings: tuple[str, ...], remove: tuple[str, ...], given: tuple[str, ...], yes: bool
) -> Answer:
    """Look at the options of the table at PATH, or set those that care, compaction and writing read.

    As Paimon's ALTER TABLE ... SET. Options that say what the table's files are (keys, buckets, formats) stay. JSON:
    {table, done, options: {name: value}, changed: {name: [before, after]}}.
    """
    from streamsink.maintenance.opened import on_table
    from streamsink.operations.table_options import change

    wanted = pairs(settings, "NAME=VALUE")
    done = on_table(
        at.root, "set_options", at.options(given), lambda table: change(table, wanted, remove, dry_run=not yes)
    )
    shown = [[name, value, *done.changed.get(name, (value, value))] for name, value in sorted(done.options.items())]
    shown += [[name, None, *both] for name, both in done.changed.items() if name not in done.options]
    rows = [[name, before, after if before != after else ""] for name, _, before, after in shown]
    head = f"{at.root}: {len(done.options)} options, {len(done.changed)} {'changed' if yes else 'would change'}"
    said = {
        "table": at.root,
        "done": yes,
        "options": dict(done.options),
        "changed": {name: list(both) for name, both in done.changed.items()},
    }
    answer = Answer(said, [head, *([Rows("", ("option", "value", "new value"), rows)] if rows else [])])
    return proposed(answer, yes, would=bool(done.changed))


@click.group("consumer", context_settings=SETTINGS)
def consumer() -> None:
    """Readers of Paimon that have said which snapshot they need next, and so keep snapshots."""


@command("list", "$ streamsink consumer list lake/shop.db/orders")
@of_path()
@watched
def list_consumers(at: At) -> Answer:
    """The consumers of the table at PATH. JSON: {table, consumers: [{consumer, next_snapshot, silent_ms}]}."""
    from streamsink.table.history.retained import consumers
    from streamsink.table.table import open_table

    file_io, now = at.store.open(), Clock().now_ms()
    found = consumers(open_table(file_io, at.root, for_writing=False))
    seen = [file_io.modified_ms(each.path) for each in found]
    silent = [None if ms is None else now - ms for ms in seen]
    said = [
        {"consumer": each.name, "next_snapshot": each.next_snapshot, "silent_ms": ms} for each, ms in zip(found, silent)
    ]
    rows = [[each.name, each.next_snapshot, age(ms)] for each, ms in zip(found, silent)]
    head = f"{at.root}: {len(found)} consumers"
    columns = ("consumer", "next snapshot", "silent for")
    return Answer({"table": at.root, "consumers": said}, [head, *([Rows("", columns, rows)] if rows else [])])


@command("clear", "$ streamsink consumer clear lake/shop.db/orders --including 'report-.*'")
@of_path()
@click.option("--including", default=".*", show_default=True, metavar="PATTERN", help="Whose whole names match this.")
@click.option("--excluding", metavar="PATTERN", help="And not this.")
@of_query
@confirmed
def clear_consumers(at: At, including: str, excluding: str | None, given: tuple[str, ...], yes: bool) -> Answer:
    """Delete consumers of the table at PATH, so that they keep no snapshots. A reader of that name begins anew.

    JSON: {table, done, text, consumers}.
    """
    return _gone(at, "clear_consumers", yes, given, including, excluding)


@command("expire", "$ streamsink consumer expire lake/shop.db/orders")
@of_path()
@of_query
@confirmed
def expire_consumers(at: At, given: tuple[str, ...], yes: bool) -> Answer:
    """Delete the consumers that have been silent for longer than the table's option consumer.expiration-time.

    Without that option none goes. JSON: {table, done, text, consumers}.
    """
    return _gone(at, "expire_consumers", yes, given)


def _gone(at: At, name: str, yes: bool, given: tuple[str, ...], *arguments: str | None) -> Answer:
    function = getattr(importlib.import_module("streamsink.maintenance"), name)
    plan = function(at.root, *arguments, dry_run=not yes, options=at.options(given))
    answer = Answer({"table": at.root, "done": yes, "text": str(plan), "consumers": list(plan.names)}, [str(plan)])
    return proposed(answer, yes, would=bool(plan.names))


for _each in (list_consumers, clear_consumers, expire_consumers):
    consumer.add_command(_each)


@command(
    "register",
    """
    $ streamsink register lake/shop.db/orders --catalog metastore=hive --catalog uri=thrift://metastore:9083
    $ streamsink register lake/shop.db/orders --catalog-file catalog.json --yes --json
    $ streamsink register lake/shop.db/orders --catalog-file catalog.json --moved-from old/shop.db/orders
    """,
)
@of_path()
@click.option(
    "--catalog",
    multiple=True,
    metavar="NAME=VALUE",
    help="Property of the catalog, as docs/CATALOGS.md lists it (metastore=..., uri=...). May be repeated.",
)
@click.option(
    "--catalog-file",
    type=click.Path(exists=True, dir_okay=False),
    envvar="STREAMSINK_CATALOG",
    metavar="FILE",
    help="File with such properties as a JSON object; for a token, which does not belong on a command line. "
    "[env: STREAMSINK_CATALOG]",
)
@click.option(
    "--moved-from", metavar="LOCATION", help="Where the catalog has the table until now; it gets the place of PATH."
)
@of_query
@confirmed
def register(
    *,
    at: At,
    catalog: tuple[str, ...],
    catalog_file: str | None,
    moved_from: str | None,
    given: tuple[str, ...],
    yes: bool,
) -> Answer:
    """Let a catalog have the table at PATH as it is, as Paimon's procedure sys.repair does. Its query may run.

    JSON: {table, done, change}. 'change' is 'registered' for a table that the catalog did not have, 'updated' for one
    that it had at another place, or with other columns or parameters, and '' where it has the table as it is.
    """
    from streamsink.maintenance import repair

    properties = settings_of(catalog, catalog_file, "--catalog", "--catalog-file")
    options = at.options(given, catalog=properties)
    change = repair(at.root, moved_from=moved_from, dry_run=not yes, options=options)
    text = f"{'is' if yes else 'would be'} {change} in the catalog" if change else "is in the catalog as it is"
    answer = Answer({"table": at.root, "done": yes, "change": change}, [f"{at.root} {text}"])
    return proposed(answer, yes, would=bool(change))


@command(
    "iceberg-metadata",
    """
    $ streamsink iceberg-metadata lake/shop.db/orders
    $ streamsink iceberg-metadata lake/shop.db/orders --yes --json
    """,
)
@of_path()
@of_query
@confirmed
def iceberg_metadata(at: At, given: tuple[str, ...], yes: bool) -> Answer:
    """Let readers of Iceberg see the newest snapshot of the table at PATH, as the next commit would. Its query may run.

    That is for a table with the option metadata.iceberg.storage (docs/ICEBERG_METADATA.md). JSON: {table, done,
    lacking}; 'lacking' is what readers did not see, '' for nothing.
    """
    from streamsink.maintenance.opened import on_table
    from streamsink.table.iceberg_metadata.behind import catch_up

    options = at.options(given)
    lacking = on_table(at.root, "iceberg_metadata", options, lambda table: catch_up(table, dry_run=not yes))
    text = f"{at.root}: {lacking}." if lacking else f"{at.root}: readers of Iceberg lack nothing of it."
    lines = [text, *(["It is made."] if yes and lacking else [])]
    return proposed(Answer({"table": at.root, "done": yes, "lacking": lacking}, lines), yes, would=bool(lacking))
