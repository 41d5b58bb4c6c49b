"""Errors for a bounded run that cannot be written, and what tells a repeated run from another one. Pure."""

import json

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol import run_inputs, ways
from streamsink.protocol.committable import AppState, Batch, KnownRun
from streamsink.protocol.same_query import QueryComparison, compare


def differences(known: KnownRun, given: Batch) -> tuple[str, ...]:
    """How a run that comes under a published run's id is certainly made otherwise; empty when nothing shows that it is.

    A Python function or another version of Spark is no difference: whoever gives the id says that it is the same run.
    """
    found: list[str] = []
    then, now = known.fingerprint, given.fingerprint
    if then is not None and now is not None:
        found += compare(then, now).differs
        if then.spark == now.spark and then.dates != now.dates:
            found.append(f"dates in its conditions (found {now.dates}, recorded {then.dates})")
    if known.rows is not None and given.rows not in (None, known.rows):
        found.append(f"rows (found {given.rows}, recorded {known.rows})")
    return tuple(found)


def differences_of_files(known: KnownRun, given: Batch, compared: QueryComparison) -> tuple[str, ...]:
    """The same for a run whose files are not exactly those that were read then. compared: the comparison of its rows.

    Where the rows could not be compared, files added to those of then are no difference, as in a folder that grows.
    """
    if compared.differs:
        return (f"the files that it reads and {', '.join(compared.differs)}",)
    if compared.unknown and run_inputs.are_gone(known, given):
        return (
            "the files that it reads, and whether their rows are the same cannot be told "
            f"({', '.join(compared.unknown)})",
        )
    return ()


def word_of(given: Batch, table_id: str) -> str:
    """The word that an option must repeat to say of exactly what is given now that it is the published run."""
    made_of = given.fingerprint.to_json() if given.fingerprint is not None else None
    text = json.dumps([table_id, given.query, made_of, given.rows, *run_inputs.kept(given.inputs)], sort_keys=True)
    return ways.word(text)


def other(given: Batch, differs: tuple[str, ...], table: str, options: SinkOptions, word: str) -> Misuse:
    """The error for other rows under the id of a published run. differs: of ``differences``. word: of ``word_of``."""
    return Misuse(
        f"{table}: run '{given.query}' of application '{options.application}' is published already, and what comes "
        f"under this id now is made otherwise: it differs in {', '.join(differs)}. Skipped as a repeated run, its "
        "rows would be lost. Nothing was written. Where these are other rows, give them a run id of their own, or a "
        "job of its own a name of its own (application='...'). Where it is the same run, whose program or input has "
        f"changed since, set accept_as_seen='{word}' for this call, which writes nothing; rows that its input has got "
        "since then need a run id of their own",
        kind="run.other",
    )


def of_a_query(given: Batch, last: AppState, table: str, options: SinkOptions) -> Misuse:
    """The error for a run under the name of a query. last: the query's last published state."""
    return Misuse(
        f"{table}: run '{given.query}' comes under the name '{options.application}', and query {last.query} writes "
        "this table under that name: the run's record would stand where the query's next start looks for its own last "
        "batch. Nothing was written. Give runs a name that no query has (application='...'), and repeat each under "
        "the name that it had",
        kind="application.of-a-query",
    )


def undecidable(given: Batch, table: str, options: SinkOptions, ways_on: str, never_repeated: str) -> Misuse:
    """The error for a run of which nobody can tell whether it is published.

    ways_on: the ways on for this run. never_repeated: the word for all runs that the journal does not know.
    """
    return Misuse(
        f"{table}: whether run '{given.query}' of application '{options.application}' is published cannot be told: "
        "the journal was removed, is an older copy or that of a branch that is younger than earlier runs, and the "
        "snapshots that could say so have expired. Nothing was written. Look whether its rows are in the table, "
        f"and{ways_on} Where a run of before that is never repeated, leave accept_as_new='{never_repeated}' for all "
        "that come in the job's options: it writes each run that this journal does not know. For each branch that is "
        "made anew, give its runs a name of their own (application='...')",
        kind="run.undecidable",
    )
