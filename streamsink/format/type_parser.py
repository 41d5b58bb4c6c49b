"""Parses type strings and column lists, in the spellings of Paimon and Flink SQL and of Spark DDL.

One recursive descent parser serves both, because a schema file spells a type as a column list does, for example
``"TIMESTAMP(6) WITH LOCAL TIME ZONE NOT NULL"``. The depth is bounded, so that no text can exhaust the stack.
"""

import re

from streamsink.errors import Misuse
from streamsink.format.type_model import (
    FOREIGN_ROOTS,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    VectorType,
)

MAX_DEPTH = 64

_TOKEN = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<text>'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\")"
    r"|(?P<word>[^\W\d]\w*)|(?P<number>\d+)|(?P<sign>[<>(),:]))"
)
_SPARK_ALIASES = {
    "LONG": "BIGINT",
    "INTEGER": "INT",
    "SHORT": "SMALLINT",
    "BYTE": "TINYINT",
    "REAL": "FLOAT",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
    "TIMESTAMP_NTZ": "TIMESTAMP",
}
_TAKES_LENGTH = ("CHAR", "VARCHAR", "BINARY", "VARBINARY")
_TAKES_PRECISION = ("TIME", "TIMESTAMP", "TIMESTAMP_LTZ")
_PLAIN = ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE", "STRING", "BYTES")
#: The types that can be written and read, for messages.
_NAMES = (*_PLAIN, "CHAR", "VARCHAR", "BINARY", "VARBINARY", "DECIMAL", "TIME", "TIMESTAMP", "ARRAY", "MAP", "ROW")
#: A column has at most a COMMENT and a DEFAULT, in any order.
_MOST_CLAUSES = 2


def bad_type(message: str) -> Misuse:
    """The error for every type or column list that cannot be read."""
    return Misuse(message, kind="schema.bad-type")


class TypeParser:
    """Parses one text from its start; every method consumes what it reads. Raises: Misuse ``schema.bad-type``."""

    def __init__(self, text: str):
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        self._next = 0
        position = 0
        end = len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                raise bad_type(f"cannot read {text[position : position + 20].strip()!r} in {text!r}")
            self._tokens.append((match.lastgroup or "", match.group(match.lastgroup or 0)))
            position = match.end()

    def whole_type(self) -> DataType:
        """Parse the text as one type, with an optional NULL or NOT NULL."""
        found = self._type(0)
        self._end()
        return found

    def columns(self) -> list[DataField]:
        """Parse the text as a list of columns."""
        fields = self._fields(0, closing=None)
        self._end()
        return fields

    def _end(self) -> None:
        if self._next < len(self._tokens):
            raise bad_type(f"unexpected {self._tokens[self._next][1]!r} in {self._text!r}")

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        at = self._next + ahead
        return self._tokens[at] if at < len(self._tokens) else ("end", "")

    def _word(self, *words: str) -> bool:
        """Consume the words if all of them come next; whether they did."""
        for i, word in enumerate(words):
            kind, text = self._peek(i)
            if kind != "word" or text.upper() != word:
                return False
        self._next += len(words)
        return True

    def _sign(self, sign: str) -> bool:
        if self._peek() == ("sign", sign):
            self._next += 1
            return True
        return False

    def _need(self, sign: str) -> None:
        if not self._sign(sign):
            raise bad_type(f"expected {sign!r} before {self._peek()[1] or 'the end'!r} in {self._text!r}")

    def _number(self) -> int:
        kind, text = self._peek()
        if kind != "number" or len(text) > 10:
            raise bad_type(f"expected a number before {text or 'the end'!r} in {self._text!r}")
        self._next += 1
        return int(text)

    def _fields(self, depth: int, closing: str | None) -> list[DataField]:
        fields: list[DataField] = []
        if closing is not None and self._sign(closing):
            return fields
        fields.append(self._field(depth))
        while self._sign(","):
            fields.append(self._field(depth))
        if closing is not None:
            self._need(closing)
        return fields

    def _field(self, depth: int) -> DataField:
        kind, text = self._peek()
        if kind not in ("word", "quoted"):
            raise bad_type(f"expected a column name before {text or 'the end'!r} in {self._text!r}")
        self._next += 1
        name = text[1:-1].replace("``", "`") if kind == "quoted" else text
        self._sign(":")
        found = self._type(depth)
        description = default = None
        for _ in range(_MOST_CLAUSES):
            # Flink writes the comment of a nested field without the word COMMENT.
            if self._word("COMMENT") or self._peek()[0] == "text":
                description = self._literal()
            elif self._word("DEFAULT"):
                default = self._literal()
        return DataField(-1, name, found, description, default)

    def _literal(self) -> str:
        kind, text = self._peek()
        if kind not in ("text", "number", "word"):
            raise bad_type(f"expected a literal before {text or 'the end'!r} in {self._text!r}")
        self._next += 1
        if kind != "text":
            return text
        quote = text[0]
        return re.sub(r"\\(.)", r"\1", text[1:-1].replace(quote * 2, quote))

    def _type(self, depth: int) -> DataType:
        if depth > MAX_DEPTH:
            raise bad_type(f"a type is nested deeper than {MAX_DEPTH}")
        kind, text = self._peek()
        if kind != "word":
            raise bad_type(f"expected a type before {text or 'the end'!r} in {self._text!r}")
        self._next += 1
        root = _SPARK_ALIASES.get(text.upper(), text.upper())
        found = self._nested(root, depth) or self._atomic(root, text)
        while self._word("ARRAY"):  # SQL's postfix notation: INT ARRAY
            found = ArrayType(self._nullability(found))
        return self._nullability(found)

    def _nullability(self, found: DataType) -> DataType:
        if self._word("NOT", "NULL"):
            return found.as_nullable(False)
        self._word("NULL")
        return found

    def _nested(self, root: str, depth: int) -> DataType | None:
        if root in ("ROW", "STRUCT"):
            closing = ">" if self._sign("<") else ")"
            if closing == ")":
                self._need("(")
            return RowType(tuple(self._fields(depth + 1, closing)))
        if root not in ("ARRAY", "MAP", "MULTISET", "VECTOR"):
            return None
        self._need("<")
        first = self._type(depth + 1)
        found: DataType = ArrayType(first)
        if root == "MULTISET":
            found = MultisetType(first)
        elif root == "VECTOR":
            self._need(",")
            found = VectorType(first, self._number())
        elif root == "MAP":
            self._need(",")
            found = MapType(first, self._type(depth + 1))
        self._need(">")
        return found

    def _arguments(self, most: int) -> list[int | None]:
        """The numbers in parentheses, if there are any; None for each that is missing of ``most``."""
        numbers: list[int | None] = []
        if self._sign("("):
            numbers.append(self._number())
            while len(numbers) < most and self._sign(","):
                numbers.append(self._number())
            self._need(")")
        return numbers + [None] * (most - len(numbers))

    def _atomic(self, root: str, text: str) -> DataType:
        if root in _TAKES_LENGTH:
            return AtomicType(root, length=self._arguments(1)[0])
        if root == "DECIMAL":
            precision, scale = self._arguments(2)
            return AtomicType(root, precision=precision, scale=scale)
        if root in _TAKES_PRECISION:
            precision = self._arguments(1)[0]
            if self._word("WITH", "LOCAL", "TIME", "ZONE"):
                if root == "TIME":
                    raise bad_type(f"TIME has no time zone in {self._text!r}")
                root = "TIMESTAMP_LTZ"
            else:
                self._word("WITHOUT", "TIME", "ZONE")
            return AtomicType(root, precision=precision)
        if root in FOREIGN_ROOTS:
            return AtomicType(root, detail=self._foreign_arguments())
        if root == "DOUBLE":
            self._word("PRECISION")
        if root not in _PLAIN:
            raise bad_type(f"unknown type {text!r} in {self._text!r}; known are {', '.join(_NAMES)}")
        return AtomicType(root)

    def _foreign_arguments(self) -> str | None:
        if not self._sign("("):
            return None
        parts = []
        while not self._sign(")"):
            kind, text = self._peek()
            if kind == "end":
                raise bad_type(f"expected ')' before the end in {self._text!r}")
            self._next += 1
            parts.append(text)
        return "".join(parts).replace(",", ", ")
