"""The data types of a table, as frozen values. Other packages import them from ``streamsink.format.types``.

``nullable`` is part of every type, as in Paimon: ``INT NOT NULL`` and ``INT`` are different types.
"""

from dataclasses import dataclass, replace

from streamsink.errors import Misuse

MAX_LENGTH = 2147483647
MAX_DECIMAL_PRECISION = 38
MAX_TIME_PRECISION = 9

#: roots of types with a length
_LENGTH_ROOTS = ("CHAR", "VARCHAR", "BINARY", "VARBINARY")
#: root -> default precision
_TIME_ROOTS = {"TIME": 0, "TIMESTAMP": 6, "TIMESTAMP_LTZ": 6}
_PLAIN_ROOTS = ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE")
#: Types that Paimon knows. They are parsed so that a check can name them; nothing here encodes their values.
FOREIGN_ROOTS = ("VARIANT", "BLOB", "GEOMETRY", "GEOGRAPHY")
_ALIASES = {"STRING": "VARCHAR", "BYTES": "VARBINARY", "INTEGER": "INT", "DEC": "DECIMAL", "NUMERIC": "DECIMAL"}

# From the narrowest to the widest.
INTEGER_ROOTS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
CHARACTER_ROOTS = ("CHAR", "VARCHAR")
BINARY_ROOTS = ("BINARY", "VARBINARY")
TIMESTAMP_ROOTS = ("TIMESTAMP", "TIMESTAMP_LTZ")


class DataType:
    """The base of all types. Every subclass is a dataclass with ``nullable: bool``."""

    nullable: bool

    def as_nullable(self, nullable: bool) -> "DataType":
        """The same type with this nullability."""
        if self.nullable == nullable:
            return self
        return replace(self, nullable=nullable)  # type: ignore[type-var]  # every subclass is a dataclass


@dataclass(frozen=True)
class AtomicType(DataType):
    """A type without parts.

    ``root`` is upper case, and aliases are resolved, so that ``AtomicType("STRING")`` equals
    ``AtomicType("VARCHAR", length=2147483647)``. A missing length, precision or scale gets Paimon's default.
    ``detail`` keeps the arguments of types that are only known by name (``GEOMETRY(crs)``).

    Raises: Misuse ``schema.bad-type`` for an unknown root or numbers out of range.
    """

    root: str
    nullable: bool = True
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    detail: str | None = None

    def __post_init__(self) -> None:
        root = self.root.upper()
        length = self.length
        if root in ("STRING", "BYTES"):
            length = MAX_LENGTH
        root = _ALIASES.get(root, root)
        precision, scale = self.precision, self.scale
        if root in _LENGTH_ROOTS:
            length = 1 if length is None else length
            _check(1 <= length <= MAX_LENGTH, f"{root}({length}): the length must be 1 to {MAX_LENGTH}")
        elif root == "DECIMAL":
            precision = 10 if precision is None else precision
            scale = 0 if scale is None else scale
            _check(
                1 <= precision <= MAX_DECIMAL_PRECISION and 0 <= scale <= precision,
                f"DECIMAL({precision}, {scale}): precision must be 1 to 38, scale 0 to the precision",
            )
        elif root in _TIME_ROOTS:
            precision = _TIME_ROOTS[root] if precision is None else precision
            _check(0 <= precision <= MAX_TIME_PRECISION, f"{root}({precision}): precision must be 0 to 9")
        else:
            _check(root in _PLAIN_ROOTS or root in FOREIGN_ROOTS, f"unknown type {self.root!r}")
        for name, value in (("root", root), ("length", length), ("precision", precision), ("scale", scale)):
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        return _atomic_text(self) + ("" if self.nullable else " NOT NULL")


def _check(fine: bool, message: str) -> None:
    if not fine:
        raise Misuse(message, kind="schema.bad-type")


def _atomic_text(t: AtomicType) -> str:
    if t.root in _LENGTH_ROOTS:
        if t.length == MAX_LENGTH and t.root in ("VARCHAR", "VARBINARY"):
            return "STRING" if t.root == "VARCHAR" else "BYTES"
        return f"{t.root}({t.length})"
    if t.root == "DECIMAL":
        return f"DECIMAL({t.precision}, {t.scale})"
    if t.root == "TIMESTAMP_LTZ":
        return f"TIMESTAMP({t.precision}) WITH LOCAL TIME ZONE"
    if t.root in _TIME_ROOTS:
        return f"{t.root}({t.precision})"
    return t.root if t.detail is None else f"{t.root}({t.detail})"


@dataclass(frozen=True)
class ArrayType(DataType):
    """A list of ``element``."""

    element: DataType
    nullable: bool = True

    def __str__(self) -> str:
        return f"ARRAY<{self.element}>" + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True)
class MapType(DataType):
    """Pairs of ``key`` and ``value``."""

    key: DataType
    value: DataType
    nullable: bool = True

    def __str__(self) -> str:
        return f"MAP<{self.key}, {self.value}>" + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True)
class MultisetType(DataType):
    """A MULTISET, which is parsed so that it can be refused by name."""

    element: DataType
    nullable: bool = True

    def __str__(self) -> str:
        return f"MULTISET<{self.element}>" + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True)
class VectorType(DataType):
    """A VECTOR, which is parsed so that it can be refused by name."""

    element: DataType
    length: int
    nullable: bool = True

    def __str__(self) -> str:
        return f"VECTOR<{self.element}, {self.length}>" + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True)
class DataField:
    """A column, or a field of a ROW. ``id`` is -1 until it is assigned."""

    id: int
    name: str
    type: DataType
    description: str | None = None
    default_value: str | None = None

    def __str__(self) -> str:
        return f"`{self.name}` {self.type}"


@dataclass(frozen=True)
class RowType(DataType):
    """Named fields in order."""

    fields: tuple[DataField, ...]
    nullable: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))

    def __str__(self) -> str:
        return f"ROW<{', '.join(map(str, self.fields))}>" + ("" if self.nullable else " NOT NULL")


def is_nested(t: DataType) -> bool:
    """Whether the type has parts (ARRAY, MAP, MULTISET, ROW, VECTOR)."""
    return not isinstance(t, AtomicType)


def is_primitive(t: DataType) -> bool:
    """Whether the type may be a partition column or a key."""
    return isinstance(t, AtomicType) and t.root not in FOREIGN_ROOTS
