"""The group of all commands. Each command's module is imported when it is called, so that the help comes at once."""

import importlib
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from streamsink.cli.frame import SETTINGS
from streamsink.cli.output import FINDINGS, write_json
from streamsink.protocol.sink import VERSION


class _Entry(NamedTuple):
    module: str
    group: str
    text: str  # what the list of commands says of it


_LOOK, _CHECK, _MEND, _CARE, _TRY = "Look", "Check", "Mend", "Care", "Try"
# In the order in which the help lists them.
COMMANDS = {
    "snapshots": _Entry("looks", _LOOK, "The retained snapshots of a table."),
    "files": _Entry("looks", _LOOK, "The data files of a snapshot: how many, how large."),
    "partitions": _Entry("looks", _LOOK, "The partitions of a snapshot, with files, rows and bytes."),
    "positions": _Entry("queries", _LOOK, "How far each query has come."),
    "pending": _Entry("queries", _LOOK, "What is recorded in the journals and not published yet."),
    "offsets": _Entry("queries", _LOOK, "Where a new checkpoint of a Kafka query begins."),
    "report": _Entry("looks", _LOOK, "One page about a table, for a browser."),
    "verify": _Entry("checks", _CHECK, "Look whether a table is whole, down to its files."),
    "doctor": _Entry("checks", _CHECK, "What is wrong, in sentences, each with the command that mends it."),
    "recover": _Entry("mending", _MEND, "Publish what a dead query has left pending, or give it up."),
    "accept": _Entry("mending", _MEND, "What a word stands for that an error printed."),
    "unlock": _Entry("mending", _MEND, "Who holds a query's name; release what a dead driver has left."),
    "retire": _Entry("mending", _MEND, "Take a query out of a table for good."),
    "drop-missing": _Entry("mending", _MEND, "Take data files that are gone out of a table."),
    "dead-letters": _Entry("letters", _MEND, "Rows that did not fit: list, count, replay after a fix."),
    "restore": _Entry("files", _MEND, "Bring a file back from a backup that an error names."),
    "discard": _Entry("files", _MEND, "Delete a file or folder that an error tells to delete."),
    "rewind": _Entry("files", _MEND, "Let Spark plan a checkpoint's last batches anew."),
    "expire": _Entry("care", _CARE, "Let old snapshots expire, with the files that only they need."),
    "expire-partitions": _Entry("care", _CARE, "Drop partitions that are too old."),
    "tag": _Entry("care", _CARE, "Names for snapshots: list, create, create those that are due, delete, expire."),
    "branch": _Entry("branches", _CARE, "Branches of a table: list, create, fast-forward, delete."),
    "rollback": _Entry("branches", _CARE, "Give a table the rows that it had as of a snapshot."),
    "compact": _Entry("care", _CARE, "Let small files become few."),
    "orphans": _Entry("care", _CARE, "Files that nothing names."),
    "consumer": _Entry("upkeep", _CARE, "Readers that keep snapshots: list, clear, expire."),
    "set-options": _Entry("upkeep", _CARE, "Look at a table's options, or set them."),
    "register": _Entry("upkeep", _CARE, "Let a catalog have a table as it is."),
    "iceberg-metadata": _Entry("upkeep", _CARE, "Let readers of Iceberg see a table's newest snapshot."),
    "demo": _Entry("demo", _TRY, "A stream, an accident, and the account."),
    "bench": _Entry("demo", _TRY, "How long a micro-batch takes on your store."),
}


class Commands(click.Group):
    """Knows its commands by name, and imports a command's module when that is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(f"streamsink.cli.{entry.module}")
        found: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title in dict.fromkeys(entry.group for entry in COMMANDS.values()):
            rows = [(name.ljust(width), entry.text) for name, entry in COMMANDS.items() if entry.group == title]
            with formatter.section(title):
                formatter.write_dl(rows)


@click.group(cls=Commands, context_settings=SETTINGS)
@click.version_option(VERSION, prog_name="streamsink")
def cli() -> None:
    """Look after tables that streamsink writes, and after the queries that write them.

    PATH is the path of a table: a folder, or a URL of a store (s3://, s3a://, hdfs://). A command that changes or
    deletes something shows what it would do, and does it with --yes.

    \b
    Exit codes:
      0  all is right, or it is done; without --yes: there is nothing to do
      1  there are findings; without --yes: there is something that --yes would do
      2  the call is wrong
      3  refused, or it would be with --yes: the error says why, and nothing was done
      4  something is damaged that the command needs
      5  the store or another writer is in the way: try again

    Shell completion: eval "$(_STREAMSINK_COMPLETE=bash_source streamsink)", or zsh_source, or fish_source.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """What the console script runs."""
    words = list(arguments) if arguments is not None else sys.argv[1:]
    if "--json" not in words:
        cli.main(args=words, prog_name="streamsink")
    try:
        code = cli.main(args=words, prog_name="streamsink", standalone_mode=False)
    except click.UsageError as wrong:
        wrong.show()
        write_json({"error": {"kind": "usage", "message": wrong.format_message()}})
        code = wrong.exit_code
    except click.Abort:
        code = FINDINGS
    sys.exit(code)
