"""What a restart must do, as a plan made from what the table and the journal say. Pure."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from streamsink import shell
from streamsink.errors import Corrupt, Misuse
from streamsink.options import ON_ROLLBACK_REPUBLISH, SinkOptions, words_of
from streamsink.protocol import ways
from streamsink.protocol.committable import AppState, Committable
from streamsink.protocol.journal import Journal, Mark, comes_again, readable
from streamsink.protocol.run.first_name import check_gone_on, check_name_before
from streamsink.protocol.run.lost_records import (
    cannot_follow,
    load,
    replaced_ones,
    rolled_back,
    rolled_back_past_the_journal,
    states_of,
    there_behind,
    to_publish,
    without_their_state,
)
from streamsink.protocol.sink import Committer, Destination, History

# The questions about a record: whether it is published, and whether an overwrite may replace what others wrote since.
IS_PUBLISHED = "published"
MAY_OVERWRITE = "overwrite"
# A message says for at most this many records where their rows can be read.
_MOST_SHOWN = 10


@dataclass(frozen=True)
class RestorePlan:
    """What a restart is to do.

    publish: records to publish, in order. mark: published records whose mark is missing. last: the last published
    state.
    rolled_back: the numbers of those in ``publish`` that had been published before.
    replaced: snapshots of these records that another writer replaced.
    over: the number of the record over which the first one is published, where the journal has lost those between; else
    None.
    """

    publish: tuple[Committable, ...]
    mark: tuple[Committable, ...]
    last: AppState | None
    rolled_back: tuple[int, ...] = ()
    replaced: tuple[int, ...] = ()
    over: int | None = None


def plan_restore(
    to: Destination,
    history: History,
    journal: Journal,
    committer: Committer,
    options: SinkOptions,
    *,
    untried: Container[int] = (),
) -> RestorePlan:
    """Compare the table with the journal, and plan what to publish and what to mark. Changes nothing.

    history: what the table says of the application. untried: numbers of the newest records, which their owner has made
    itself and has not tried to publish.

    Raises Misuse when the table was rolled back or recreated, or when its history is incomplete and the journal is
    empty; Corrupt when a record is missing or damaged, or when nobody can tell whether it is published.
    """
    table, retained = to.path, journal.retained()
    _check_identity(to, history.state, journal, options)
    if history.state is None and not history.complete:
        return _from_journal(to, retained, journal, committer, options, untried=untried)
    base = history.state.sequence if history.state else 0
    ahead = [s for s in retained if s > base]
    marked = tuple(s for s in ahead if journal.is_marked(s))
    marks = marks_of(marked, journal)
    replaced = replaced_ones(marks, committer)
    loaded = {sequence: readable(journal, sequence) for sequence in ahead}
    check_gone_on(
        to, [record for s, record in loaded.items() if record is not None and s not in replaced], committer, options
    )
    lost = [s for s in of_which_marks_tell(marked, marks) if s not in replaced]
    if lost and options.on_rollback != ON_ROLLBACK_REPUBLISH:
        raise rolled_back(
            to, f"the newest snapshot carries record {base} of application '{options.application}'", lost[-1], options
        )
    missing = next((number for number, sequence in enumerate(ahead, base + 1) if sequence != number), None)
    there = there_behind(loaded, committer) if missing is not None else {}
    if missing is not None and not there:
        raise cannot_follow(to, (base, missing, ahead[-1]), marked, options)
    alone, unsure = without_their_state([s for s in marked if s not in there], marks, journal, committer)
    alone |= there
    alone |= states_of(
        unsure[: _decide(table, unsure, committer, options, rolled_back=True)] if unsure else (), committer
    )
    publish = tuple(alone.get(s) or to_publish(loaded[s] or load(journal, s), replaced, committer) for s in ahead)
    check_name_before(to, publish[:1], committer, options)
    behind = tuple(load(journal, s) for s in retained if s <= base and not journal.is_marked(s))
    return RestorePlan(
        publish, behind, history.state, marked, tuple(sorted(set(replaced.values()))), base if there else None
    )


def _check_identity(to: Destination, found: AppState | None, journal: Journal, options: SinkOptions) -> None:
    """Raises Misuse unless the newest record, and what the table says, are of this very table.

    They may be of a table that had the same path before.
    """
    remembered = "" if to.is_table else ", and what the destination remembers of the application,"
    newest = (
        journal.load(journal.retained()[-1])
        if journal.retained() and (found is None or journal.last_sequence() > found.sequence)
        else None
    )
    for state in (newest.state if newest else None, found):
        if state is not None and state.table_id != to.table_id:
            raise Misuse(
                f"{to.path}: record {state.sequence} of application '{options.application}' was made for the table "
                f"with the id {state.table_id}, and the table that is there has the id {to.table_id}: it was dropped "
                "and recreated, or restored from elsewhere. Nothing was written. Restore the first table; or remove "
                f"the journal {journal.place} of the dropped one {shell.discard(journal.place)}{remembered} and start "
                "a new checkpoint, which reads "
                "the source from its beginning, or behind those of its rows that are here already",
                kind="table.recreated",
            )


def marks_of(marked: Sequence[int], journal: Journal) -> dict[int, Mark]:
    """Where these records were published, for those whose mark says it, in order.

    A mark of several tables is left out: the committer has looked at those tables by then.
    """
    marks = ((sequence, journal.mark_of(sequence)) for sequence in marked)
    return {sequence: mark for sequence, mark in marks if isinstance(mark, Mark)}


def of_which_marks_tell(marked: Sequence[int], marks: Mapping[int, Mark]) -> list[int]:
    """The numbers of those records whose mark proves that they were published, in order. marked: the marked ones.

    A mark can also say that its record was about to be published once more. That one, and the records behind it, which
    were about to be published again too, are left out.
    """
    first = next((sequence for sequence in marked if comes_again(marks.get(sequence))), None)
    return [sequence for sequence in marked if first is None or sequence < first]


def _from_journal(
    to: Destination,
    retained: Sequence[int],
    journal: Journal,
    committer: Committer,
    options: SinkOptions,
    *,
    untried: Container[int],
) -> RestorePlan:
    """Plan a restart when no snapshot of this application is left and older snapshots have expired.

    Then only the journal and the files can tell what is published. retained: the numbers of the journal's records.
    """
    table = to.path
    if not retained:
        return _of_an_empty_journal(to, journal, options)
    marked = [sequence for sequence in retained if journal.is_marked(sequence)]
    marks = marks_of(marked, journal)
    replaced = replaced_ones(marks, committer)
    telling = of_which_marks_tell(marked, marks)
    back = min((s for s in telling if _is_undone(s, marks, journal, committer)), default=None)
    lost = tuple(sequence for sequence in marked if back is not None and sequence >= back)
    loaded = {sequence: readable(journal, sequence) for sequence in retained}
    waiting = [s for s in retained if s not in replaced and (s in lost or s not in marked)]
    check_gone_on(to, [record for s in waiting if (record := loaded[s]) is not None], committer, options)
    if lost and options.on_rollback != ON_ROLLBACK_REPUBLISH:
        raise rolled_back(
            to, f"no snapshot names application '{options.application}', snapshots have expired", lost[-1], options
        )
    records = [to_publish(loaded[s] or load(journal, s), replaced, committer) for s in retained]
    kept = [c for c in records if c.state.sequence < min((*replaced, *lost), default=retained[-1] + 1)]
    alone, unsure_alone = without_their_state(sorted({*lost, *replaced}), marks, journal, committer)
    # A rollback may have gone further back than the first record that shows it, so after one a mark proves nothing.
    published = len(kept) if alone else _published_ones(kept, committer, () if lost else telling)
    # What was recorded behind a record that was rolled back is gone with it, except rows that had come before their
    # state.
    may_be = [c for c in records if (back is None or c.state.sequence < back) and c.state.sequence not in untried]
    unsure = [c for c in may_be[published:] if c.files and c.state.sequence not in replaced]
    asked = [*unsure, *unsure_alone]
    known = _decide(table, asked, committer, options, rolled_back=bool(lost)) if asked else 0
    if known:
        is_all = known >= len(unsure)
        # What was replaced or is gone is published again; what the user has seen behind it, without its rows.
        published = min(len(kept), len(may_be) if is_all else records.index(unsure[known - 1]) + 1)
        alone |= states_of([c for c in asked[:known] if c not in records[:published]], committer)
    records = [alone.get(c.state.sequence, c) for c in records]
    if lost and not published and not alone and retained[0] > 1:
        raise rolled_back_past_the_journal(to, retained[0], lost[-1], options)
    check_name_before(to, records[published : published + 1], committer, options)
    mark = tuple(c for c in records[:published] if c.state.sequence not in telling)
    last = records[published - 1].state if published else None
    again = tuple(
        sorted({*replaced, *(c.state.sequence for c in records[published:] if journal.is_marked(c.state.sequence))})
    )
    return RestorePlan(tuple(records[published:]), mark, last, again, tuple(sorted(set(replaced.values()))))


def _of_an_empty_journal(to: Destination, journal: Journal, options: SinkOptions) -> RestorePlan:
    """Plan a restart when the journal is empty too.

    Nothing is to be done when the user has given the word for a new application. Else raises Misuse.
    """
    word = word_of_new_application(to.table_id, journal.identity().id, options)
    if word in words_of(options.new_application):
        return RestorePlan((), (), None)
    raise Misuse(
        f"{to.path}: no snapshot names application '{options.application}', its journal is empty, and older "
        "snapshots have expired, so whether it wrote here before cannot be told. Nothing was written. If it never "
        f"did, set new_application='{word}'.{ways.adopting(options.adopt_from_batch)} If it did, look which of its "
        "rows are here, let it begin behind them (a new checkpoint with startingOffsets; files whose rows are here "
        f"moved away; bounded runs that are here not repeated), and set new_application='{word}'. The word is of this "
        "journal: should the journal be lost once more, that is asked anew",
        kind="history.incomplete",
    )


def _is_undone(sequence: int, marks: Mapping[int, Mark], journal: Journal, committer: Committer) -> bool:
    """Whether a marked record is certainly not in the table any more.

    A mark that does not say where the record was published was torn by a power failure, or is of earlier code. What was
    published then is named by a snapshot, as long as all snapshots since the record was made are there.
    """
    if sequence in marks:
        return committer.was_rolled_back(marks[sequence])
    try:
        return is_gone(load(journal, sequence), committer)
    except Corrupt:
        return False


def is_gone(published: Committable, committer: Committer) -> bool:
    """Whether a record that was published is certainly not in the table any more.

    Only snapshots that name its files can tell: it is False for a record without files, and where snapshots since it
    was made have expired.
    """
    return bool(published.files) and committer.sees_all_since(published) and not committer.mentions(published)


def _published_ones(kept: Sequence[Committable], committer: Committer, marks: Container[int]) -> int:
    """How many of these records are published, from the oldest on. kept: records of which none was undone.

    marks: the numbers of those whose mark counts. Publishing keeps the order, so the newest record that is published
    answers for all before it. A record without files cannot tell: it may stand in one snapshot with others, and
    publishing it again changes no row.
    """
    for number in range(len(kept), 0, -1):
        if kept[number - 1].state.sequence in marks or committer.mentions(kept[number - 1]):
            return number
    return 0


def _decide(
    table: str, unsure: Sequence[Committable], committer: Committer, options: SinkOptions, *, rolled_back: bool
) -> int:
    """How many of these records are published, from the first one on: as a token says, or certainly none.

    unsure: records that no retained history names, in the order in which they are published. They have no mark, or the
    table was rolled back since and a mark proves nothing. That their files are there proves nothing: a store may keep
    the staged originals, and a tag keeps the others. Records without files are not asked about: publishing one again
    changes no row.

    Raises Corrupt, with the question to the user, when nobody can tell.
    """
    of_each = [token_of(record, IS_PUBLISHED) for record in unsure]
    as_seen, as_new = set(words_of(options.accept_as_seen)), set(words_of(options.accept_as_new))
    seen = max((number for number, word in enumerate(of_each, 1) if word in as_seen), default=0)
    if seen:
        return seen
    # Whoever publishes an overwrite may be asked for its word next, and then sets the option to that word: so it
    # answers this question too.
    words = {token_of(record, MAY_OVERWRITE) for record in unsure}
    accepted = bool(as_new & {of_each[0], *words} or as_seen & words)
    gone = next(((c, paths) for c in unsure for paths in [committer.files_in_place(c)[2]] if paths), None)
    if gone is None and (accepted or committer.sees_all_since(unsure[0])):
        return 0
    first, last = unsure[0].state, unsure[-1].state
    found = (
        f"{len(gone[1])} of its files are gone (first: {gone[1][0]})"
        if gone
        else "its files are there, which proves nothing"
    )
    pending = "may have been rolled back with those after it" if rolled_back else "is pending in the journal"
    raise Corrupt(
        f"{table}: record {(gone[0].state if gone else first).sequence} {pending}; {found}; and snapshots since it was "
        f"recorded have expired, so whether records {first.sequence} to {last.sequence} were published cannot be told. "
        f"Nothing was written. Look whether the rows of {from_to(first, last)} are in the "
        f"table{places_of_rows(unsure, committer)}. If they are, set accept_as_seen='{of_each[-1]}', which records "
        "them as published. If they are not, "
        + (
            f"set accept_as_new='{of_each[0]}', which publishes them"
            if gone is None
            else f"stop the query and call streamsink.give_up({table!r}, application={options.application!r}, "
            f"accept_as_new='{of_each[0]}'), which forgets them and says from where the source is read again"
        )
        + of_the_first_ones(unsure, of_each)
        + f". {ways.answer_in_a_shell(table, options.application, 'accept_as_seen')}",
        kind="journal.undecidable",
    )


def places_of_rows(unsure: Sequence[Committable], committer: Committer) -> str:
    """Where the rows of each of these records can be read, as a part of a message.

    Without the checkpoint nobody knows otherwise which rows they are.
    """
    shown = []
    for record in unsure[:_MOST_SHOWN]:
        path = committer.path_of_rows(record)
        if path:
            more = f" and {len(record.files) - 1} more files" if len(record.files) > 1 else ""
            shown.append(f"those of {record.state.checkpoint_name} are in {path}{more}")
    return f" ({', '.join(shown)})" if shown else ""


def of_the_first_ones(unsure: Sequence[Committable], words: Sequence[str]) -> str:
    """What to do when only the first of the records are published, as the end of a message. words: of each."""
    if len(unsure) == 1:
        return ""
    by_name = ", ".join(f"'{word}' for {record.state.checkpoint_name}" for record, word in zip(unsure[:-1], words))
    return (
        ". They were published in this order, so it may be that only those of the first ones are there: then set "
        "accept_as_seen to the word of the last one whose rows are, which records it and those before it as published "
        f"and goes on with the others: {by_name}"
    )


def from_to(first: AppState, last: AppState) -> str:
    """What their user calls these checkpoints, for messages."""
    return (
        first.checkpoint_name
        if first.sequence == last.sequence
        else f"{first.checkpoint_name} to {last.checkpoint_name}"
    )


def word_of_new_application(of: str, journal_id: str, options: SinkOptions) -> str:
    """The word that says that an application never wrote before its journal began. of: the table's id."""
    return ways.word(f"{of}|{options.application}|{journal_id}|new application")


def token_of(committable: Committable, question: str) -> str:
    """The word that an option must repeat to answer this question about this record and no other one."""
    return ways.word(f"{committable.state.table_id}|{committable.state.record_id}|{question}")
