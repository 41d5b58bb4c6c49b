"""Makes docs/ERRORS.md from the code: each kind of error, its class, and what its message says. ``python -m
tests.advice.errors_page`` writes the page."""

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from streamsink import errors
from tests.advice.kinds import KIND, LIBRARY, ROOT, called, kinds

PAGE = ROOT / "docs" / "ERRORS.md"
_CLASSES = {name for name in vars(errors) if isinstance(vars(errors)[name], type)}
# Of the functions that put a command into a message, what the page shows.
_COMMANDS = {
    "restore": "from a backup ('streamsink restore … --from COPY --yes')",
    "discard": "('streamsink discard … --yes')",
    "set_option": "('streamsink set-options … --yes')",
}
_MOST_LETTERS = 460
_COLUMNS = 120
# Kinds whose messages are put together from parts that stand in several functions, and what those messages say.
_ELSEWHERE = {
    "application.in-use": (
        "application '…' is held by another start, a run, a replay or a command (process … on …), which is not harmed. "
        "Nothing was written. …"
    ),
    "lock.unavailable": (
        "the lock's server cannot be asked just now: the commit is tried again, at last by the restart of the query"
    ),
    "positions.end-below-start": (
        "a batch ends below its start: messages were lost at the topic's end, or it is another topic"
    ),
    "positions.newest-below-recorded": (
        "the topic ends below what is recorded of it: messages were lost at its end, or it is another topic"
    ),
    "positions.other-cluster": "the batch is of a topic in another Kafka cluster than what is recorded",
    "schema.bad-type": "a column has a type that a Paimon table cannot hold, or whose text cannot be read",
    "positions.topic-recreated": "the topic was deleted and created again since what is recorded of it",
}
_HEAD = """# Errors

Every error that streamsink raises on purpose has a `kind`, a word that stays the same for programs; the message is for
people and may be improved. The class says what a caller shall do:

| class | what it means |
|---|---|
| `Retryable` | a passing failure: start the query again, nothing was lost or doubled (`streamsink.run` does that) |
| `RestoredThenFailed` | what was pending is published; the failure that `restore-and-fail` intends, start again |
| `Conflict` | another writer changed what this commit relied on: look, then decide |
| `Fenced` | a newer driver has taken over, or another query has the name: stop this one |
| `OutcomeUnknown` | whether it was published is not known; nothing is deleted, the next start finds out |
| `Corrupt` | a file is torn, altered or missing; the message names it and the way out |
| `Misuse` | the call, the option, the data or the environment; or an accident that needs your decision |

Below are the messages of each kind, with `…` where they name a table, an option, a number or a word. What they say to
do is tested as it is said (`tests/advice`). This page is made from the code: `python -m tests.advice.errors_page`.
"""


def page() -> str:
    """The whole page, as the code is now."""
    says: dict[str, list[tuple[str, str]]] = {kind: [] for kind in kinds()}
    for path in sorted(LIBRARY.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for kind, name, text in (*_messages(tree), *_in_tables(tree)):
            if kind in says and (name, text) not in says[kind]:
                says[kind].append((name, text))
    parts = [_HEAD]
    for group in sorted({kind.partition(".")[0] for kind in says}):
        parts.append(f"\n## {group}\n\n")
        for kind in sorted(kind for kind in says if kind.partition(".")[0] == group):
            found = [*says[kind], ("", _ELSEWHERE[kind])] if kind in _ELSEWHERE else says[kind]
            classes = ", ".join(sorted({name for name, _ in found if name}))
            parts.append(_wrapped(f"- `{kind}`" + (f" ({classes})" if classes else ""), "  "))
            parts += [_wrapped(f"  - {_short(text)}", "    ") for text in sorted({text for _, text in found if text})]
    return "".join(parts)


def _wrapped(text: str, indent: str) -> str:
    return (
        textwrap.fill(text, _COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) + "\n"
    )


def _messages(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, name of the called class if it is one, text) of each call with a message and a kind."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        given = [each.value for each in call.keywords if each.arg == "kind"]
        words = [
            node.value
            for value in given
            for node in ast.walk(value)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        if not words:
            continue
        text = " ".join(filter(None, (_text(argument) for argument in call.args)))
        name = called(call)
        for kind in words:
            yield kind, name if name in _CLASSES else "", text


def _in_tables(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yield the same for tuples in which a kind stands beside what its message says."""
    for entry in (node for node in ast.walk(tree) if isinstance(node, ast.Tuple)):
        words = [_text(element) for element in entry.elts]
        said = ". ".join(word for word in words if word and not KIND.fullmatch(word))
        yield from ((word, "", said) for word in words if said and KIND.fullmatch(word))


def _text(node: ast.expr) -> str:
    """The words of a message, with … in the place of each value that is put in."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else _put_in(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + (_text(node.right) or "…")
    return ""


def _put_in(part: ast.expr) -> str:
    """What stands for a value that is put in: … but for a command that ``streamsink/shell.py`` makes."""
    call = part.value if isinstance(part, ast.FormattedValue) else part
    name = ast.unparse(call.func).rpartition("shell.")[2] if isinstance(call, ast.Call) else ""
    return _COMMANDS.get(name, "…")


def _short(text: str) -> str:
    """The beginning of a long message."""
    plain = re.sub(r"\s+", " ", text).strip().removeprefix("…: ").replace("<", "&lt;")
    return plain if len(plain) <= _MOST_LETTERS else plain[:_MOST_LETTERS].rpartition(" ")[0] + " …"


if __name__ == "__main__":
    Path(PAGE).write_text(page(), encoding="utf-8")
