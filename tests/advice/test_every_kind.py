"""Advice is a part of the protocol: for every kind of error a test does what the message says, or a reason says why no
test can.

A kind is named by a test that is marked with ``follows`` (``tests/advice/following.py``), or by a reason
(``tests/advice/reasons.py``).
"""

import pytest

from streamsink.errors import Misuse
from tests.advice import errors_page, following, kinds
from tests.advice.following import Advice, follows
from tests.advice.reasons import REASONS


def test_every_kind_is_followed_or_has_a_reason():
    """No kind has both: a reason would hide that the kind's test was removed."""
    raised, followed = set(kinds.kinds()), set(kinds.followed())
    assert sorted(raised - followed - set(REASONS)) == [], "neither a test that follows its advice, nor a reason"
    assert sorted(followed & set(REASONS)) == [], "followed, so it needs no reason"


def test_no_reason_and_no_mark_is_for_a_kind_that_no_longer_exists():
    """Kinds are append-only for programs, but a table that names a kind which is never raised checks nothing."""
    raised = set(kinds.kinds())
    assert sorted(set(REASONS) - raised) == []
    assert sorted(set(kinds.followed()) - raised) == []


def test_every_kind_is_found_by_the_enumeration():
    """Nothing is raised with a kind that is computed somewhere else, and each kind has the shape of one."""
    assert kinds.untraced() == []
    assert [kind for kind in kinds.kinds() if not kinds.KIND.fullmatch(kind)] == []


def test_no_kind_disappears():
    """Programs ask for kinds. ``kinds.txt`` has each one that there ever was, and a new one is added to it."""
    assert sorted(kinds.kinds()) == (kinds.ROOT / "tests" / "advice" / "kinds.txt").read_text().split()


def test_the_page_of_errors_is_as_the_code_has_it():
    """``python -m tests.advice.errors_page`` writes it anew."""
    assert errors_page.PAGE.read_text(encoding="utf-8") == errors_page.page()


def test_each_reason_says_something():
    """Each reason is a whole sentence."""
    assert [kind for kind, reason in REASONS.items() if len(reason) < 40 or not reason.endswith(".")] == []


def test_a_mark_on_a_test_that_reads_nothing_is_noticed():
    """So no test can be marked without following the advice."""
    told = Misuse("set accept_as_new='abc', or call streamsink.give_up('a(b)', application='x')", kind="batch.gap")

    @follows("batch.gap")
    def test(read):
        if read:
            assert Advice(told).option("accept_as_new") == "abc"
            assert Advice(told).call("streamsink.give_up") == (("a(b)",), {"application": "x"})

    test(True)
    with pytest.raises(AssertionError, match="batch.gap"):
        test(False)
    assert following._READ == set()
