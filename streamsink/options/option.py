"""How an option is declared, and how its value is checked by its declaration.

Values only; nothing here does anything.
"""

from collections.abc import Iterable, Mapping
from dataclasses import Field, field, fields
from typing import Any, NoReturn

from streamsink.errors import Misuse

A_NAME = "a name"
A_WORD = "a word that an error printed"


def option(
    default: Any,
    *,
    least: int | None = None,
    choices: tuple[str, ...] = (),
    text: str = "",
    expert: bool = False,
    secret: bool = False,
) -> Any:
    """A field of a group of options.

    least: it is a whole number, and at least this one. choices: it is one of these. text: it is text, not empty, and
    this is what an error says that it should be. expert: most queries leave it as it is. secret: its value is never
    printed.
    """
    rule = {"least": least, "choices": choices, "text": text, "expert": expert}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), repr=not secret, metadata=rule)
    return field(default=default, repr=not secret, metadata=rule)


def refuse(table: str, name: str, found: object, expected: str) -> NoReturn:
    """Raises Misuse that names the table, the option, what was found and what is expected."""
    raise Misuse(f"{table}: option '{name}' is {found!r}, expected {expected}", kind="option.value")


def check_declared(table: str, options: Any) -> None:
    """Raises Misuse for the first option of this dataclass whose value is not as it is declared."""
    for declared in fields(options):
        _check(table, declared, getattr(options, declared.name))


def _check(table: str, declared: "Field[Any]", value: object) -> None:
    name, rule = declared.name, declared.metadata
    if value is None and declared.default is None:
        return
    if isinstance(declared.default, bool):
        if not isinstance(value, bool):
            refuse(table, name, value, "True or False")
    elif rule["least"] is not None:
        if isinstance(value, bool) or not isinstance(value, int) or value < rule["least"]:
            refuse(table, name, value, f"a whole number of at least {rule['least']}")
    elif rule["choices"]:
        if value not in rule["choices"]:
            refuse(table, name, value, "one of " + ", ".join(rule["choices"]))
    elif rule["text"]:
        if not isinstance(value, str) or not value and declared.default is None:
            refuse(table, name, value, rule["text"])


def check_texts(table: str, name: str, given: object, *, of: str) -> None:
    """Raises Misuse unless this is a dictionary of strings. The value is not shown: it may be a password."""
    if not isinstance(given, Mapping):
        raise Misuse(f"{table}: option '{name}' must be a dictionary of strings", kind="option.value")
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise Misuse(f"{table}: {of} option {key!r} must be a string with a string value", kind="option.value")


def names_of(table: str, name: str, given: object) -> tuple[str, ...]:
    """Names, of which one may be given alone. Raises Misuse that names the table and the option."""
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (None,)
    if not all(isinstance(each, str) and each for each in names):
        raise Misuse(f"{table}: '{name}' is {given!r}, expected names, or one name", kind="option.value")
    return tuple(str(each) for each in names)
