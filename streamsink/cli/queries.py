"""Commands that look at the queries of a table: what is pending in their journals, and how far they have come."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from streamsink import shell
from streamsink.cli.frame import At, command, of_application, of_path, watched
from streamsink.cli.output import FINDINGS, RIGHT, Answer, Rows, age
from streamsink.clock import Clock

if TYPE_CHECKING:
    from streamsink.operations.journals import JournalLook, Record
    from streamsink.protocol.committable import AppState

_PENDING = ("application", "record", "checkpoint", "rows", "files", "bytes", "age", "state")


@command(
    "pending",
    """
    $ streamsink pending lake/shop.db/orders
    $ streamsink pending lake/shop.db/orders --application streamsink --json
    """,
    exits="1 when a record cannot be published: it is damaged, one before it is missing, files of it are gone, or what "
    "was published is not in the table any more",
)
@of_path(journals=True)
@of_application(required=False)
@watched
def pending(at: At, application: str | None) -> Answer:
    """What the journals at PATH hold that is recorded and not published yet.

    PATH is a table, the folder of several tables, the folder of another sink, or the place of a journal. Of a table
    that a query writes among several, the journal of that query is shown as well. JSON: {path, journals: [{application,
    path, place, of, owner: {epoch, query, host, pid}, published, retained, missing, pending: [{record, checkpoint,
    rows, files, bytes, age_ms, gone, undone, problem}]}]}.
    """
    from streamsink.operations.journals import applications_of, journals_above, look_at_journals

    file_io = at.store.open()
    above = journals_above(file_io, at.root, application)
    if above and application is not None and application not in applications_of(file_io, at.root):
        return answer_of(at, above)
    return answer_of(at, [*look_at_journals(file_io, at.root, application), *above])


def answer_of(at: At, looks: "Sequence[JournalLook]") -> Answer:
    """What is pending in these journals."""
    now = Clock().now_ms()
    rows = [_row(look, record, now) for look in looks for record in look.pending]
    lines: list[str | Rows] = [f"{at.root}: {_count(len(looks), 'journal')}, {_count(len(rows), 'pending record')}"]
    lines += [Rows("", _PENDING, rows)] if rows else []
    lines += [
        f"{look.application}: record {look.missing} is missing before pending ones" for look in looks if look.missing
    ]
    lines += told_of_above(at, looks)
    is_bad = any(look.missing or any(_trouble(record) for record in look.pending) for look in looks)
    if is_bad:
        lines.append(f"{shell.quoted('doctor', at.root, *shlex.split(at.typed))} says what to do")
    document = {"path": at.root, "journals": [said_of_journal(look, now) for look in looks]}
    return Answer(document, lines, FINDINGS if is_bad else RIGHT)


def told_of_above(at: At, looks: "Sequence[JournalLook]") -> list[str]:
    """What is pending of queries into several tables, and the command that publishes it."""
    return [
        f"{look.application} writes several tables, and has {_count(len(look.pending), 'pending record')} in "
        f"{look.path}: {shell.quoted('recover', look.path, '-a', look.application, *shlex.split(at.typed))}"
        for look in looks
        if look.pending and look.path != at.root
    ]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def said_of_journal(look: "JournalLook", now: int) -> dict[str, Any]:
    """A journal as a JSON object. now: in ms since the epoch."""
    return {
        "application": look.application,
        "path": look.path,
        "place": look.place,
        "of": look.of,
        "owner": vars(look.owner) if look.owner else None,
        "published": look.published,
        "retained": look.retained,
        "missing": look.missing,
        "pending": [
            {
                "record": record.sequence,
                "checkpoint": record.name,
                "rows": record.rows,
                "files": record.files,
                "bytes": record.bytes,
                "age_ms": None if record.written_ms is None else now - record.written_ms,
                "gone": list(record.gone),
                "undone": record.undone,
                "problem": record.problem,
            }
            for record in look.pending
        ],
    }


def _row(look: "JournalLook", record: "Record", now: int) -> list[Any]:
    waited = age(now - record.written_ms) if record.written_ms is not None else None
    state = _trouble(record) or "the next start publishes it"
    return [look.application, record.sequence, record.name, record.rows, record.files, record.bytes, waited, state]


def _trouble(record: "Record") -> str:
    if record.problem:
        return "it cannot be read"
    if record.undone:
        return "was published, and is not in the table any more"
    return f"{len(record.gone)} of its files are gone" if record.gone else ""


@command(
    "positions",
    """
    $ streamsink positions lake/shop.db/orders
    $ streamsink positions lake/shop.db/orders --json
    """,
)
@of_path()
@of_application(required=False)
@watched
def positions(at: At, application: str | None) -> Answer:
    """How far each query has come in the table at PATH: its last published checkpoint, and positions of its sources.

    A position is the first offset that is not published. JSON: {table, complete, applications: [{application,
    checkpoint_id, record, epoch, query, topics: [{source, topic, cluster, topic_id, next}], sources}]}; 'sources' has
    the ends of sources that are not Kafka. 'complete' is false where a part of the history has expired.
    """
    from streamsink.protocol.committable import AppState
    from streamsink.table.table import open_table

    table = open_table(at.store.open(), at.root, for_writing=False)
    states = table.states.read(table.snapshots.latest())
    found = {
        name: AppState.from_json(said)
        for name, said in sorted(states.by_application.items())
        if application in (None, name, name.partition("@")[0])
    }
    rows = [row for name, state in found.items() for row in _rows_of(name, state)]
    head = f"{table.root}: {_count(len(found), 'application')} known here"
    document = {
        "table": table.root,
        "complete": states.complete,
        "applications": [_said_of_state(name, state) for name, state in found.items()],
    }
    columns = ("application", "checkpoint", "source", "topic", "partition", "next")
    return Answer(document, [head, *([Rows("", columns, rows)] if rows else [])])


def _rows_of(name: str, state: "AppState") -> list[list[Any]]:
    head = [name, state.checkpoint_name]
    of_topics = [
        [*head, record.source, record.topic, part, offset]
        for record in state.recorded.topics
        for part, offset in sorted(record.next.items(), key=lambda each: (len(each[0]), each[0]))
    ]
    others = [
        [*head, source.key(place), None, None, str(source.end)]
        for place, source in enumerate(state.sources)
        if not source.numeric
    ]
    return of_topics + others or [[*head, None, None, None, None]]


def _said_of_state(name: str, state: "AppState") -> dict[str, Any]:
    return {
        "application": name,
        "checkpoint_id": state.checkpoint_id,
        "record": state.sequence,
        "epoch": state.epoch,
        "query": state.query,
        "topics": [
            {
                "source": record.source,
                "topic": record.topic,
                "cluster": record.cluster,
                "topic_id": record.topic_id,
                "next": dict(record.next),
            }
            for record in state.recorded.topics
        ],
        "sources": {source.key(place): source.end for place, source in enumerate(state.sources) if not source.numeric},
    }


@command("offsets", "$ streamsink offsets lake/shop.db/orders --application streamsink")
@of_path()
@of_application(required=False, default="streamsink")
@click.option(
    "--source", metavar="PLACE", help="Of a query with several sources: the place from 0, or the name, of one."
)
@click.option("--from-beginning", multiple=True, metavar="TOPIC", help="A topic that begins at its earliest offset.")
@click.option("--without", multiple=True, metavar="TOPIC", help="A recorded topic to leave out.")
@click.option("--partitions", multiple=True, metavar="TOPIC=NUMBER", help="How many partitions a topic has now.")
def offsets(
    *,
    at: At,
    application: str,
    source: str | None,
    from_beginning: tuple[str, ...],
    without: tuple[str, ...],
    partitions: tuple[str, ...],
) -> Answer:
    """Where a new checkpoint of a Kafka query begins, so that nothing is lost or doubled.

    Prints JSON for the option startingOffsets of Spark's Kafka source: where the record of the application ends, with
    what is pending. PATH is a table, or the folder of several. With --json: {path, application, startingOffsets}.
    """
    import json

    import streamsink

    counts = {}
    for text in partitions:
        topic, _, number = text.rpartition("=")
        if not topic or not number.isdigit():
            raise click.BadParameter(f"'{text}' is not TOPIC=NUMBER", param_hint="--partitions")
        counts[topic] = int(number)
    text = streamsink.starting_offsets(
        at.root, application, counts, at.store_options, source=source, from_beginning=from_beginning, without=without
    )
    return Answer({"path": at.root, "application": application, "startingOffsets": json.loads(text)}, [text])
