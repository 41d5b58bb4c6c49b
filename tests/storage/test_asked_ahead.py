"""Answers that count again: only together, and only while nothing has shown that they are true no more."""

from contextlib import suppress

import pytest

from streamsink.storage.reading import AskedAhead, Questions


class _Store:
    """A store that counts the questions."""

    def __init__(self):
        self.files = {"schema-0": b"first", "snapshot-1": b"one"}
        self.asked = []
        self.ahead = AskedAhead(self._read, self._size, self._entries, lambda actions: [action() for action in actions])

    def _read(self, path):
        self.asked.append(path)
        if path == "denied":
            raise PermissionError(path)
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    def _size(self, path):
        self.asked.append(path)
        return len(self.files[path]) if path in self.files else None

    def _entries(self, path):
        self.asked.append(path)
        return [(name, len(data), False) for name, data in self.files.items() if name.startswith(path)]

    def take(self):
        taken, self.asked = self.asked, []
        return taken


LOOK = Questions(read=("schema-0", "snapshot-1"), size=("snapshot-2",))


def _recent(store, questions):
    with store.ahead.recent(questions):
        for path in questions.read:
            with suppress(OSError):
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
        (Questions(read=("schema-0", "denied")), Questions(read=("schema-0", "denied"))),
    ],
    ids=["another question", "no answer"],
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


def test_what_was_not_there_and_names_count_again_too():
    """As those of a table without a snapshot, of which the first number is asked about again beside the record."""
    store, look = _Store(), Questions(read=("LATEST",), size=("snapshot-9",), names=("tag",))
    with store.ahead.keeping(look):
        pass
    store.ahead.beside(lambda: None, Questions(size=("snapshot-9",)))
    store.take()
    assert _recent(store, look) == [None] and store.take() == []


def test_what_waits_is_done_with_the_next_questions_and_once():
    """Or before that, where it must be."""
    store, done = _Store(), []
    store.ahead.soon(lambda: done.append("hold"))
    store.ahead.size("schema-0")
    with store.ahead.keeping(Questions()):
        assert not done  # nothing is asked
    with store.ahead.keeping(LOOK):
        assert done == ["hold"]
    store.ahead.soon(lambda: done.append("identity"))
    store.ahead.do_waiting()
    store.ahead.do_waiting()
    assert done == ["hold", "identity"]


def test_an_error_of_what_waits_ends_the_questions():
    """Nobody goes on as if it were done."""
    store = _Store()

    def fail():
        raise PermissionError("hold")

    store.ahead.soon(fail)
    with pytest.raises(PermissionError), store.ahead.keeping(LOOK):
        pass
