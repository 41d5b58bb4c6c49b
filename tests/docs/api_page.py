"""docs/API.md, made from the code: ``python -m tests.docs.api_page`` writes it."""

import dataclasses
import enum
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from tests.docs.blocks import ROOT

PAGE = ROOT / "docs" / "API.md"
COLUMNS = 120
_HEAD = """# API

Every public name, with its signature and its docstring. Options are keywords of `to_table`, `to_tables`, `write` and
`to_sink`; [OPTIONS.md](OPTIONS.md) lists them. Names that are not here may change without notice. This page is
made from the code: `python -m tests.docs.api_page`.
"""
_MODULES = re.compile(r"\b(?:streamsink|pyspark|pathlib|collections|typing)(?:\.[a-z_]\w*)*\.(?=[A-Za-z])")
# By module, what it is for. Its names are those of __all__, or else those that it defines.
MODULES = {
    "streamsink": "Tables: write, read, check and mend them.",
    "streamsink.maintenance": "Care of tables by hand ([MAINTENANCE.md](MAINTENANCE.md)).",
    "streamsink.sink": "Other destinations, and what authors of one import ([WRITING_A_SINK.md](WRITING_A_SINK.md)).",
    "streamsink.kafka": "Kafka topics ([KAFKA_SINK.md](KAFKA_SINK.md)).",
    "streamsink.databases": "Tables of databases ([DATABASES.md](DATABASES.md)).",
    "streamsink.delta": "Delta tables ([DELTA.md](DELTA.md)).",
    "streamsink.iceberg": "Iceberg tables ([ICEBERG.md](ICEBERG.md)).",
    "streamsink.errors": "Classes of errors: each says what a caller shall do ([ERRORS.md](ERRORS.md)).",
    "streamsink.events": "What `listener=` is called with.",
    "streamsink.testing.conformance": "What a sink of your own must pass.",
    "streamsink.testing.journal_conformance": "What a journal of your own must pass.",
    "streamsink.testing.faults": "Deaths at named steps, for tests of queries.",
}


# Too many names for a signature; docs/OPTIONS.md has them.
_LISTED = ("SinkOptions",)


def page() -> str:
    """The whole page, as the code is now."""
    parts = [_wrapped(_HEAD.split("\n\n", 1)[0]), "\n\n", _wrapped(_HEAD.split("\n\n", 1)[1]), "\n"]
    for name, what in MODULES.items():
        module = importlib.import_module(name)
        parts.append(f"\n## {name}\n\n{_wrapped(what)}\n")
        for public in names_of(module):
            parts += _entry(public, getattr(module, public))
    return "".join(parts)


def names_of(module: ModuleType) -> list[str]:
    """Public names, sorted; modules within a module have sections of their own."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    documented = [name for name in names if not name.startswith("_") and not inspect.ismodule(getattr(module, name))]
    return sorted(documented, key=str.lower)


def _entry(name: str, value: Any) -> Iterator[str]:
    yield f"\n### {name}\n"
    if inspect.isclass(value):
        yield f"\n```python\n{_class(name, value)}\n```\n"
        yield _documented(value.__dict__.get("__doc__"))
        yield from _methods(value)
    elif callable(value) and not isinstance(value, type(list[int])):
        yield f"\n```python\n{_signed(f'def {name}', value)}\n```\n"
        yield _documented(value.__doc__)
    else:
        yield f"\n```python\n{name} = {value!r}\n```\n"


def _class(name: str, value: type) -> str:
    bases = [base.__name__ for base in value.__bases__ if base is not object and base.__name__ != "Generic"]
    above = f"class {name}({', '.join(bases)})" if bases and name not in _LISTED else f"class {name}"
    has_own = dataclasses.is_dataclass(value) or "__init__" in vars(value)
    if issubclass(value, enum.Enum) or name in _LISTED or not has_own:
        return above
    return f"{above}\n\n{_signed(name, value.__init__, own=True)}"


def _methods(value: type) -> Iterator[str]:
    """Those that the class has itself, with the first sentences of what they say."""
    for name, member in vars(value).items():
        function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if name.startswith("_") or not inspect.isfunction(function) or not function.__doc__:
            continue
        text = " ".join(inspect.cleandoc(function.__doc__).split("\n\n")[0].split())
        signed = re.sub(r"\s+", " ", _signed(name, function, own=True)).replace("( ", "(").replace(", )", ")")
        yield "\n" + _wrapped(f"- `{signed}`: {_marked(text)}", "  ") + ("" if text.endswith(".") else ".") + "\n"


def _signed(name: str, function: Any, own: bool = False) -> str:
    signature = inspect.signature(function)
    parts, star = [], False
    for parameter in signature.parameters.values():
        if own and parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        star = star or parameter.kind is parameter.VAR_POSITIONAL
        parts.append(_parameter(parameter))
    returned = "" if signature.return_annotation in (signature.empty, None, "None") else signature.return_annotation
    end = f") -> {_annotation(returned)}" if returned else ")"
    line = f"{name}({', '.join(parts)}{end}"
    if len(line) <= COLUMNS - 8:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + end


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = stars + parameter.name
    if parameter.annotation is not parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        default = _default(parameter.default)
        text += f" = {default}" if parameter.annotation is not parameter.empty else f"={default}"
    return text


def _default(value: Any) -> str:
    plain = isinstance(value, (str, int, float, tuple, type(None)))
    return repr(value) if plain and not isinstance(value, enum.Enum) else "..."


def _annotation(annotation: Any) -> str:
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return annotation.__name__
    text = annotation if isinstance(annotation, str) else str(annotation)
    return _MODULES.sub("", text).strip("'\"")


def _documented(text: str | None) -> str:
    if not text or text.startswith(("Enum(", "An enumeration")):
        return ""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "".join(f"\n{_paragraph(each)}\n" for each in paragraphs)


def _paragraph(text: str) -> str:
    """A paragraph; one that is indented, or drawn, stays as it is drawn."""
    lines = text.splitlines()
    if len(lines) > 1 and any(line.startswith((" ", "|", "-")) for line in lines):
        return "```text\n" + text + "\n```"
    return _wrapped(_marked(" ".join(text.split())))


def _marked(text: str) -> str:
    """Sphinx's double back quotes are single ones in Markdown; names with stars or in angles are no marks of it."""
    return re.sub(r"``(.+?)``", r"`\1`", text)


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
