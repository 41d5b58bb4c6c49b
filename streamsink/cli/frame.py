"""What all commands have in common: how they are declared, their options, errors, exit codes and ``--watch``."""

import contextlib
import dataclasses
import functools
import json
import re
import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

import click

from streamsink import errors
from streamsink.cli.output import DAMAGED, FINDINGS, PASSING, REFUSED, RIGHT, Answer, harmless, show, write_json
from streamsink.clock import Clock
from streamsink.options import SinkOptions
from streamsink.options.option import names_of
from streamsink.protocol.sink import Sink
from streamsink.storage.store_failures import told_of
from streamsink.storage.stores import Store, journal_place, journal_within, table_path

_Command = TypeVar("_Command", bound=Callable[..., Any])
# Options of a query that commands have as arguments of their own.
_ARGUMENTS = {"application": "--application", "store_options": "--store-options, or --store-option"}
_SECRET = re.compile("secret|password|token|key", re.IGNORECASE)  # in names of settings
_CLEAR = "\x1b[2J\x1b[H"
GIVE_YES, NOTHING_TO_DO = "Nothing was changed. Give --yes to do it.", "Nothing to do."
_TELLS_S = 1.0
_told: list[str] = []  # what a command says of its progress
_MOST_LOOKS = 10**9  # of --watch, which Ctrl-C ends
_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (errors.Retryable, PASSING),
    (errors.OutcomeUnknown, PASSING),
    (errors.Corrupt, DAMAGED),
    (errors.StreamsinkError, REFUSED),
    (OSError, PASSING),
)
# What every command with --yes has in its help.
WITHOUT_YES = "without --yes, 1 when there is something that it would do, and 0 when there is nothing"
# Columns of a command's help; longer examples are not broken.
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def command(name: str, examples: str = "", *, exits: str = "") -> Callable[[Callable[..., Answer]], click.Command]:
    """Declare a command. Its function returns an ``Answer``; its docstring is the help.

    examples: one command a line. ``tests/cli`` runs them in a folder with the table lake/shop.db/orders. exits: what
    the exit code 1 means, and 3 where it is no error; of a command with ``--yes`` also what 1 means without it.
    """
    lines = [line.strip() for line in examples.strip().splitlines()]

    def declare(function: Callable[..., Answer]) -> click.Command:
        made = click.command(name, context_settings=SETTINGS)(_answering(function))
        is_confirmed = any("--yes" in each.opts for each in made.params)
        says = [f"Exit code: {text}." for text in (exits, WITHOUT_YES if is_confirmed else "") if text]
        shown = ["\b", "Examples:", *(f"  {line}" for line in lines)] if lines else []
        made.epilog = "\n".join([*([" ".join(says), ""] if says else []), *shown]) or None
        made.params.append(_flag("--json", "as_json", "Print one JSON document."))
        made.examples = tuple(lines)  # type: ignore[attr-defined]
        return made

    return declare


def watched(function: _Command) -> _Command:
    """Give a command that only looks the option ``--watch``."""
    function = click.option("--watch-times", type=click.IntRange(1), hidden=True, default=_MOST_LOOKS)(function)
    return click.option(
        "--watch", type=click.FloatRange(min=0.05), metavar="SECONDS", help="Look again every SECONDS, until Ctrl-C."
    )(function)


@dataclasses.dataclass(frozen=True)
class At:
    """The place that a command was given.

    root: as the library spells it. store_options: settings of its store. typed: how they were given, for a command that
    is to be typed; without what may be a secret. place: the database that it lies in; '' for none.
    """

    root: str
    store_options: Mapping[str, str]
    typed: str = ""
    place: str = ""

    @property
    def store(self) -> Store:
        """The store, not opened yet."""
        return Store(self.place or self.root, self.store_options)

    def options(self, given: tuple[str, ...] = (), **settings: Any) -> SinkOptions:
        """The options of a query, from NAME=VALUE and keywords.

        Raises Misuse for one that does not exist or has a wrong value.
        """
        kinds = {declared.name: declared.default for declared in dataclasses.fields(SinkOptions)}
        named = pairs(given, "--option")
        for name in _ARGUMENTS.keys() & named.keys():
            raise click.UsageError(f"--option {name}=... is not read: give {_ARGUMENTS[name]}")
        read = {name: _read(self.root, name, value, kinds.get(name)) for name, value in named.items()}
        return SinkOptions.of(self.root, {**read, "store_options": dict(self.store_options), **settings})


def of_path(name: str = "PATH", *, journals: bool = False) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Give a command the argument with a path and the options of its store; its function gets them as ``at``.

    journals: the path may also be that of a database that holds journals, or lie in one. Where a sink is given, which
    says itself where it is, the path is not looked at: messages give that of the sink, which may be no path.
    """

    def declare(function: Callable[..., Answer]) -> Callable[..., Answer]:
        @functools.wraps(function)
        def run(*, path: str, store_options: tuple[str, ...], store_options_file: str | None, **given: Any) -> Answer:
            if given.get("sink") is not None:
                place, root = "", path
            else:
                place, root = journal_within(path) if journals else ("", table_path(path))
            settings = settings_of(store_options, store_options_file, "--store-option", "--store-options")
            at = At(root, settings, _typed(store_options, store_options_file), place)
            if given.get("sink") is not None:
                return function(at=at, **given)
            with told_of(place or root, command=click.get_current_context().command_path.partition(" ")[2]):
                return function(at=at, **given)

        run = click.option(
            "--store-option",
            "store_options",
            multiple=True,
            metavar="NAME=VALUE",
            help="Setting of the store, as the sink's store_options has it (s3.endpoint=...). May be repeated.",
        )(run)
        run = click.option(
            "--store-options",
            "store_options_file",
            type=click.Path(exists=True, dir_okay=False),
            envvar="STREAMSINK_STORE_OPTIONS",
            metavar="FILE",
            help="File with such settings as a JSON object; for keys, which do not belong on a command line. "
            "[env: STREAMSINK_STORE_OPTIONS]",
        )(run)
        return click.argument("path", metavar=name, shell_complete=paths)(run)

    return declare


def of_application(required: bool, default: str | None = None) -> Callable[[_Command], _Command]:
    """The option that names a query; without it all of them, unless it is required or has a default."""
    text = "Name of the query, its option application."
    return click.option(
        "--application",
        "-a",
        required=required,
        default=default,
        show_default=bool(default),
        metavar="NAME",
        help=text,
        shell_complete=_applications,
    )


def paths(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Lets the shell complete names of files and folders."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def _applications(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names that complete what is typed: those of the journals at the path that was typed before."""
    from streamsink.operations.journals import applications_of

    typed = [ctx.params.get("path"), *ctx.args]  # an option that has no value yet leaves the arguments as they are
    try:
        root = journal_place(next(filter(None, typed)))
        names = applications_of(Store(root, {}).open(), root)
    except (errors.StreamsinkError, OSError, StopIteration):
        return []
    return [name for name in names if name.startswith(incomplete)]


def of_query(function: _Command) -> _Command:
    """Other options of the query, for commands that act as the query does: its lock above all."""
    return click.option(
        "--option",
        "-o",
        "given",
        multiple=True,
        metavar="NAME=VALUE",
        help="Another option that the query has, as docs/OPTIONS.md lists it (lock=..., accept_as_new=...). May be "
        "repeated.",
    )(function)


def of_sink(function: _Command) -> _Command:
    """The sink itself, for what is no Paimon table."""
    return click.option(
        "--sink",
        metavar="MODULE:NAME",
        help="The sink that the query gives to to_sink, where that writes no Paimon table: a name in a Python module "
        "that can be imported from here. PATH is not looked at then.",
    )(function)


def sink_named(name: str) -> Sink:
    """The sink of this name, as MODULE:NAME. Raises click's usage error where there is none."""
    import importlib

    (module, found, attribute), before = name.partition(":"), list(sys.path)
    sys.path.insert(0, "")  # as for a program that lies in this folder
    try:
        sink = getattr(importlib.import_module(module), attribute) if found else None
    except (ImportError, AttributeError, ValueError) as missing:
        raise click.BadParameter(f"'{name}': {missing}", param_hint="--sink") from missing
    finally:
        sys.path[:] = before
    if not isinstance(sink, Sink):
        raise click.BadParameter(f"'{name}' is no sink, expected MODULE:NAME of one", param_hint="--sink")
    return sink


def query_of(at: At, sink: Sink, application: str | None) -> tuple[At, str | None]:
    """(the place of the sink's journals, the query that is meant there); None where nobody has written there.

    application: as it was given. Raises click's usage error where it was not, and several queries have journals there:
    one may write to another destination.
    """
    from streamsink.operations.journals import applications_of

    place = At(journal_place(sink.journal) if sink.journal else sink.path, at.store_options)
    if application is not None:
        return place, application
    names = applications_of(place.store.open(), place.root)
    if len(names) > 1:
        raise click.UsageError(f"the journals of {', '.join(names)} are in {place.root}: give --application")
    return place, names[0] if names else None


def proposed(answer: Answer, yes: bool, *, would: bool) -> Answer:
    """The answer of a command with ``--yes``: what was done, or what would be. would: there is something to do."""
    if yes:
        return answer
    code = FINDINGS if would and answer.code == RIGHT else answer.code
    return dataclasses.replace(answer, parts=[*answer.parts, GIVE_YES if would else NOTHING_TO_DO], code=code)


def confirmed(function: _Command) -> _Command:
    """Give a command that changes something the option ``--yes``; without it the command shows what it would do."""
    return click.option(
        "--yes", is_flag=True, help="Do it. Without this option the command only shows what it would do."
    )(function)


def settings_of(given: tuple[str, ...], file: str | None, option: str, of_file: str) -> dict[str, str]:
    """Settings, those of the command line above those of a file of JSON. Raises click's usage errors.

    given, file: what the options of these two names, ``option`` and ``of_file``, were given.
    """
    found: dict[str, str] = {}
    if file is not None:
        with open(file, encoding="utf-8") as stream:
            try:
                said = json.load(stream)
            except ValueError as broken:
                raise click.BadParameter(f"{file} is no JSON: {broken}", param_hint=of_file) from broken
        if not isinstance(said, Mapping):
            raise click.BadParameter(f"{file} is no JSON object", param_hint=of_file)
        found |= {str(name): str(value) for name, value in said.items()}
    return found | pairs(given, option)


def _typed(given: tuple[str, ...], file: str | None) -> str:
    """These options as they are typed again. A file that the environment names needs no option."""
    source = click.get_current_context().get_parameter_source("store_options_file")
    words = ["--store-options", file] if file is not None and source is click.core.ParameterSource.COMMANDLINE else []
    for text in given:
        name = text.partition("=")[0]
        words += ["--store-option", f"{name}=..." if _SECRET.search(name) else text]
    return shlex.join(words)


def _read(path: str, name: str, text: str, like: Any) -> Any:
    """The value of an option as its default is: a number, a truth value, names; else the text."""
    if isinstance(like, bool) and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if isinstance(like, int) and not isinstance(like, bool) and text.lstrip("-").isdigit():
        return int(text)
    if isinstance(like, tuple):
        return names_of(path, name, tuple(part.strip() for part in text.split(",")))
    if name == "adopt_from_batch" and text.isdigit():
        return int(text)
    return text


def pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    """Texts of the form NAME=VALUE, as arguments or an option has them. Raises click's usage error for another one."""
    return dict(_pair(text, option) for text in given)


def _pair(text: str, option: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise click.BadParameter(f"'{text}' is not NAME=VALUE", param_hint=option)
    return name, value


def _flag(name: str, variable: str, text: str) -> click.Option:
    return click.Option([name, variable], is_flag=True, help=text)


def _answering(function: Callable[..., Answer]) -> Callable[..., None]:
    @functools.wraps(function)
    def run(*, as_json: bool, watch: float | None = None, watch_times: int = 1, **given: Any) -> None:
        clock, code = Clock(), 0
        try:
            for look in range(watch_times if watch is not None else 1):
                if look:
                    clock.sleep_ms((watch or 0) * 1000)
                answer = _answer(function, given, as_json)
                if watch is not None and not as_json and sys.stdout.isatty():
                    sys.stdout.write(_CLEAR)
                show(answer, as_json)
                code = answer.code
        except KeyboardInterrupt:
            if watch is None:
                raise  # what was under way may be done in part
        raise click.exceptions.Exit(code)

    return run


def _answer(function: Callable[..., Answer], given: Mapping[str, Any], as_json: bool) -> Answer:
    try:
        with _clock(function.__name__):
            return function(**given)
    except (errors.StreamsinkError, OSError) as failed:
        progress("")  # before the text of the error
        fail(failed, as_json)
    finally:
        progress("")


@contextlib.contextmanager
def _clock(name: str) -> Iterator[None]:
    """Within it a terminal shows, after some seconds, that the command is at work, until it says more itself."""
    if not sys.stderr.isatty():
        yield
        return
    ended, begun = threading.Event(), Clock().monotonic_ms()

    def tell() -> None:
        while not ended.wait(_TELLS_S):
            if not _told:
                sys.stderr.write(f"\r\x1b[K{name.replace('_', ' ')}: {(Clock().monotonic_ms() - begun) / 1000:.0f} s")
                sys.stderr.flush()

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


def progress(text: str) -> None:
    """Show how far a command has come that takes long, where somebody looks: on a terminal, beside its answer."""
    if sys.stderr.isatty():
        _told[:] = [text] if text else []
        sys.stderr.write(f"\r\x1b[K{text}" if text else "\r\x1b[K")
        sys.stderr.flush()


def fail(failed: BaseException, as_json: bool) -> NoReturn:
    """End with the text of an error of the library and its kind, without a traceback."""
    kind = getattr(failed, "kind", "storage")
    text = str(failed)
    if as_json:
        write_json({"error": {"kind": kind, "message": text}})
    else:
        click.echo(f"{kind}: {harmless(text)}", err=True)
    raise click.exceptions.Exit(next(code for cls, code in _CODES if isinstance(failed, cls)))
