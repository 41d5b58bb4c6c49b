#!/usr/bin/env python3
"""Order events from Kafka, or generated ones, into a table of PostgreSQL: each exactly once, whatever is killed."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from support import chaos, session  # noqa: E402
from support.arguments import of_postgres_job  # noqa: E402
from support.ending import Ending  # noqa: E402
from support.generated import generated  # noqa: E402
from support.metrics import beside, served  # noqa: E402
from support.places import Places  # noqa: E402
from support.postgres import PASSWORD, Server, server  # noqa: E402
from support.progress import Progress, say  # noqa: E402
from support.report import close  # noqa: E402
from support.topic import TopicError, orders_of_job  # noqa: E402

import streamsink  # noqa: E402
from streamsink.databases import DatabaseSink  # noqa: E402
from streamsink.sink import to_sink  # noqa: E402
from streamsink.testing.faults import arm_from_env  # noqa: E402


def main() -> int:
    args = of_postgres_job(__doc__, sys.argv[1:])
    table = args.topic if args.brokers else "orders"
    places = Places.of(args.warehouse, f"postgres/{table}")
    if not args.brokers and not args.up_to:
        args.up_to = generated(places, places.newest_batch()) + args.events
    with server(args.postgres, args.user, Path(args.warehouse).absolute() / "server") as database:
        if not chaos.is_life():
            say(f"table       {database.url} {table}\ncheckpoint  {places.checkpoint}\nSpark's log {places.log}")
        if args.chaos:
            own = ("--postgres", database.url, "--user", database.user)
            return chaos.run(args, places, chaos.OF_ANY_SINK, own)
        return run(args, places, database, table)


def run(args, places: Places, database: Server, table: str) -> int:
    """One driver, until the source is at its end."""
    arm_from_env()  # It does nothing except under --chaos.
    metrics = served(args.metrics)
    spark = session.quiet("kafka_to_postgres", places.log)
    source = orders_of_job(spark, places, args)
    progress = Progress(source.lag)
    destination = DatabaseSink(
        database.url,
        table,
        journal=f"{Path(args.warehouse).absolute()}/journals",
        user=database.user,
        password_env=PASSWORD,
        create_table=True,
        name=f"postgresql:{table}",  # the port of the job's own server changes; the database says who it is
    )
    ending = Ending(spark)
    listener = beside(progress, metrics, spark)
    publish = source.until_done(to_sink(destination, listener, application=f"postgres-{table}"), ending)

    def start():
        query = source.stream().writeStream.foreachBatch(publish).trigger(**source.trigger())
        return query.option("checkpointLocation", places.checkpoint).start()

    ending.run(start)
    interrupted_after = progress.last_batch if ending.by_signal else None
    outcome = database.outcome(source.given_as, source.expected(interrupted_after), table)
    return close(outcome, progress)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (streamsink.errors.StreamsinkError, TopicError) as error:
        sys.exit(f"error: {error}")
