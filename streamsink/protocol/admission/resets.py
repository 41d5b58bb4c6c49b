"""Topics whose recorded positions no longer hold, and what the user answers about them. Pure.

An answer that takes a record back to lower positions, or concerns several topics, carries in its word what it is about:
by the time it is given the topics may have grown, and then nothing else tells which of their messages are new.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streamsink.options import words_of
from streamsink.protocol import ways
from streamsink.protocol.admission.continuity import Change, reset
from streamsink.protocol.committable import AppState, Batch
from streamsink.protocol.positions import numeric_ones
from streamsink.protocol.recorded import Recorded


@dataclass(frozen=True)
class Answer:
    """What the user says of the recorded positions of some topics.

    dropped: topics of which no recorded position counts. lowered: for others, the position in each partition that still
    counts. A topic that is in both was asked about twice, with its id and without: where ids say that it is the
    recorded one it is lowered, elsewhere it is dropped.
    """

    dropped: frozenset[str] = frozenset()
    lowered: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def about(cls, changed: Sequence[Change]) -> "Answer":
        """The answer that these changes ask for."""
        lowered: dict[str, dict[str, int]] = {}
        for change in changed:  # several of one topic where several sources read it
            if change.lowered:
                lowered[change.topic] = _lower(lowered.get(change.topic, {}), change.lowered)
        return cls(frozenset(change.topic for change in changed if not change.lowered), lowered)

    @property
    def topics(self) -> frozenset[str]:
        """The topics that the answer is about."""
        return self.dropped | self.lowered.keys()

    def without(self, topics: frozenset[str]) -> "Answer":
        """The rest of the answer."""
        return Answer(self.dropped - topics, {t: at for t, at in self.lowered.items() if t not in topics})

    def word(self, table_id: str, last: AppState | None) -> str:
        """The word that an option must repeat to give this answer, whichever batch and checkpoint comes next."""
        told = ",".join(
            (
                *sorted(self.dropped),
                *sorted(f"{topic}:{part}={at}" for topic, parts in self.lowered.items() for part, at in parts.items()),
            )
        )
        digest = ways.word("|".join((table_id, last.record_id if last else "", "reset", told)))
        return digest if self._is_plain else f"{digest}@{told}"

    @property
    def _is_plain(self) -> bool:
        """Whether the digest alone tells the answer: it does for one topic that is dropped."""
        return not self.lowered and len(self.dropped) == 1


def answer_in(option: str | None, table_id: str, last: AppState | None, topics: Sequence[str]) -> Answer | None:
    """What the words of an option answer together; None when none of them is an answer about this record.

    A word that stays in the option from an earlier accident hides none that is behind it: where the topic has grown
    past the record meanwhile, nobody would ask again. topics: of the batch. last: the last published state.
    """
    found = [_answer_of(word, table_id, last, topics) for word in words_of(option)]
    return functools.reduce(_both, filter(None, found), None)


def words_in(option: str | None, table_id: str, last: AppState | None, topics: Sequence[str]) -> tuple[str, ...]:
    """The words of the option that are such answers. The arguments are those of ``answer_in``."""
    return tuple(word for word in words_of(option) if _answer_of(word, table_id, last, topics) is not None)


def _both(one: Answer | None, other: Answer) -> Answer:
    if one is None:
        return other
    topics = one.lowered.keys() | other.lowered.keys()
    lowered = {t: _lower(one.lowered.get(t, {}), other.lowered.get(t, {})) for t in topics}
    return Answer(one.dropped | other.dropped, lowered)


def _answer_of(word: str, table_id: str, last: AppState | None, topics: Sequence[str]) -> Answer | None:
    asked = [Answer(frozenset((topic,))) for topic in topics]
    told = word.partition("@")[2]
    if told:
        asked = [_read(told)]
    return next((answer for answer in asked if answer.word(table_id, last) == word), None)


def _read(told: str) -> Answer:
    dropped: set[str] = set()
    lowered: dict[str, dict[str, int]] = {}
    for each in told.split(","):
        name, _, at = each.rpartition("=")
        topic, _, part = name.rpartition(":")
        if at.isdigit() and topic:
            lowered.setdefault(topic, {})[part] = int(at)
        else:
            dropped.add(each)
    return Answer(frozenset(dropped), lowered)


def _lower(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {part: min(side[part] for side in (one, other) if part in side) for part in {*one, *other}}


def answered(recorded: Recorded, batch: Batch, answer: Answer | None) -> Recorded:
    """The record after the user's answer, also about topics of which nothing shows any more that messages were lost.

    By then these have grown past the record, and once the batch is recorded the answer is one about an earlier record:
    it is heard now or never. A topic is dropped only where no id says that it is the recorded one after all. Of two
    positions the lower one counts, so that no message is left out.
    """
    if answer is None:
        return recorded
    for place, source in numeric_ones(batch.sources):
        for topic in answer.topics & source.end.keys():
            known = recorded.known(place, source, topic)
            lowered = answer.lowered.get(topic, {})
            if topic in answer.dropped:
                certain = tuple(record for record in known if record.topic_id and source.topic_id(topic))
                recorded = recorded.without(record for record in known if record not in certain)
                known = certain
            if lowered:
                recorded = reset(recorded, (Change("", topic, "", known, lowered),))
    return recorded
