"""``streamsink doctor``: what is wrong with a table and the journals of its queries, and which command mends it.

It looks at what ``streamsink.verify`` finds, and at who holds the queries whose records are pending. Changes nothing.
"""

import functools
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from streamsink import shell
from streamsink.commands.verify import verify
from streamsink.errors import Corrupt
from streamsink.operations.holds import ALIVE, look_at_hold
from streamsink.operations.journals import OF_SINK, JournalLook, applications_of, journals_above, look_at_journals
from streamsink.storage.file_io import FileIO
from streamsink.table.history.integrity import DAMAGE, NOTE, Finding
from streamsink.table.read.scan import plan
from streamsink.table.table import is_table, open_table

_APPLICATION = re.compile(r"application '([^']+)'")
_RECORD = re.compile(r"/streamsink/([^/\s]+)/record-\d")
_MISSING = re.compile(r"refers to .*?((?:/|[a-z0-9]+://).+), which does not exist")
_FILE = re.compile(r"(?:^|^data file |^manifest |^[a-z ]+ )(/.+?|[a-z0-9]+://.+?)(?=: it | has | says | cannot )")
# Whatever query of the table runs may mend it.
_BEHIND = "iceberg.behind"
# By the kind of a finding, the command that mends it, if there is one for all cases.
_RECOVER, _GIVE_UP = "recover {path} -a {application}", "recover {path} -a {application} --give-up"
_COMMANDS = {
    "checkpoint.pending": _RECOVER,
    "checkpoint.lost": _RECOVER,
    "checkpoint.rolled-back": f"{_RECOVER} -o on_rollback=republish",
    "pending.files-gone": _GIVE_UP,
    "schema.gone": _GIVE_UP,
    "schema.replaced": _GIVE_UP,
    "journal.missing-record": _GIVE_UP,
    "journal.corrupt": _GIVE_UP,
    "file.missing": "drop-missing {path}",
    "hint.future": "discard {file}",
    _BEHIND: "iceberg-metadata {path}",
}
# What to do where it is for a person to choose.
_DAMAGED = (
    "Restore the file {restore}; or, if it is a data file whose rows are lost, delete it {discard} and run "
    "'streamsink drop-missing {path} --yes'."
)
_BY_HAND = {
    "file.size": _DAMAGED,
    "data.unreadable": _DAMAGED,
    "data.rows": _DAMAGED,
    "data.columns": _DAMAGED,
    "journal.missing": "The query's next start begins a journal anew. If it is not used any more: 'streamsink retire "
    "{path} -a {application} --yes'.",
}


@dataclass(frozen=True)
class Diagnosis:
    """One thing that is wrong, or worth knowing.

    severity, kind: as of ``Finding``. text: in sentences. command: what mends it, as it is typed; '' where nothing is
    to be done or no command does it.
    """

    severity: str
    kind: str
    text: str
    command: str


def diagnose(
    file_io: FileIO, root: str, *, contents: bool = False, told: Callable[[int, int], None] = lambda done, all: None
) -> list[Diagnosis]:
    """Everything that is found, damage first. contents: read the data files as well. told: as of ``TableCheck``.

    root: of a table, or of a folder with journals. Of a table the journals of queries into several tables that write it
    are looked at, too. Raises Misuse when there is neither table nor journal; Corrupt when the table's schema is
    damaged.
    """
    names, live = applications_of(file_io, root), frozenset[str]()

    @functools.cache
    def lives(application: str) -> bool:
        return application in names and _lives(file_io, root, application)

    if names and not is_table(file_io, root):
        looks = look_at_journals(file_io, root)
        found = [each for look in looks for each in _of_journal(look, lives)]
    else:
        findings = verify(file_io, root, contents, told).findings
        if any(finding.kind == "file.missing" for finding in findings):
            live = _live_files(file_io, root)
        found = [_of_finding(root, finding, lives, live) for finding in findings if finding.kind != _BEHIND]
        found += [_of_behind(root, each, any(map(lives, names))) for each in findings if each.kind == _BEHIND]
        for look in _above(file_io, root):
            found += _of_journal(look, functools.cache(functools.partial(_lives, file_io, look.path)))
    return sorted(found, key=lambda each: each.severity != DAMAGE)


def _lives(file_io: FileIO, path: str, application: str) -> bool:
    return look_at_hold(file_io, path, application, wait=True).state == ALIVE


def _above(file_io: FileIO, root: str) -> Sequence[JournalLook]:
    """None where the newest snapshot is damaged, which is a finding of its own."""
    try:
        return journals_above(file_io, root)
    except (Corrupt, FileNotFoundError):
        return []


def _live_files(file_io: FileIO, root: str) -> frozenset[str]:
    """Paths of the data files of the newest snapshot; none where its manifests are damaged as well."""
    try:
        return frozenset(file.path for file in plan(open_table(file_io, root, for_writing=False))[1])
    except (Corrupt, FileNotFoundError):
        return frozenset()


def _of_finding(root: str, finding: Finding, lives: Callable[[str], bool], live: Collection[str]) -> Diagnosis:
    named = _APPLICATION.search(finding.message) or _RECORD.search(finding.message)
    application, kind, text = named[1] if named else "", finding.kind, finding.message.rstrip(".")
    if finding.severity == NOTE and kind in _COMMANDS and application and lives(application):
        return Diagnosis(finding.severity, kind, f"{text}. Its driver runs.", "")
    command = _COMMANDS.get(kind, "")
    if kind == "file.missing" and _path_in(finding.message) not in live:
        restore = shell.restore(_path_in(finding.message))
        command, text = "", f"{text}. Restore it {restore}. Only data files of the newest snapshot can be dropped"
    if "{application}" in command and not application:
        command = ""
    file = _FILE.search(finding.message)
    ways = _Ways(root, application, file[1] if file else "")
    by_hand = f" {ways.in_text(_BY_HAND[kind])}" if kind in _BY_HAND and "Restore it" not in text else ""
    return Diagnosis(finding.severity, kind, f"{text}.{by_hand}", ways.typed(command))


def _of_behind(root: str, finding: Finding, runs: bool) -> Diagnosis:
    """runs: whether the driver of a query of the table lives."""
    command = _Ways(root, "").typed(_COMMANDS[finding.kind])
    text = f"{finding.message}. A driver runs. Where this stays, '{command}' says why" if runs else finding.message
    return Diagnosis(finding.severity, finding.kind, f"{text}.", "" if runs else command)


@dataclass(frozen=True)
class _Ways:
    """What commands are given. file: the one that a finding names, '' for none."""

    root: str
    application: str
    file: str = ""

    def typed(self, command: str) -> str:
        """The command as it is typed; '' for none."""
        if not command or "{file}" in command and not self.file:
            return ""
        path, file = shlex.quote(self.root), shlex.quote(self.file)
        return f"streamsink {command.format(path=path, file=file, application=self.application)}"

    def in_text(self, text: str) -> str:
        """Advice, with commands in it."""
        restore, discard = shell.restore(self.file), shell.discard(self.file)
        path = shlex.quote(self.root)
        return text.format(path=path, application=self.application, restore=restore, discard=discard)


def _path_in(message: str) -> str:
    """The path of the file that is missing."""
    found = _MISSING.search(message)
    return found[1] if found else ""


def _of_journal(look: JournalLook, lives: Callable[[str], bool]) -> Iterator[Diagnosis]:
    """Findings of a journal that lies in no table."""
    for record in look.pending:
        what = f"record {record.sequence} of application '{look.application}' is pending in {look.path}"
        bad = record.problem or (f"{len(record.gone)} of its files are gone" if record.gone else "")
        command = "" if lives(look.application) else _GIVE_UP if bad else _RECOVER
        if look.of == OF_SINK and command:
            command += " --sink MODULE:NAME"
        yield Diagnosis(
            DAMAGE if bad else NOTE,
            "pending.files-gone" if record.gone else "journal.corrupt" if bad else "checkpoint.pending",
            f"{what}, and {bad}" if bad else f"{what}: the next start publishes it",
            _Ways(look.path, look.application).typed(command),
        )


def is_ill(found: Sequence[Diagnosis]) -> bool:
    """Whether something is damaged, or a command is to be run."""
    return any(each.severity == DAMAGE or each.command for each in found)
