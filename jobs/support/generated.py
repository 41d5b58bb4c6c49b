"""The embedded source, Spark's rate-micro-batch: a million order events and more without any service."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from support.ending import Ending
from support.orders import FIRST_EVENT_MS, orders, with_day
from support.places import Places
from support.report import Outcome


class GeneratedOrders:
    """Runs until ``up_to`` events are generated in all. The next run goes on where the last one ended."""

    table_options: dict = {}
    given_as = "events generated"

    def __init__(self, spark: SparkSession, places: Places, rows_per_batch: int, up_to: int):
        self._spark = spark
        self._places = places
        self._rows_per_batch = rows_per_batch
        self._up_to = up_to

    def stream(self) -> DataFrame:
        options = {"rowsPerBatch": self._rows_per_batch, "startTimestamp": FIRST_EVENT_MS}
        source = self._spark.readStream.format("rate-micro-batch").options(**options).load()
        return with_day(orders(source, "value"))

    def trigger(self) -> dict:
        return {"processingTime": "0 seconds"}

    def until_done(self, sink, ending: Ending):
        """A batch function that calls ``sink`` and ends the query after the last batch."""

        def publish(df: DataFrame, batch_id: int) -> None:
            sink(df, batch_id)
            if generated(self._places, batch_id) >= self._up_to:
                # It is open whether Spark still logs this batch as committed, but that does not matter: its replay
                # changes nothing.
                ending.stop()

        return publish

    def lag(self, published: int) -> int:
        """How many events are generated (Spark has planned a batch of them) and not in the table yet."""
        return generated(self._places, self._places.newest_batch()) - generated(self._places, published)

    def expected(self, interrupted_after: int | None) -> int:
        """How many events must be there. interrupted_after: the last published batch of a run that was told to stop.
        The next batch was planned in vain."""
        last = self._places.newest_batch() if interrupted_after is None else interrupted_after
        return generated(self._places, last)

    def outcome(self, table: DataFrame, interrupted_after: int | None) -> Outcome:
        """interrupted_after: as of ``expected``."""
        expected = self.expected(interrupted_after)
        number = F.col("order_id")
        mine = F.when(number.between(0, expected - 1), number)
        row = table.agg(F.count("*"), F.count_distinct(number), F.count_distinct(mine)).first()
        return Outcome(self.given_as, expected, rows=row[0], duplicates=row[0] - row[1], lost=expected - row[2])


def generated(places: Places, batch_id: int | None) -> int:
    """How many events were generated up to the end of that batch, as the source itself counts."""
    return places.planned_end(batch_id).get("offset", 0)
