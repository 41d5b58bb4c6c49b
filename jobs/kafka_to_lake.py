#!/usr/bin/env python3
"""Order events from Kafka, or generated ones, into a Paimon table: each exactly once, whatever is killed."""

import sys

from support import chaos, session
from support.arguments import of_main_job
from support.ending import Ending
from support.generated import GeneratedOrders, generated
from support.metrics import beside, served
from support.places import Places
from support.progress import Progress, say
from support.report import close, commands_for, report_of
from support.topic import KafkaOrders, Topic, TopicError

import streamsink
from streamsink.testing.faults import arm_from_env

# From the first day, beside the batches: small files become few, old snapshots expire. A reader may take six hours for
# one snapshot; one that says where it is (a consumer) keeps what it needs, until nothing is heard of it for three days.
RETAINED = {"snapshot.time-retained": "6 h", "consumer.expiration-time": "3 d"}
CARE = {"maintenance": True, "compaction": True, "table_options": RETAINED}


def main() -> int:
    args = of_main_job(__doc__, sys.argv[1:])
    places = Places.of(args.warehouse, f"kafka.db/{args.topic}" if args.brokers else "shop.db/orders")
    if not args.brokers and not args.up_to:
        args.up_to = generated(places, places.newest_batch()) + args.events
    if not chaos.is_life():
        say(f"table       {places.table}\ncheckpoint  {places.checkpoint}\nSpark's log {places.log}")
    if args.chaos:
        code = chaos.run(args, places)
        say(report_of(places))
        return code
    arm_from_env()  # It does nothing except under --chaos.
    metrics = served(args.metrics)
    spark = session.quiet("kafka_to_lake", places.log)
    if args.brokers:
        source = KafkaOrders(spark, Topic(spark, args.brokers, args.topic), places.table, args)
    else:
        source = GeneratedOrders(spark, places, args.rows_per_batch, args.up_to)
    progress = Progress(source.lag)
    store = {"store_options": args.store_options}
    listener = beside(progress, metrics, spark)
    sink = streamsink.to_table(places.table, listener, partition_by=["dt"], **source.table_options, **store, **CARE)
    publish = source.until_done(sink, ending := Ending(spark))

    def start():
        query = source.stream().writeStream.foreachBatch(publish).trigger(**source.trigger())
        return query.option("checkpointLocation", places.checkpoint).start()

    ending.run(start)
    interrupted_after = progress.last_batch if ending.by_signal else None
    outcome = source.outcome(streamsink.read(spark, places.table, **store), interrupted_after)
    code = close(outcome, progress)
    say(commands_for(places.table))
    if not chaos.is_life():
        say(report_of(places, args.store_options))
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (streamsink.errors.StreamsinkError, TopicError) as error:
        sys.exit(f"error: {error}")
