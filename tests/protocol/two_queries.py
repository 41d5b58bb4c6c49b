"""Batches, states and decisions for tests of admission by the query that made them: made by hand, without a table."""

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


QUERY = QueryFingerprint(sources="aa", plan="bb", dates="cc", schema="dd", spark="4.1", comparable=True)


def other(**parts):
    return dataclasses.replace(QUERY, **parts)


def kafka(start, end):
    return (SourceRange({"t": {"0": start}}, {"t": {"0": end}}),)


def files(start, end):
    return (SourceRange({"logOffset": start}, {"logOffset": end}),)


def state(sources, fingerprint=QUERY, checkpoint=5, query="q"):
    recorded = Recorded().advanced(sources)
    return AppState(query, 0, 1, checkpoint, checkpoint + 1, "r", "t", sources, recorded, fingerprint=fingerprint)


def batch(sources, number=0, query="q2", fingerprint=QUERY, **more):
    return Batch(number, query, "run", sources, fingerprint=fingerprint, **more)


def decide(one, last, **options):
    return admit(
        one,
        Past("lake/t", "t", last, lambda query, checkpoint: None, lambda run: KnownRun(False)),
        SinkOptions.of("lake/t", options),
    )


def refused(kind, one, last, **options):
    with pytest.raises(Misuse) as caught:
        decide(one, last, **options)
    message = str(caught.value)
    assert caught.value.kind == kind, message
    assert "lake/t" in message and "Nothing was written" in message
    return message


def token(message, option):
    return re.search(rf"{option}='([0-9a-f]{{12}})'", message)[1]
