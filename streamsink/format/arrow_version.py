"""Which pyarrow is here. Each machine's Python has its own. Executor and driver."""

import os
import sys

import pyarrow as pa

from streamsink.errors import Misuse

# Earlier ones do not know an argument with which files are written, and write some times within lists as others.
LEAST = 23


def check_arrow(where: str) -> None:
    """Raises Misuse when the pyarrow of this Python is too old. where: the path that is written, for the message."""
    if int(pa.__version__.partition(".")[0]) < LEAST:
        raise Misuse(
            f"{where}: pyarrow {pa.__version__} of {sys.executable} on {os.uname().nodename} is too old, expected "
            f"{LEAST} or later. Nothing was written. Run {sys.executable} -m pip install 'pyarrow>={LEAST}' there; the "
            "driver and each executor have a Python of their own (spark.pyspark.python). Then start it again",
            kind="pyarrow.version",
        )
