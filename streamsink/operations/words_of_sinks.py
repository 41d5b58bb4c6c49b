"""``streamsink accept --sink``: also the words of questions that only the destinations themselves let be asked."""

from collections.abc import Iterator

from streamsink.commands.own_sinks import journal_of, open_remembered
from streamsink.commands.sinks_retired import word_of_lost_journal
from streamsink.journal.file_journal import JOURNAL_DIR
from streamsink.operations.journals import applications_of
from streamsink.operations.words import NEW, Meaning, meanings
from streamsink.options import SinkOptions
from streamsink.protocol.sink import OpenSink, Sink
from streamsink.sinks.fan_out.sink import OpenFanOut
from streamsink.storage.file_io import FileIO


def meanings_of_sink(file_io: FileIO, sink: Sink, options: SinkOptions, place: str) -> list[Meaning]:
    """As ``meanings``, of one application, with the words of the sink, and of the destinations of a fan-out.

    place: of the journals, or of the destination where these lie in it. Raises Misuse where there is nothing, and as
    opening the sink does. Changes nothing.
    """
    opened = open_remembered(file_io, sink, options, place)
    found: dict[str, Meaning] = {}
    for part in (opened, *opened.parts):
        for meaning in _of_one(part):
            found.setdefault(meaning.word, meaning)
    if isinstance(opened, OpenFanOut):
        for branch, last, word in opened.joining():
            question = (
                f"Does the destination '{branch.name}' ({branch.to.path}), which is not one of those that had "
                f"{last.checkpoint_name}, begin behind that?"
            )
            begins = "It does: it is given what comes from now on, and no rows from before."
            found.setdefault(word, Meaning(word, opened.application, question, {NEW: begins}))
    return list(found.values())


def _of_one(opened: OpenSink) -> Iterator[Meaning]:
    journal, name = journal_of(opened), opened.application
    below = journal.place.removesuffix(f"/{JOURNAL_DIR}/{name}")
    if name in applications_of(journal.store, below):
        yield from meanings(journal.store, below, name)
    state = None if opened.to.is_table or opened.parts else opened.committer.history(name).state
    if state is not None and not journal.is_of(state):
        yield Meaning(
            word_of_lost_journal(state, journal.place),
            name,
            f"Is the journal lost for good that has record {state.sequence} of '{name}', the last one in "
            f"{opened.to.path}, with what may be pending in it? The one in {journal.place} is another.",
            {NEW: "It is: streamsink.retire takes the query out without it."},
        )
