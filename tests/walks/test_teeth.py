"""Walks that were not told of them find the defects of tests/sabotage, except those of ``not_found.py`` and
``found_seldom.py``."""

import ast
import os
import re

import pytest

from tests.sabotage.defects import DEFECTS
from tests.sabotage.run import ROOT
from tests.walks import reach
from tests.walks.found_seldom import SELDOM
from tests.walks.not_found import ELSEWHERE, REASONS
from tests.walks.shown import SHOWN
from tests.walks.teeth import ROUNDS, bite, seeds_of, wrong_with
from tests.walks.walking import outcome

IN_THE_SOAK = 10_000
_FIRST_WALKS = 8
_SOON_FOUND = "the replay is written again"

WALKED = [defect for defect in DEFECTS if not defect.file.startswith(ELSEWHERE)]


def test_each_reason_is_of_defects_that_there_are():
    """Each defect has one reason."""
    names = [name for found in (*REASONS.values(), *SELDOM.values()) for name in found]
    assert sorted(set(names) - {defect.name for defect in WALKED}) == []
    assert len(names) == len(set(names))


@pytest.mark.in_turn("places that tell", 1)
@pytest.mark.parametrize("without", [frozenset(), frozenset(range(len(WALKED)))], ids=["all-values", "no-values"])
def test_each_defect_has_a_place_that_tells(tmp_path, without):
    """The instrumented modules are still Python, even where no other value may be looked at."""
    for defect in WALKED:
        (tmp_path / "streamsink" / defect.file).parent.mkdir(parents=True, exist_ok=True)
    reach.instrument(ROOT, tmp_path, enumerate(WALKED), without)
    told = "".join(path.read_text() for path in tmp_path.rglob("*.py"))
    for file in tmp_path.rglob("*.py"):
        ast.parse(file.read_text())
    found = {int(number) for number in re.findall(r"__reach__\.(?:here|raising|same)\((\d+)", told)}
    assert found == set(range(len(WALKED)))


@pytest.mark.in_turn("places that tell", 1)
def test_a_defect_is_found_on_walks_that_come_to_it():
    """It is tried only on these."""
    seeds = seeds_of("1", _FIRST_WALKS)[: _FIRST_WALKS + _FIRST_WALKS // 2]  # those on a disk
    [found] = bite([defect for defect in DEFECTS if defect.name == _SOON_FOUND], seeds)
    assert found.walk and 0 < found.comes < _FIRST_WALKS


@pytest.mark.in_turn("walks that show a defect", 45)
@pytest.mark.parametrize("name", SHOWN)
def test_a_walk_that_shows_a_defect_ends_well_without_it(name):
    """The name is that of a defect."""
    assert name in {defect.name for defect in DEFECTS}
    assert outcome(SHOWN[name]) == ("", "")


@pytest.mark.soak
@pytest.mark.parametrize("name", SHOWN)
def test_a_walk_shows_what_drawn_ones_seldom_find(name):
    """Should it not go wrong any more, I/O calls have moved to other numbers,
    or another guard behind this one was added."""
    [defect] = [defect for defect in DEFECTS if defect.name == name]
    assert wrong_with(defect, SHOWN[name])


@pytest.mark.soak
@pytest.mark.timeout(12 * 3600)
def test_walks_find_all_other_defects(seed):
    """WALKS says how many walks of one table there are; of several tables there are half as many. Defects that are
    found seldom are tried and reported, and may be missed."""
    reasoned = {name for found in REASONS.values() for name in found}
    others = [defect for defect in WALKED if defect.name not in reasoned]

    def tell(found):
        print(
            f"RESULT {found.defect.name}: {found.walk or 'not found'} {found.what} ({found.comes} walks come to it)",
            flush=True,
        )

    found = bite(others, seeds_of(str(seed), int(os.environ.get("WALKS") or IN_THE_SOAK)), tell, ROUNDS)
    seldom = {name for names in SELDOM.values() for name in names}
    assert [each.defect.name for each in found if not each.walk and each.defect.name not in seldom] == []
