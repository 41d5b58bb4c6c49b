#!/usr/bin/env python3
"""Order events from Kafka, or generated ones, into a topic of Kafka: each exactly once, whatever is killed."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from support import chaos, session, target  # noqa: E402
from support.arguments import of_kafka_job  # noqa: E402
from support.ending import Ending  # noqa: E402
from support.generated import generated  # noqa: E402
from support.metrics import beside, served  # noqa: E402
from support.places import Places  # noqa: E402
from support.progress import Progress, say  # noqa: E402
from support.report import close  # noqa: E402
from support.topic import TopicError, orders_of_job  # noqa: E402

import streamsink  # noqa: E402
from streamsink.kafka import KafkaSink  # noqa: E402
from streamsink.sink import to_sink  # noqa: E402
from streamsink.testing.faults import arm_from_env  # noqa: E402


def main() -> int:
    args = of_kafka_job(__doc__, sys.argv[1:])
    places = Places.of(args.warehouse, f"kafka/{args.to}")
    if not args.brokers and not args.up_to:
        args.up_to = generated(places, places.newest_batch()) + args.events
    with target.cluster(args.to_brokers or args.brokers, Path(args.warehouse).absolute() / "broker") as brokers:
        if not chaos.is_life():
            say(f"topic       {args.to} at {brokers}\ncheckpoint  {places.checkpoint}\nSpark's log {places.log}")
            target.create(brokers, args.to)
        if args.chaos:
            return chaos.run(args, places, chaos.OF_ANY_SINK, ("--to", args.to, "--to-brokers", brokers))
        return run(args, places, brokers)


def run(args, places: Places, brokers: str) -> int:
    """One driver, until the source is at its end."""
    arm_from_env()  # It does nothing except under --chaos.
    metrics = served(args.metrics)
    spark = session.quiet("kafka_to_kafka", places.log)
    source = orders_of_job(spark, places, args)
    progress = Progress(source.lag)
    destination = KafkaSink(brokers, args.to, journal=f"{Path(args.warehouse).absolute()}/journals")
    ending = Ending(spark)
    listener = beside(progress, metrics, spark)
    publish = source.until_done(to_sink(destination, listener, application=f"kafka-{args.to}"), ending)

    def start():
        messages = source.stream().selectExpr("cast(order_id as string) AS key", "to_json(struct(*)) AS value")
        query = messages.writeStream.foreachBatch(publish).trigger(**source.trigger())
        return query.option("checkpointLocation", places.checkpoint).start()

    ending.run(start)
    interrupted_after = progress.last_batch if ending.by_signal else None
    outcome = target.outcome(source.given_as, source.expected(interrupted_after), brokers, args.to)
    return close(outcome, progress)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (streamsink.errors.StreamsinkError, TopicError) as error:
        sys.exit(f"error: {error}")
