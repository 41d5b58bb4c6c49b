"""``streamsink doctor``: what is wrong with a table and the journals of its queries, and which command mends it.

It looks at what ``streamsink.verify`` finds, and at who holds the queries whose records are pending. Changes nothing.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from streamsink.commands.verify import verify
from streamsink.operations.holds import ALIVE, look_at_hold
from streamsink.operations.journals import OF_TABLE, JournalLook, look_at_journals
from streamsink.storage.file_io import FileIO
from streamsink.table.history.integrity import DAMAGE, NOTE, Finding
from streamsink.table.table import is_table

_APPLICATION = re.compile(r"application '([^']+)'")
# By the kind of a finding, the command that mends it, if there is one for all cases.
_RECOVER, _GIVE_UP = "recover {path} -a {application}", "recover {path} -a {application} --give-up"
_COMMANDS = {
    "checkpoint.pending": _RECOVER,
    "checkpoint.lost": _RECOVER,
    "staging.files": _RECOVER,
    "checkpoint.rolled-back": f"{_RECOVER} -o on_rollback=republish",
    "pending.files-gone": _GIVE_UP,
    "journal.missing-record": _GIVE_UP,
    "journal.record": _GIVE_UP,
    "journal.missing": "retire {path} -a {application}",
    "file.missing": "drop-missing {path}",
}
# What to do where no command does it.
_BY_HAND = {
    "hint.future": "Delete that file; the next commit makes it anew.",
    "file.size": "Restore the file from a backup, or delete it and run 'streamsink drop-missing'.",
    "data.unreadable": "Restore the file from a backup, or delete it and run 'streamsink drop-missing'.",
}
_HARMLESS = ("hint.old", "snapshot.replaced")


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


def diagnose(file_io: FileIO, root: str, *, contents: bool = False) -> list[Diagnosis]:
    """Everything that is found, damage first. contents: read the data files as well.

    root: of a table, or of a folder with journals. Raises Misuse when there is neither; Corrupt when the table's schema
    is damaged.
    """
    found: list[Diagnosis] = []
    looks = look_at_journals(file_io, root)
    alive = {look.application for look in looks if look.pending and _lives(file_io, root, look.application)}
    if is_table(file_io, root):
        report = verify(file_io, root, contents)
        found += [_of_finding(root, finding, alive) for finding in report.findings]
    else:
        found += [each for look in looks for each in _of_journal(root, look, alive)]
    return sorted(found, key=lambda each: each.severity != DAMAGE)


def _lives(file_io: FileIO, root: str, application: str) -> bool:
    return look_at_hold(file_io, root, application).state == ALIVE


def _of_finding(root: str, finding: Finding, alive: set[str]) -> Diagnosis:
    named = _APPLICATION.search(finding.message)
    application = named[1] if named else ""
    if application in alive and finding.severity == NOTE:
        return Diagnosis(finding.severity, finding.kind, f"{finding.message}. Its driver runs.", "")
    text = f"{finding.message}. {_BY_HAND[finding.kind]}" if finding.kind in _BY_HAND else finding.message
    command = _COMMANDS.get(finding.kind, "")
    if finding.kind in _HARMLESS or "{application}" in command and not application:
        command = ""
    return Diagnosis(finding.severity, finding.kind, text, _typed(command, root, application))


def _of_journal(root: str, look: JournalLook, alive: set[str]) -> Iterator[Diagnosis]:
    """Findings of a journal that lies in no table."""
    for record in look.pending:
        what = f"record {record.sequence} of application '{look.application}' is pending"
        bad = record.problem or (f"{len(record.gone)} of its files are gone" if record.gone else "")
        command = "" if look.application in alive else _GIVE_UP if bad else _RECOVER
        if look.of not in (OF_TABLE, "tables") and command:
            command += " --sink MODULE:NAME"
        yield Diagnosis(
            DAMAGE if bad else NOTE,
            "pending.files-gone" if record.gone else "journal.record" if bad else "checkpoint.pending",
            f"{what}, and {bad}" if bad else f"{what}: the next start publishes it",
            _typed(command, root, look.application),
        )


def _typed(command: str, root: str, application: str) -> str:
    return f"streamsink {command.format(path=shlex.quote(root), application=application)}" if command else ""


def is_ill(found: Sequence[Diagnosis]) -> bool:
    """Whether something is damaged, or a command is to be run."""
    return any(each.severity == DAMAGE or each.command for each in found)
