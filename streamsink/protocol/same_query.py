"""Is it the same query? A fingerprint of what a query reads and does, its parts kept apart, and their comparison. Pure.

docs/design/0008-same-query.md says what each part covers, and what none of them does.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_DIGITS = 32  # 128 bits


def digest(text: str) -> str:
    """The first 128 bits of the text's SHA-256, as 32 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


@dataclass(frozen=True)
class QueryFingerprint:
    """Digests of what a query is. The same program has the same digests in another process and on another checkpoint.

    sources: what is read: kinds, subscriptions, paths, columns.
    plan: the analysed plan of the stream, and what the batch function did with a batch before it called the sink.
    dates: dates and timestamps in the plan's conditions, which programs compute anew at each start.
    schema: names and types of the columns that the sink is given.
    spark: the Spark version in whose words the plan is written, such as "4.1".
    comparable: False where the plan does not show everything, such as the body of a Python function.
    """

    sources: str
    plan: str
    dates: str
    schema: str
    spark: str
    comparable: bool

    def to_json(self) -> dict[str, Any]:
        """The fingerprint as a state has it."""
        return {name: getattr(self, name) for name in _FIELDS}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "QueryFingerprint":
        """The inverse of ``to_json``."""
        return cls(**{name: value[name] for name in _FIELDS})


_FIELDS = ("sources", "plan", "dates", "schema", "spark", "comparable")


@dataclass(frozen=True)
class QueryComparison:
    """The outcome of a comparison.

    differs: parts that are certainly different, each with the digests found and recorded. unknown: reasons why it
    cannot be told whether the queries are the same.
    """

    differs: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether the queries are the same for certain."""
        return not self.differs and not self.unknown


def compare(recorded: QueryFingerprint | None, found: QueryFingerprint | None) -> QueryComparison:
    """Compare a recorded fingerprint with the one found.

    A certain difference (``differs``) comes before what cannot be told (``unknown``); both are empty for the same
    query.
    """
    if recorded is None:
        return QueryComparison(
            (), ("the table records no fingerprint of the query that wrote it: an older streamsink did",)
        )
    if found is None:
        return QueryComparison((), ("this query has no fingerprint",))
    one_spark = recorded.spark == found.spark
    parts = ("sources", "schema", "plan") if one_spark else ("sources", "schema")
    differs = tuple(
        f"{part} (found {getattr(found, part)}, recorded {getattr(recorded, part)})"
        for part in parts
        if getattr(found, part) != getattr(recorded, part)
    )
    unknown = []
    if not one_spark:
        unknown.append(f"plans of Spark {found.spark} and Spark {recorded.spark} do not compare")
    if not (recorded.comparable and found.comparable):
        unknown.append(
            "its plan does not show everything that it does: a Python, Scala or Java function stands in it, or its "
            "rows went through an RDD"
        )
    if one_spark and recorded.dates != found.dates:
        unknown.append(
            f"dates or timestamps in its conditions differ (found {found.dates}, recorded {recorded.dates}), which the "
            "program may compute anew at each start"
        )
    return QueryComparison(differs, tuple(unknown))
