"""Each guard of the promise has a defect that takes it away, and tests that notice. Some are tried here, all with `make sabotage`."""

import random
from pathlib import Path

import pytest

from tests.sabotage.defect import Defect, read
from tests.sabotage.defects import DEFECTS
from tests.sabotage.run import try_out

ROOT = Path(__file__).resolve().parents[2]
IN_THE_GATE = 2


def _why_not(defect: Defect) -> str:
    """Why it does not apply any more; nothing if it does."""
    text = read(ROOT, defect)
    try:
        if defect.applied(text) == text:
            return "it changes nothing"
    except (LookupError, SyntaxError) as moved:
        return str(moved)
    gone = [test for test in defect.caught_by if not (ROOT / test.partition("::")[0]).exists()]
    return f"there is no {gone[0]}" if gone else ""


def test_each_defect_still_applies():
    """Its function and its guard are where it says; and the tests that it names are there."""
    assert {defect.name: why for defect in DEFECTS if (why := _why_not(defect))} == {}


def test_there_are_at_least_forty_with_names_of_their_own():
    """The list only grows."""
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS) >= 40


def test_some_defects_are_noticed(rng: random.Random):
    """Others with each change of the code."""
    missed = [caught.defect.name for caught in try_out(rng.sample(DEFECTS, IN_THE_GATE)) if caught.by is None]
    assert missed == []


@pytest.mark.soak
def test_all_defects_are_noticed():
    """The report says which test noticed which."""
    found = try_out(DEFECTS)
    for caught in found:
        print(f"RESULT {caught.defect.name}: {caught.by} ({caught.seconds:.0f} s)")
    assert [caught.defect.name for caught in found if caught.by is None] == []
