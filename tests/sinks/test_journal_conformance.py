"""The suite for journals: ours passes it, and a journal that breaks a rule does not."""

import pytest

from streamsink.journal.file_journal import FileJournal
from streamsink.journal.record_format import encode_record
from streamsink.protocol.ids import Writer
from streamsink.testing.journal_conformance import APPLICATION, RETAIN, BrokenJournal, check_journal


def _ours(io):
    return FileJournal(io, "/table", APPLICATION, RETAIN)


def test_the_journal_in_files_passes():
    assert check_journal(_ours) > 200


def _broken(**methods):
    return lambda io: type("Broken", (FileJournal,), methods)(io, "/table", APPLICATION, RETAIN)


def _claims_the_same(self, query, above, run=""):
    self.read_listing()
    return Writer(APPLICATION, query, above + 1)


def _writes_over(self, committable):
    self._io.replace(self._record(committable.state.sequence), encode_record(committable), "another")
    self.read_listing()


def _keeps_nothing(self, sequences):
    for sequence in self.retained():
        self._io.delete(self._record(sequence))
    self.read_listing()


@pytest.mark.parametrize(
    "methods",
    [
        {"claim": _claims_the_same},
        {"check_owner": lambda self, writer: None},
        {"create_record": _writes_over},
        {"forget": _keeps_nothing},
        {"forget": lambda self, sequences: None},
        {"mark_published": lambda self, committable, where=None: None},
        {"sweep": lambda self, writer: []},
        {"discard": lambda self, staging: None},
        {"identify": lambda self, published, new_id, anew=False: self._identity.known},
    ],
    ids=[
        "claims the same",
        "fences nobody",
        "writes over a record",
        "keeps nothing",
        "keeps all",
        "marks nothing",
        "sweeps nothing",
        "discards nothing",
        "has no identity",
    ],
)
def test_a_journal_that_breaks_a_rule_does_not_pass(methods):
    with pytest.raises(BrokenJournal):
        check_journal(_broken(**methods))
