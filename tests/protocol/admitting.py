"""Batches, states and decisions for tests of admission by positions and ids: made by hand, without a table."""

import dataclasses
import re

import pytest

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol.admission.admit import Past, admit
from streamsink.protocol.committable import AppState, Batch, KnownRun
from streamsink.protocol.positions import SourceRange
from streamsink.protocol.recorded import Recorded
from streamsink.protocol.same_query import QueryFingerprint

COLUMNS = {"position_columns": ("topic", "partition", "offset")}


SAME_QUERY = QueryFingerprint(sources="aa", plan="bb", dates="cc", schema="dd", spark="4.1", comparable=True)


def source(begin, end, topic_id="id-1", cluster="c-1", topic="t", **more):
    """A source's range.
    begin, end: numbers for partition 0, or dictionaries by partition; begin is None when Spark does not say."""

    def side(value):
        return {topic: value if isinstance(value, dict) else {"0": value}}

    ids = {topic: topic_id} if topic_id else {}
    return SourceRange(None if begin is None else side(begin), side(end), cluster=cluster, topic_ids=ids, **more)


def state(*sources, query="q", checkpoint=5, record="r"):
    return AppState(
        query=query,
        generation=0,
        epoch=1,
        checkpoint_id=checkpoint,
        sequence=6,
        record_id=record,
        table_id="t",
        sources=tuple(dataclasses.replace(each, earliest=None, newest=None) for each in sources),
        recorded=Recorded().advanced(sources),
        fingerprint=SAME_QUERY,
    )


def batch(*sources, query="q2", number=0):
    return Batch(number, query, "run", sources, fingerprint=SAME_QUERY)


def decide(given, last, **options):
    past = Past("lake/t", "t", last, lambda query, checkpoint: None, lambda run: KnownRun(False))
    return admit(given, past, SinkOptions.of("lake/t", options))


def refused(kind, given, last, *words, **options):
    """What ``accept_as_new`` must be after the error, which is checked to be of this kind and to have these words."""
    with pytest.raises(Misuse) as caught:
        decide(given, last, **options)
    message = str(caught.value)
    assert caught.value.kind == kind, message
    for word in ("lake/t", "Nothing was written", *words):
        assert word in message
    new, seen = (re.search(rf"{option}='([^']+)'", message)[1] for option in ("accept_as_new", "accept_as_seen"))
    assert new.split()[-1] == seen, "before the token there are answers that are to stay"
    return new


def recorded(decision):
    return [(r.source, r.topic, r.cluster, r.topic_id, r.next) for r in decision.recorded.topics]
