"""Commands that pages show: what can be said of one without running it."""

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import click

from streamsink.cli.main import cli
from tests.docs.blocks import ROOT, Block

# Programs of the system and of others, whose options are not looked at. Whatever else a page calls must be ours.
OTHERS = frozenset(
    "cd mkdir rm cp mv ls cat echo export source . true false kill sleep java test docker kubectl yarn venv-pack "
    "spark-submit aws hdfs airflow git eval".split()
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_ENDS = frozenset(("&&", "||", ";", "|", "&"))


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command of a script, without what is assigned before it."""
    joined = text.replace("\\\n", " ")
    for line in joined.splitlines():
        lexed = shlex.shlex(line, posix=True, punctuation_chars=";&|")
        lexed.whitespace_split, lexed.commenters = True, "#"
        words: list[str] = []
        for word in [*lexed, ";"]:
            if word in _ENDS:
                while words and _ASSIGNMENT.match(words[0]):
                    words = words[1:]
                if words:
                    yield words
                words = []
            else:
                words.append(word)


def wrong(block: Block, saved: frozenset[str]) -> list[str]:
    """What would not run of a block of commands. saved: names of files that blocks of its page are saved as."""
    found = _syntax(block.text)
    for words in commands(block.text):
        why = _of_command(words, saved)
        if why:
            found.append(f"{shlex.join(words)}: {why}")
    return found


def _syntax(text: str) -> list[str]:
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    return [done.stderr] if done.returncode else []


def _of_command(words: list[str], saved: frozenset[str]) -> str | None:
    program, *arguments = words[0].removeprefix("env/bin/"), *words[1:]
    if program == "streamsink":
        return _of_ours(arguments)
    if program == "make":
        return _of_make(arguments)
    if program == "pip":
        return _of_pip(arguments)
    if program in ("python", "python3"):
        return _of_python(arguments, saved)
    files = [each for each in arguments if each.startswith(("jobs/", "benchmarks/", "docs/"))]
    gone = [each for each in files if not (ROOT / each).exists()]
    if gone:
        return f"there is no {gone[0]}"
    return None if program in OTHERS else "tests/docs/shell.py does not know this program"


def _of_ours(arguments: list[str]) -> str | None:
    """Read the command line as the program would, without calling the command."""
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        inner = command.get_command(context, arguments[0])
        if inner is None:
            return f"there is no command {arguments[0]}"
        command, arguments = inner, arguments[1:]
    if isinstance(command, click.Group):
        return None if arguments in (["--version"], ["--help"]) else "a command is missing"
    try:
        command.make_context(command.name, list(arguments), parent=context)
    except click.UsageError as error:
        is_of_a_reader = isinstance(error, click.BadParameter) and "does not exist" in error.format_message()
        return None if is_of_a_reader else error.format_message()
    except click.exceptions.Exit:
        pass
    return None


def _of_make(arguments: list[str]) -> str | None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split())
    variables = set(re.findall(r"^(\w+) \?=", makefile, re.MULTILINE))
    for each in arguments:
        name, assigns, _ = each.partition("=")
        if name not in (variables if assigns else targets):
            return f"the Makefile has no {name}"
    return None


def _of_pip(arguments: list[str]) -> str | None:
    project = (ROOT / "pyproject.toml").read_text()
    extras = set(re.findall(r"^([\w-]+) = \[", project.partition("[project.optional-dependencies]")[2], re.MULTILINE))
    for asked in re.findall(r"(?:^|\s)(?:\.|streamsink)\[([\w,-]+)\]", " ".join(arguments)):
        if set(asked.split(",")) - extras:
            return f"there is no extra {asked}"
    return None if arguments[:1] in (["install"], ["uninstall"]) else "pip installs and uninstalls, no more is known"


def _of_python(arguments: list[str], saved: frozenset[str]) -> str | None:
    if arguments[:1] == ["-c"]:
        taken = [node for node in ast.walk(ast.parse(arguments[1])) if isinstance(node, ast.ImportFrom)]
        gone = [a.name for node in taken for a in node.names if not hasattr(import_module(node.module), a.name)]
        return f"there is no {gone[0]}" if gone else None
    if arguments[:1] == ["-m"]:
        module = arguments[1]
        known = module in sys.stdlib_module_names or (ROOT / Path(*module.split("."))).with_suffix(".py").exists()
        return None if known else f"there is no module {module}"
    script = next((each for each in arguments if not each.startswith("-")), "")
    if script in saved or (script and (ROOT / script).is_file()):
        return None
    return f"neither the page nor the checkout has {script or 'a script'}"


def _ending(line: str, ends: Mapping[str, int]) -> str:
    """The line, which fails unless its command ends with the code that is said of it."""
    code = next((code for begin, code in ends.items() if line.startswith(begin)), 0)
    return f"ended=0\n{{ {line}\n}} || ended=$?\n[ $ended = {code} ]" if code else line


class Shell:
    """One shell of a reader: what a block exports, and the folder that it changes to, hold for the next one.

    folder: a scratch folder, which is where the reader begins. bare: neither this interpreter nor this checkout is
    there, only what the blocks install.
    """

    def __init__(self, folder: Path, bare: bool = False):
        self._kept = folder / ".shell"
        self._kept.mkdir()
        self._own: dict[str, str] = {}
        self.inside = folder
        if not bare:
            programs = self._programs()
            behind = os.environ.get("PYTHONPATH", "")
            self._own = {"PYTHONPATH": os.pathsep.join([str(ROOT), behind]), "PYSPARK_PYTHON": sys.executable}
            self._own["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"

    def _programs(self) -> Path:
        for name, call in (("python", '"$@"'), ("streamsink", '-m streamsink "$@"')):
            file = self._kept / name
            file.write_text(f'#!/bin/sh\nexec "{sys.executable}" {call}\n')
            file.chmod(0o755)
        return self._kept

    def run(self, script: str, ends: Mapping[str, int] | None = None, timeout_s: int = 600) -> str:
        """Run commands, and return what they print. Each must end with 0, or as ``ends`` says of its line."""
        before = f'[ ! -e "{self._kept}/env" ] || . "{self._kept}/env"\n'
        after = f'\nexport -p > "{self._kept}/env"; pwd > "{self._kept}/cwd"\n'
        lines = "\n".join(_ending(line, ends or {}) for line in script.split("\n"))
        call = ["bash", "-euo", "pipefail", "-c", f"{before}{lines}{after}"]
        env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
        env |= self._own
        done = subprocess.run(call, cwd=self.inside, env=env, capture_output=True, text=True, timeout=timeout_s)
        assert done.returncode == 0, f"{script}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        self.inside = Path((self._kept / "cwd").read_text().strip())
        return done.stdout
