"""Pages are run from their first block to their last one, in one session of Spark's."""

import functools

import pytest

from tests.docs import checks, given
from tests.docs.blocks import blocks_of
from tests.docs.given import World
from tests.docs.shell import Shell
from tests.docs.story import Story
from tests.docs.ways import PAGES, is_run, servers_of, ways_of

pytestmark = pytest.mark.spark


def _pages() -> list:
    """A page that needs a server, or drivers of its own, is for the soak; of the others the seed chooses one.

    A page of which some blocks need servers is in both: whole in the soak, without these blocks in the gate.
    """
    found = []
    for page, how in PAGES.items():
        ways = ways_of(page, len(blocks_of(page)))
        servers = tuple(sorted({*how.needs, *(name for way in ways for name in servers_of(way))}))
        if servers:
            found.append(pytest.param(page, servers, id=f"{page} with its servers", marks=pytest.mark.soak))
        if any(is_run(way) and not servers_of(way) for way in ways) and not how.needs:
            mark = pytest.mark.soak if how.slow else pytest.mark.in_turn("stories of pages", 1)
            found.append(pytest.param(page, (), id=page, marks=mark))
    return found


@pytest.mark.parametrize(("page", "servers"), _pages())
def test_a_page_runs_from_its_first_block_to_its_last_one(page, servers, spark, tmp_path, request, monkeypatch):
    """What it shows as printed is printed, and what it has written is there once."""
    how = PAGES[page]
    world = World(tmp_path, spark, {name: request.getfixturevalue(name) for name in servers}, monkeypatch.setenv)
    world.words["folder"] = str(tmp_path)
    getattr(given, how.given)(world)
    story = Story(page, Shell(tmp_path), world.names, world.words, how.replaced)
    story.steps = {place: functools.partial(getattr(given, name), world) for place, name in how.steps.items()}
    story.checks = {place: functools.partial(getattr(checks, name), world) for place, name in how.checks.items()}
    story.ends, story.servers = how.ends, servers
    story.tell(ways_of(page, len(blocks_of(page))))
    given.as_seen_by_readers(page, world)
