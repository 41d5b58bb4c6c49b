"""The arguments of the jobs."""

import argparse

from support import chaos
from support.places import is_uri

ROWS_PER_BATCH = 50_000
EVENTS = 1_000_000


def of_main_job(description: str, given: list[str]) -> argparse.Namespace:
    """Parse and check the arguments; end the process with a usage message when they make no sense."""
    parser = _parser(description)
    args = _checked(parser, given)
    if is_uri(args.warehouse) and (args.chaos or not args.brokers):
        parser.error("a warehouse on a store goes with --brokers and without --chaos, whose account is on a disk")
    return args


def of_postgres_job(description: str, given: list[str]) -> argparse.Namespace:
    """Likewise, of the job that writes into PostgreSQL."""
    parser = _parser(description)
    parser.add_argument(
        "--postgres", metavar="URL", help="postgresql://host:port/database; without it a server of the job's own"
    )
    parser.add_argument("--user", default="", help="of the database; its password is in $STREAMSINK_JOB_PASSWORD")
    args = _checked(parser, given)
    if is_uri(args.warehouse):
        parser.error("--warehouse is a folder here: journal and checkpoint lie there")
    return args


def of_kafka_job(description: str, given: list[str]) -> argparse.Namespace:
    """Likewise, of the job that writes into Kafka."""
    parser = _parser(description)
    parser.add_argument("--to", default="orders-once", metavar="TOPIC", help="created when it is not there")
    parser.add_argument(
        "--to-brokers",
        metavar="HOST:PORT",
        help="of the topic's cluster; that of --brokers, or a broker of the job's own",
    )
    args = _checked(parser, given)
    if is_uri(args.warehouse):
        parser.error("--warehouse is a folder here: journal and checkpoint lie there")
    return args


def of_iceberg_job(description: str, given: list[str]) -> argparse.Namespace:
    """Likewise, of the job that writes an Iceberg table."""
    parser = _parser(description)
    parser.add_argument("--catalog", help="its name, as pyiceberg knows it; without it a catalog of the job's own")
    parser.add_argument(
        "--catalog-property",
        action="append",
        type=_pair,
        default=[],
        metavar="NAME=VALUE",
        help="of the catalog, such as uri=thrift://host:9083; may be given several times",
    )
    args = _checked(parser, given)
    if is_uri(args.warehouse):
        parser.error("--warehouse is a folder here: the checkpoint lies beside it")
    if args.catalog_property and not args.catalog:
        parser.error("--catalog-property goes with --catalog")
    return args


def _parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--warehouse", default="lake", help="folder or URI of the tables; checkpoints go to ckpt/ beside it"
    )
    parser.add_argument(
        "--store-option",
        action="append",
        type=_pair,
        default=[],
        metavar="NAME=VALUE",
        help="for a warehouse on a store: s3.endpoint=https://... and others; may be given several times",
    )
    parser.add_argument("--brokers", help="host:port of a Kafka cluster; without it the events are generated")
    parser.add_argument("--topic", default="orders", help="topic of JSON orders")
    parser.add_argument(
        "--until-caught-up", action="store_true", help="Kafka: stop when what is there now is published"
    )
    parser.add_argument("--events", type=_positive, default=EVENTS, help="events that this run generates")
    parser.add_argument("--up-to", type=_positive, help="generate until there are so many in all runs, instead")
    parser.add_argument(
        "--rows-per-batch", type=_positive, help=f"default {ROWS_PER_BATCH}; --chaos makes smaller batches"
    )
    parser.add_argument("--chaos", action="store_true", help="kill the driver at named steps, restart it, and compare")
    parser.add_argument(
        "--kills", type=_positive, default=len(chaos.STEPS), help=f"of --chaos, up to {len(chaos.STEPS)}"
    )
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve metrics for Prometheus while it runs")
    return parser


def _checked(parser: argparse.ArgumentParser, given: list[str]) -> argparse.Namespace:
    args = parser.parse_args(given)
    if args.until_caught_up and not args.brokers:
        parser.error("--until-caught-up goes with --brokers")
    args.store_options = dict(args.store_option)
    if not args.rows_per_batch:
        args.rows_per_batch = max(1, args.events // chaos.BATCHES) if args.chaos else min(ROWS_PER_BATCH, args.events)
    return args


def _pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise ValueError(text)
    return name, value


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number
