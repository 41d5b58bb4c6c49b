#!/usr/bin/env python3
"""Write order events as JSON into a Kafka topic, through Spark's own Kafka sink.
The broker creates the topic if it may."""

import argparse
import sys
from pathlib import Path

from pyspark.sql import functions as F
from support import session
from support.orders import orders
from support.progress import say
from support.topic import Topic, TopicError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", required=True, help="host:port")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first event")
    args = parser.parse_args()
    spark = session.quiet("generate_orders", Path("ckpt/generate_orders.spark.log").absolute())
    topic = Topic(spark, args.brokers, args.topic)
    events = orders(spark.range(args.first, args.first + args.events), "id")
    messages = events.select(F.col("order_id").cast("string").alias("key"), F.to_json(F.struct("*")).alias("value"))
    messages.write.format("kafka").option("kafka.bootstrap.servers", args.brokers).option("topic", args.topic).save()
    say(
        f"{args.events:,} events from {args.first:,} on are in topic {args.topic}: {sum(topic.ends().values()):,} "
        "messages in all"
    )


if __name__ == "__main__":
    try:
        main()
    except TopicError as error:
        sys.exit(f"error: {error}")
