"""How a run ends before its source does: Ctrl-C or SIGTERM stops the query, and the closing table still comes."""

import logging
import signal
import threading
import time

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import streamsink

log = logging.getLogger("streamsink")
POLL_S = 0.01


class Ending:
    """Ends the queries of one session. A second signal ends the process at once, which loses nothing either."""

    def __init__(self, spark: SparkSession):
        self._spark = spark
        self.asked = False
        self.by_signal = False
        # It is installed after the session, which installs a handler of its own that would break into the wait for the
        # query.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def stop(self) -> None:
        """Stop the query. Returns when Spark knows of the stop and plans no further batch.
        It may be called inside a batch."""
        self.asked = True
        for query in self._spark.streams.active:
            threading.Thread(target=query.stop, daemon=True).start()
            while query.isActive:
                time.sleep(POLL_S)

    def run(self, start) -> None:
        """Call ``streamsink.run``. What a batch says that was interrupted because of ``stop`` goes to the log only."""

        def started():
            query = start()
            if self.asked:  # A signal that came before the query did has found none to stop.
                self.stop()
            return query

        try:
            streamsink.run(started)
        except (PySparkException, Py4JError, streamsink.errors.StreamsinkError):
            if not self.asked:
                raise
            log.info("interrupted in a batch, which the next run begins with", exc_info=True)

    def _on_signal(self, number: int, _frame) -> None:
        self.by_signal = True
        signal.signal(number, signal.SIG_DFL)
        # The main thread is inside a call to the JVM, which a second call on its connection would upset.
        threading.Thread(target=self.stop, daemon=True).start()
