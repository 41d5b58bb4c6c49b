"""Commands that bring a query's journal and its table together again without Spark: recover, accept, unlock, retire."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from streamsink.cli.frame import (
    At,
    command,
    confirmed,
    of_application,
    of_path,
    of_query,
    of_sink,
    progress,
    proposed,
    query_of,
    sink_named,
)
from streamsink.cli.output import FINDINGS, REFUSED, RIGHT, Answer, Rows

if TYPE_CHECKING:
    from streamsink.events import Event
    from streamsink.operations.journals import JournalLook
    from streamsink.operations.recover import Recovered
    from streamsink.operations.words import Meaning
    from streamsink.options import SinkOptions
    from streamsink.protocol.sink import Sink


@command(
    "recover",
    """
    $ streamsink recover lake/shop.db/orders
    $ streamsink recover lake/shop.db/orders --application streamsink --yes
    $ streamsink recover lake/shop.db/orders --application streamsink --give-up --yes
    """,
    exits="3 where a start of the query would stop with an error, which says what to do",
)
@of_path(journals=True)
@of_application(required=False)
@of_query
@of_sink
@click.option("--give-up", is_flag=True, help="Forget what can never be published, so that its rows are read again.")
@confirmed
def recover(
    *, at: At, application: str | None, given: tuple[str, ...], sink: str | None, give_up: bool, yes: bool
) -> Answer:
    """Publish what a dead query has left pending, as its next start would; or give it up.

    PATH is a table, or the folder of several. Without --yes it shows what is pending. With it the command claims the
    application, so that every earlier driver is fenced, publishes the records in order and removes orphan files: the
    query's next start finds nothing to do. It refuses while a driver lives. With --give-up it forgets the first record
    that can never be published and all behind it, and says from where their rows are read again. What a query into
    several tables has pending is told for each of these, and published by the path of their folder. JSON: {path,
    recovered: [{application, checkpoints, orphans}], above: [{application, path}]}, with --give-up {path, given_up:
    [{application, records, checkpoints, runs, text}]}; without --yes as 'pending'.
    """
    if sink is not None:
        return _recover_sink(at, application, given, sink, give_up=give_up, yes=yes)
    from streamsink.operations.journals import journals_above, look_at_journals

    at.options(given)  # a wrong one is told before anything else
    file_io = at.store.open()
    looks = look_at_journals(file_io, at.root, application)
    above = journals_above(file_io, at.root) if application is None else []
    if not yes:
        return _preview(at, [*looks, *above], give_up)
    names = [look.application for look in looks if application is not None or look.pending]
    if give_up and application is None:
        raise click.UsageError("--give-up needs --application: each query is given up by itself")
    return (
        _given_up(at, [at.options(given, application=name) for name in names])
        if give_up
        else _with_above(at, _recovered(at, [at.options(given, application=name) for name in names]), above)
    )


def _with_above(at: At, answer: Answer, above: "Sequence[JournalLook]") -> Answer:
    """The answer, with what is still pending of queries into several tables."""
    from streamsink.cli.queries import told_of_above

    left = [{"application": look.application, "path": look.path} for look in above if look.pending]
    parts = [*answer.parts, *told_of_above(at, above)]
    code = answer.code or (FINDINGS if left else RIGHT)
    return replace(answer, document={**answer.document, "above": left}, parts=parts, code=code)


def _preview(at: At, looks: "Sequence[JournalLook]", give_up: bool) -> Answer:
    from streamsink.cli.queries import answer_of

    answer = answer_of(at, looks)
    would = "give up what of it can never be published" if give_up else "publish it"
    pending = any(look.pending for look in looks if look.path == at.root)
    if not pending and any(look.pending for look in looks):
        return replace(answer, code=FINDINGS)
    parts = [*answer.parts, f"This would {would}."] if pending else answer.parts
    return proposed(replace(answer, parts=parts), False, would=pending)


def _recovered(at: At, queries: "Sequence[SinkOptions]") -> Answer:
    from streamsink.operations.recover import recover as of_tables
    from streamsink.storage.store_failures import told_of

    done = []
    for options in queries:
        with told_of(at.root, "recover"):
            done.append(of_tables(at.store.open(), at.root, options, _heard))
    return _said_of(at.root, done)


def _said_of(path: str, done: "Sequence[Recovered]") -> Answer:
    said = [
        {"application": each.application, "checkpoints": list(each.checkpoints), "orphans": list(each.orphans)}
        for each in done
    ]
    return Answer({"path": path, "recovered": said}, [str(each) for each in done] or ["Nothing is pending."])


def _heard(event: "Event") -> None:
    checkpoint_id = getattr(event, "checkpoint_id", None)
    progress(f"{type(event).__name__}{'' if checkpoint_id is None else f' {checkpoint_id}'}")


def _given_up(at: At, queries: "Sequence[SinkOptions]", sink: "Sink | None" = None) -> Answer:
    import streamsink

    of = at.root if sink is None else sink
    done = [(options.application, streamsink.give_up(of, options=options)) for options in queries]
    said = [
        {
            "application": name,
            "records": list(each.records),
            "checkpoints": list(each.checkpoints),
            "runs": list(each.runs),
            "text": each.text,
        }
        for name, each in done
    ]
    return Answer({"path": at.root if sink is None else sink.path, "given_up": said}, [each.text for _, each in done])


def _recover_sink(
    at: At, application: str | None, given: tuple[str, ...], name: str, *, give_up: bool, yes: bool
) -> Answer:
    from streamsink.operations.journals import look_at_journals
    from streamsink.operations.recover import recover_sink
    from streamsink.storage.store_failures import told_of

    sink = sink_named(name)
    place, query = query_of(at, sink, application)
    looks = look_at_journals(place.store.open(), place.root, query)  # raises for a name that nobody has written under
    if not yes:
        return _preview(place, looks, give_up)
    options = [place.options(given, application=look.application) for look in looks]
    if give_up:
        return _given_up(place, options, sink)
    with told_of(sink.path, "recover"):
        return _said_of(sink.path, [recover_sink(place.store.open(), sink, each, _heard) for each in options])


@command(
    "accept",
    """
    $ streamsink accept lake/shop.db/orders
    $ streamsink accept lake/shop.db/orders --application streamsink --json
    """,
    exits="1 for a WORD that is not known here",
)
@of_path(journals=True)
@click.argument("word", required=False)
@of_application(required=False)
@of_sink
def accept(at: At, word: str | None, application: str | None, sink: str | None) -> Answer:
    """What a word stands for that an error printed, before you give it to the query.

    WORD is what follows accept_as_seen=, accept_as_new= or new_application= in the error; without it all words are
    shown that the journals at PATH can be asked for. Words about a batch that comes (kinds positions.*, files.*,
    query.*) are not among them: only the query knows that batch, and its error says what they mean. Words about a
    destination that joins a fan-out, or is retired without its journal, need --sink. A word is used as an option of the
    query, or without Spark by 'streamsink recover PATH -a NAME -o accept_as_new=WORD --yes'. JSON: {path, words:
    [{word, application, question, options}]}.
    """
    path, found = _meanings(at, application, sink)
    if word is None:
        return Answer({"path": path, "words": [vars(each) for each in found]}, _lines(found) or ["There is none."])
    mine = [each for each in found if each.word == word]
    unknown = (
        f"{word} answers no question about what the journals at {path} hold now. A record may have been published "
        "or given up since; or the word is about a batch, and the query's error says what it means"
        + ("" if sink is not None else "; or it is about a sink: give that one with --sink MODULE:NAME")
    )
    return Answer(
        {"path": path, "words": [vars(each) for each in mine]}, _lines(mine) or [unknown], RIGHT if mine else FINDINGS
    )


def _meanings(at: At, application: str | None, name: str | None) -> "tuple[str, Sequence[Meaning]]":
    """(where, all words there). name: of the sink."""
    from streamsink.operations.words import meanings

    if name is None:
        return at.root, meanings(at.store.open(), at.root, application)
    from streamsink.operations.journals import nothing_here
    from streamsink.operations.words_of_sinks import meanings_of_sink

    sink = sink_named(name)
    place, query = query_of(at, sink, application)
    if query is None:
        raise nothing_here(place.root)
    options = place.options((), application=query)
    return sink.path, meanings_of_sink(place.store.open(), sink, options, place.root)


def _lines(found: "Sequence[Meaning]") -> list[str | Rows]:
    lines: list[str | Rows] = []
    for each in found:
        lines.append(f"{each.word}  {each.question}")
        lines += [f"    {option}={each.word}: {text}" for option, text in each.options.items()]
    return lines


@command(
    "unlock",
    """
    $ streamsink unlock lake/shop.db/orders --application streamsink
    $ streamsink unlock lake/shop.db/orders --application streamsink --yes --json
    """,
    exits="3 while a driver holds the name, or anybody the lock, also without --yes",
)
@of_path(journals=True)
@of_application(required=True)
@of_query
@click.option("--damaged", is_flag=True, help="Delete damaged files of the journal that hold no data.")
@click.option(
    "--holder-is-dead", is_flag=True, help="End the lease of the table's lock, whose holder is certainly dead."
)
@confirmed
def unlock(
    *, at: At, application: str, given: tuple[str, ...], damaged: bool, holder_is_dead: bool, yes: bool
) -> Answer:
    """Who holds a query's name, and the table's lock; release what a dead driver has left.

    It refuses while the driver lives. On a local disk nothing stays behind a dead process; on HDFS and S3 the command
    watches for up to 15 seconds whether the hold is renewed. With -o lock=... (and lock_user, lock_password_env) it
    says who holds the lock that all writers take; one that has run out is taken and given back. With --damaged it
    deletes who has claimed the name, and which journal this is, where these files are damaged: the next start makes
    them anew. With --holder-is-dead it ends a lease in a database or in Hive's metastore: a writer of ours that lives
    after all notices that before it writes, another program's may not. JSON: {path, application, state, pid, owner,
    released, damaged: [path], lock: {lock_id, holder}}; state is alive, dead, free or unknown.
    """
    from streamsink.operations import holds

    options = at.options(given, application=application)
    file_io = at.store.open()
    found = (
        holds.release_hold(file_io, at.root, application)
        if yes
        else holds.look_at_hold(file_io, at.root, application, wait=True)
    )
    files = holds.damaged_files(file_io, at.root, application, remove=yes) if damaged else []
    if holder_is_dead and yes:
        holds.take_lock_away(at.root, options)
    lock = holds.look_at_lock(at.root, options)
    owner = found.owner
    who = (
        f"process {owner.pid} on {owner.host}, checkpoint {owner.query}, start {owner.epoch}" if owner else "nobody yet"
    )
    says = {
        holds.UNKNOWN: "this system does not tell whether a driver holds it",
        holds.ALIVE: "a driver that lives holds it" + (f" (process {found.pid})" if found.pid else ""),
        holds.DEAD: "a dead driver has left its hold" + (": it is released now" if yes else ""),
    }
    lines = [
        f"{at.root}: application '{application}' was claimed last by {who}",
        says.get(found.state, "nobody holds it"),
    ]
    if damaged:
        lines += [f"damaged{', deleted' if yes else ''}: {path}" for path in files] or ["no damaged file is here"]
    if lock is not None:
        lines.append(f"lock {lock.lock_id}: {lock.holder or 'nobody holds it'}")
    said: dict[str, Any] = {
        "path": at.root,
        "application": application,
        "state": found.state,
        "pid": found.pid,
        "owner": vars(owner) if owner else None,
        "released": yes and found.state == holds.DEAD,
        "damaged": files,
        "lock": vars(lock) if lock is not None else None,
    }
    is_held = found.state in (holds.ALIVE, holds.UNKNOWN) or lock is not None and lock.holder
    answer = Answer(said, lines, REFUSED if is_held else RIGHT)
    return proposed(answer, yes or bool(is_held), would=found.state == holds.DEAD or bool(files) or holder_is_dead)


@command(
    "retire",
    "$ streamsink retire lake/shop.db/clicks --application streamsink",
    exits="3 while a record is pending, or the application has replayed dead letters, also without --yes",
)
@of_path()
@of_application(required=True)
@of_query
@of_sink
@confirmed
def retire(at: At, application: str, given: tuple[str, ...], sink: str | None, yes: bool) -> Answer:
    """Take a query out of a table for good: its state and its journal are removed, its rows stay.

    PATH is a table, or the folder of several. A query that starts under that name later is a new one and writes its
    source from the beginning of its checkpoint. It refuses while a record is pending, while the query runs, and for
    a replay of dead letters, whose journal knows what was replayed. JSON: {path, application, retired}.
    """
    import streamsink

    where: Any = sink_named(sink) if sink is not None else at.root
    path = at.root if sink is None else where.path
    options = at.options(given, application=application)
    if yes:
        done = streamsink.retire(where, application, options=options)
        said = "is taken out; its rows stay" if done else "was not known here: nothing was changed"
        return Answer({"path": path, "application": application, "retired": done}, [f"{path}: '{application}' {said}"])
    lines = _would_retire(at, options) if sink is None else _would_retire_of_sink(at, where, options)
    return proposed(Answer({"path": path, "application": application, "retired": False}, lines), False, would=True)


def _would_retire(at: At, options: "SinkOptions") -> list[str | Rows]:
    from streamsink.commands.retire import check
    from streamsink.operations.journals import applications_of, has_state, look_at_journals

    file_io, application = at.store.open(), options.application
    check(file_io, at.root, options)
    if application in applications_of(file_io, at.root) or not has_state(file_io, at.root, application):
        [look] = look_at_journals(file_io, at.root, application)
        return [f"{look.place}: the journal with {look.retained} records would be removed, and the query's state"]
    return [f"{at.root}: the state of '{application}' would be removed, and its journal, if there is one"]


def _would_retire_of_sink(at: At, sink: "Sink", options: "SinkOptions") -> list[str | Rows]:
    from streamsink.commands.sinks_retired import look_of_sink
    from streamsink.operations.journals import applications_of, no_journal
    from streamsink.sinks.paimon.opening import PaimonTable

    if isinstance(sink, PaimonTable):
        return _would_retire(replace(at, root=sink.path, place=""), options)
    place, _ = query_of(at, sink, options.application)
    found = look_of_sink(place.store.open(), sink, options, place.root)
    if not found:
        raise no_journal(sink.path, options.application, applications_of(place.store.open(), place.root))
    return [
        f"{each.path}: the journal {each.journal} with {each.records} records would be removed"
        + (", and what the destination remembers of the query" if each.is_known else "")
        for each in found
    ]


@command("drop-missing", "$ streamsink drop-missing lake/shop.db/orders")
@of_path()
@of_query
@click.option("--everything", is_flag=True, help="Do it although not one data file is there.")
@confirmed
def drop_missing(at: At, given: tuple[str, ...], everything: bool, yes: bool) -> Answer:
    """Take data files that are gone out of the table, so that the rest of it can be read and written again.

    Their rows were lost with them. JSON: {table, files, rows, snapshot}; without --yes {table, missing: [message]}.
    """
    import streamsink

    if yes:
        done = streamsink.drop_missing(at.root, everything, options=at.options(given))
        said = {"table": at.root, "files": done.files, "rows": done.rows, "snapshot": done.snapshot_id}
        return Answer(said, [done.text])
    report = streamsink.verify(at.root, at.store_options)
    missing = [found.message for found in report.findings if found.kind == "file.missing"]
    last = "These would be taken out of the table." if missing else "No file is missing."
    return proposed(Answer({"table": at.root, "missing": missing}, [*missing, last]), False, would=bool(missing))
