"""Pages are run from their first block to their last one, in one session of Spark's."""

import pytest

from tests.docs import given
from tests.docs.blocks import blocks_of
from tests.docs.given import World
from tests.docs.shell import Shell
from tests.docs.story import Story
from tests.docs.ways import PAGES, ways_of

pytestmark = pytest.mark.spark


def _pages() -> list:
    """A page that needs a server, or drivers of its own, is for the soak; of the others the seed chooses one."""
    found = []
    for page, how in PAGES.items():
        if {"run", "in session"} & set(ways_of(page, len(blocks_of(page)))):
            is_long = how.needs or how.slow
            mark = pytest.mark.soak if is_long else pytest.mark.in_turn("stories of pages", 1)
            found.append(pytest.param(page, id=page, marks=mark))
    return found


@pytest.mark.parametrize("page", _pages())
def test_a_page_runs_from_its_first_block_to_its_last_one(page, spark, tmp_path, request):
    """What it shows as printed is printed, and what it has written is there once."""
    how = PAGES[page]
    world = World(tmp_path, spark, {name: request.getfixturevalue(name) for name in how.needs})
    getattr(given, how.given)(world)
    words = {**world.words, "folder": str(tmp_path)}
    story = Story(
        page, Shell(tmp_path), world.names, {said: here.format(**words) for said, here in how.replaced.items()}
    )
    story.steps = {place: lambda name=name: getattr(given, name)(world) for place, name in how.steps.items()}
    story.tell(ways_of(page, len(blocks_of(page))))
    given.as_seen_by_readers(page, world)
