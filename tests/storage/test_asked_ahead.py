"""Answers that count again: only together, and only while nothing has shown that they are true no more."""

from contextlib import suppress

import pytest

from streamsink.storage.reading import AskedAhead, Questions


class _Store:
    """A store that counts the questions."""

    def __init__(self):
        self.files = {"schema-0": b"first", "snapshot-1": b"one"}
        self.asked = []
        self.ahead = AskedAhead(self._read, self._size, lambda actions: [action() for action in actions])

    def _read(self, path):
        self.asked.append(path)
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    def _size(self, path):
        self.asked.append(path)
        return len(self.files[path]) if path in self.files else None

    def take(self):
        taken, self.asked = self.asked, []
        return taken


LOOK = Questions(read=("schema-0", "snapshot-1"), size=("snapshot-2",))


def _recent(store, questions):
    with store.ahead.recent(questions):
        for path in questions.read:
            with suppress(FileNotFoundError):
                store.ahead.read(path)
        return [store.ahead.size(path) for path in questions.size]


def test_answers_of_the_look_count_once_more():
    """What was not there is asked about again, beside something else."""
    store = _Store()
    with store.ahead.keeping(LOOK):
        pass
    store.ahead.beside(lambda: None, Questions(size=("snapshot-2",)))
    store.take()
    assert _recent(store, LOOK) == [None] and store.take() == []
    assert _recent(store, LOOK) == [None] and store.take() == ["schema-0", "snapshot-1", "snapshot-2"]


def test_a_look_that_fails_leaves_nothing_of_the_one_before():
    """It may have found that the table is another one."""
    store = _Store()
    with store.ahead.keeping(LOOK):
        pass
    with pytest.raises(ValueError), store.ahead.keeping(LOOK):
        raise ValueError
    store.take()
    _recent(store, LOOK)
    assert store.take() == ["schema-0", "snapshot-1", "snapshot-2"]


@pytest.mark.parametrize(
    "kept, asked",
    [
        (LOOK, Questions(read=("schema-0", "snapshot-2"))),
        (Questions(read=("schema-0", "LATEST")), Questions(read=("schema-0", "LATEST"))),
    ],
    ids=["another question", "what was not there"],
)
def test_where_one_question_must_be_asked_all_of_them_are(kept, asked):
    """Answers from before and after a change would together tell of a table that never was."""
    store = _Store()
    with store.ahead.keeping(kept):
        pass
    store.take()
    _recent(store, asked)
    assert store.take() == list(asked.read)


def test_nothing_counts_again_when_others_have_been_here():
    """What was not there at the look is there by the time of the record."""
    store = _Store()
    with store.ahead.keeping(LOOK):
        pass
    store.files["snapshot-2"] = b"two"
    store.ahead.beside(lambda: None, Questions(size=("snapshot-2",)))
    store.take()
    assert _recent(store, LOOK) == [3] and store.take() == ["schema-0", "snapshot-1", "snapshot-2"]
