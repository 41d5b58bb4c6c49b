"""The names of a DataFrame's columns, compared as Spark compares them. Runs on the driver.

A column that an option names must be the only column of its name, also for a session that does not tell upper case from
lower case.
"""

from collections.abc import Sequence
from functools import lru_cache

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamsink.errors import Misuse

_CASE_SENSITIVE = "spark.sql.caseSensitive"


# Every batch asks for the same names again.
@lru_cache(maxsize=4096)
def folded(name: str) -> str:
    """A form that is equal for all names that Spark takes for the same name.

    Spark compares names character by character. The form may also be equal for names that Spark tells apart.
    """
    return "".join(c.upper()[0].lower()[0] for c in name)


def are_alike(names: Sequence[str]) -> bool:
    """Whether Spark may take two of these names for the same name."""
    return len({folded(name) for name in names}) < len(names)


def check_apart(names: Sequence[str], spark: SparkSession, table: str) -> None:
    """Check that this session tells the columns of a table apart.

    table: the table's path, for the message. Raises Misuse when the session would take two of the columns for one.
    """
    if are_alike(names) and (spark.conf.get(_CASE_SENSITIVE, "false") or "").lower() != "true":
        first = next(name for place, name in enumerate(names) if folded(name) in map(folded, names[:place]))
        others = next(name for name in names if folded(name) == folded(first))
        raise Misuse(
            f"{table}: its columns '{others}' and '{first}' have one name for this session. To read it, set "
            f"{_CASE_SENSITIVE} to true in the session, or use streamsink.read_arrow",
            kind="read.names",
        )


def check_one(df: DataFrame, name: str, table: str, option: str, kind: str) -> None:
    """Check that a column of the data is the only one of its name.

    Otherwise another column would be taken, or left out, in its place. name: of a column that the data has. table,
    option, kind: the table's path, the option that names the column, and the kind of the error. Raises Misuse when the
    column is there twice, or when the session takes another column for it.
    """
    alike = [other for other in df.columns if folded(other) == folded(name)]
    if alike.count(name) > 1:
        raise Misuse(
            f"{table}: option '{option}' names column '{name}', which is there twice in the data. Nothing was "
            "written. Drop or rename one of them in the query; of a join, select the columns of each side by name",
            kind=kind,
        )
    others = sorted(set(alike) - {name})
    if others and (df.sparkSession.conf.get(_CASE_SENSITIVE, "false") or "").lower() != "true":
        raise Misuse(
            f"{table}: option '{option}' names column '{name}', and the data has '{others[0]}' as well, which Spark "
            "takes for the same name. Nothing was written. Give one of them another name in the query, or set "
            f"{_CASE_SENSITIVE} to true in the session",
            kind=kind,
        )


def without(df: DataFrame, names: Sequence[str]) -> DataFrame:
    """The DataFrame without exactly these columns.

    ``DataFrame.drop`` also drops every column that some session would take for one of them.
    """
    if not names:
        return df
    given = df.columns
    if not are_alike(given):
        return df.drop(*names)
    plain = df.toDF(*(f"c{place}" for place in range(len(given))))
    return plain.select(*(F.col(f"c{place}").alias(name) for place, name in enumerate(given) if name not in names))
