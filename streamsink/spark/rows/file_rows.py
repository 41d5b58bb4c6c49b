"""The rows of a batch of which some files are recorded already. Runs on the driver.

A column names the file of each row, so that the rows of the new files can be told apart.
"""

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol.file_entries import spelling
from streamsink.protocol.positions import SourceRange
from streamsink.spark.names import check_one
from streamsink.spark.types import quoted

_PATH, _IS_NEW = "__streamsink_path", "__streamsink_is_new"
# The message with which a row of another file fails, in Spark's own tasks.
_NO_FILE_OF_THE_BATCH = "streamsink: a row of no file of the batch"
# Up to this number of paths, each task is given all of them; with more, Spark sorts the rows and the paths.
_MOST_GIVEN = 200_000

T = TypeVar("T")


def check_column(df: DataFrame, path: str, options: SinkOptions) -> None:
    """Check the column that the option ``file_column`` names.

    Raises Misuse when the data does not have it, or it holds no text.
    """
    name = options.file_column
    if name is None:
        return
    if name in df.columns:
        check_one(df, name, path, "file_column", "option.file-column")
        if isinstance(df.schema[name].dataType, StringType):
            return
    found = (
        f"it is of type {df.schema[name].dataType.simpleString()}"
        if name in df.columns
        else f"the data has {', '.join(df.columns)}"
    )
    raise Misuse(
        f"{path}: option 'file_column' is {name!r}, expected the name of a text column; {found}. Nothing was written. "
        "Select _metadata.file_path among the columns of the stream, and give the name that it has there",
        kind="option.file-column",
    )


def of_new_files(df: DataFrame, column: str, sources: Sequence[SourceRange], seen: Collection[str]) -> DataFrame:
    """Only the rows of files that are not seen.

    column: names the file of each row. seen: paths, as ``spelling`` returns them. A row of a file that is none of the
    batch's files fails the job; see ``explained``.
    """
    paths = sorted({spelling(file.path) for source in sources for file in source.files or ()})
    files = df.sparkSession.createDataFrame(pa.table({_PATH: paths, _IS_NEW: [path not in seen for path in paths]}))
    if len(paths) <= _MOST_GIVEN:
        files = F.broadcast(files)
    path = F.regexp_replace(F.col(quoted(column)), "^file:/+", "file:///")  # as ``spelling`` does
    rows = df.join(files, path == F.col(_PATH), "left")
    is_new = F.when(F.col(_IS_NEW).isNotNull(), F.col(_IS_NEW)).otherwise(F.raise_error(F.lit(_NO_FILE_OF_THE_BATCH)))
    return rows.where(is_new).drop(_PATH, _IS_NEW)


def explained(path: str, options: SinkOptions, write: Callable[[], T], same: str | None) -> T:
    """Return what ``write`` returns.

    Raises Misuse when it failed because of a row of a file that is none of the batch's files. same: as in ``Decision``.
    """
    try:
        return write()
    except (PySparkException, Py4JError) as failed:
        if _NO_FILE_OF_THE_BATCH not in str(failed):
            raise
        changed = f", set accept_as_same='{same}', because the query changes by that" if same else ""
        raise Misuse(
            f"{path}: column '{options.file_column}' (option file_column) names, in at least one row, none of the "
            "files of the batch, so it does not tell which rows are here already. Nothing was written. It must be "
            f"the stream's _metadata.file_path, unchanged; name that column{changed}, then restart the query",
            kind="files.column",
        ) from failed
