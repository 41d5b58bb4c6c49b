"""docs/CLI.md, made from the help of the commands: ``python -m tests.cli_page`` writes it."""

from collections.abc import Iterator
from pathlib import Path

import click

from streamsink.cli.main import COMMANDS, cli

PAGE = Path(__file__).resolve().parent.parent / "docs" / "CLI.md"
_COLUMNS = 100
_HEAD = """# The command line

`streamsink` is installed with the package. It looks after tables on local disks, HDFS and S3, and after the queries
that write them; no command starts Spark unless its text says so. A command that changes or deletes something shows what
it would do, and does it with `--yes`. [design/0025-command-line.md](design/0025-command-line.md) has the decisions.
This page is made from the commands' help: `python -m tests.cli_page`.
"""


def commands() -> Iterator[click.Command]:
    """All commands that can be called, those of groups with the group's name before theirs."""
    for name in COMMANDS:
        yield from _within(cli.get_command(click.Context(cli), name))


def _within(command: click.Command) -> Iterator[click.Command]:
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            yield from _within(inner)
    else:
        yield command


def page() -> str:
    """The whole page, as the commands are now."""
    parts = [_HEAD, "\n```\n", _help(cli, "streamsink"), "```\n"]
    for title in dict.fromkeys(entry.group for entry in COMMANDS.values()):
        parts.append(f"\n## {title}\n")
        for name in (name for name, entry in COMMANDS.items() if entry.group == title):
            parts += _entries(cli.get_command(click.Context(cli), name), f"streamsink {name}")
    return "".join(parts)


def _entries(command: click.Command, path: str) -> Iterator[str]:
    yield f"\n### {path.removeprefix('streamsink ')}\n\n```\n{_help(command, path)}```\n"
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _entries(inner, f"{path} {name}")


def _help(command: click.Command, path: str) -> str:
    widths = {"terminal_width": _COLUMNS, "max_content_width": _COLUMNS}
    context = command.make_context(path, [], resilient_parsing=True, **widths)
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
