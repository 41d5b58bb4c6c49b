#!/usr/bin/env python3
"""Order events from Kafka, or generated ones, into an Iceberg table: each exactly once, whatever is killed."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from support import chaos, session  # noqa: E402
from support.arguments import of_iceberg_job  # noqa: E402
from support.ending import Ending  # noqa: E402
from support.generated import generated  # noqa: E402
from support.iceberg import Lake  # noqa: E402
from support.metrics import beside, served  # noqa: E402
from support.places import Places  # noqa: E402
from support.progress import Progress, say  # noqa: E402
from support.report import close  # noqa: E402
from support.topic import TopicError, orders_of_job  # noqa: E402

import streamsink  # noqa: E402
from streamsink.iceberg import IcebergSink  # noqa: E402
from streamsink.sink import to_sink  # noqa: E402
from streamsink.testing.faults import arm_from_env  # noqa: E402


def main() -> int:
    args = of_iceberg_job(__doc__, sys.argv[1:])
    name = args.topic if args.brokers else "orders"
    places, lake = Places.of(args.warehouse, f"iceberg/{name}"), Lake.of(args, name)
    if not args.brokers and not args.up_to:
        args.up_to = generated(places, places.newest_batch()) + args.events
    if not chaos.is_life():
        say(f"table       {lake.catalog}.{lake.table}\ncheckpoint  {places.checkpoint}\nSpark's log {places.log}")
    if args.chaos:
        own = [f"--catalog-property={key}={value}" for key, value in args.catalog_property]
        own += ["--catalog", args.catalog] if args.catalog else []
        return chaos.run(args, places, chaos.OF_ANY_SINK, tuple(own))
    return run(args, places, lake)


def run(args, places: Places, lake: Lake) -> int:
    """One driver, until the source is at its end."""
    arm_from_env()  # It does nothing except under --chaos.
    metrics = served(args.metrics)
    spark = session.quiet("kafka_to_iceberg", places.log)
    source = orders_of_job(spark, places, args)
    progress = Progress(source.lag)
    destination = IcebergSink(lake.table, lake.catalog, lake.properties)
    ending = Ending(spark)
    listener = beside(progress, metrics, spark)
    sink = to_sink(destination, listener, application="iceberg-job", partition_by=["dt"])
    publish = source.until_done(sink, ending)

    def start():
        query = source.stream().writeStream.foreachBatch(publish).trigger(**source.trigger())
        return query.option("checkpointLocation", places.checkpoint).start()

    ending.run(start)
    interrupted_after = progress.last_batch if ending.by_signal else None
    return close(lake.outcome(source.given_as, source.expected(interrupted_after)), progress)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (streamsink.errors.StreamsinkError, TopicError) as error:
        sys.exit(f"error: {error}")
