"""Takes the rows of a DataFrame to the driver as Arrow data, with few questions to Spark's JVM. Runs on the driver."""

from typing import Any

import pyarrow as pa
from py4j.protocol import (
    ARRAY_COMMAND_NAME,
    ARRAY_GET_SUB_COMMAND_NAME,
    END_COMMAND_PART,
    get_command_part,
    get_return_value,
)
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.sql import DataFrame
from pyspark.sql.pandas.serializers import ArrowCollectSerializer
from pyspark.util import local_connect_and_auth


class Collecting:
    """All rows of a DataFrame on their way to the driver.

    Spark's job runs while the caller does what it can do without them.

    This does what ``DataFrame.toArrow`` does, but gives the job no name. It is a context; at its end nobody listens to
    the job any more.
    """

    def __init__(self, df: DataFrame):
        handed = df._jdf.collectAsArrowToPython()
        self._stream, socket = local_connect_and_auth(_element(handed, 0), _element(handed, 1))
        socket.settimeout(None)  # a job may take any time
        self._job = _element(handed, 2)  # asked for when the job runs already

    def rows(self) -> list[pa.RecordBatch]:
        """Return the rows in order, as Spark hands them over; an empty list when there are none. Call it once.

        Raises what Spark raises.
        """
        try:
            given = list(ArrowCollectSerializer().load_stream(self._stream))  # type: ignore[no-untyped-call]
        finally:
            # Always ask for the result, because the stream of a job that has failed may end as if it were complete.
            with unwrap_spark_exception():
                self._job.getResult()
        # Up to Spark 4.2 the order of the pieces comes after them; 4.3 has put them in order.
        if given and isinstance(given[-1], list):
            *pieces, order = given
            return [pieces[index] for index in order]
        return given

    def __enter__(self) -> "Collecting":
        return self

    def __exit__(self, *raised: object) -> None:
        self._stream.close()


def _element(array: Any, index: int) -> Any:
    """An element of a Java array, which has it. Asks the JVM once; ``array[index]`` asks for the length as well."""
    place = f"{array._get_object_id()}\n{get_command_part(index)}{END_COMMAND_PART}"
    answer = array._gateway_client.send_command(ARRAY_COMMAND_NAME + ARRAY_GET_SUB_COMMAND_NAME + place)
    return get_return_value(answer, array._gateway_client)
