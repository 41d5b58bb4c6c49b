"""``streamsink.give_up`` of one destination of a fan-out is refused by name, and what it names instead leads on."""

import pytest

from streamsink.commands.give_up import give_up
from streamsink.commands.retire import retire
from streamsink.commands.sinks_given_up import give_up_of_sink
from streamsink.commands.sinks_retired import retire_of_sink
from streamsink.options import SinkOptions
from tests.advice.following import follows, told
from tests.sinks.fan_out_world import ALL, ENDS, KINDS, ROOT, FanOutWorld


def without_its_files(name: str) -> FanOutWorld:
    """A record is pending, and this destination has lost the files of its part."""
    world = FanOutWorld("files", name)
    world.dies_at("fan-out.delivered", 4)
    world.io().delete_tree(f"{ROOT}/{name}/streamsink/streamsink/staging")
    return world


def given_up(world: FanOutWorld, name: str, **options) -> str:
    own = SinkOptions.of(f"{ROOT}/{name}", options)
    if name == "table":
        return str(give_up(world.io(), f"{ROOT}/{name}", own))
    return str(give_up_of_sink(world.io(), KINDS[name][0](f"{ROOT}/{name}"), own))


@follows("give-up.fan-out")
@pytest.mark.parametrize("name", ["own", "table"])
def test_one_destination_of_a_fan_out_cannot_be_given_up(name):
    """The fan-out would give it the record once more."""
    world = without_its_files(name)
    said = told("give-up.fan-out", lambda: given_up(world, name)).says(f"destination '{name}'", "Nothing was given up")
    journal = said.find(r"remove its journal (\S+) when the others have a batch more, and name it again")
    world.names = ("files",)
    world.run(accept_as_seen=told("fan-out.left-destination", lambda: world.run()).option("accept_as_seen"))
    world.names = ("files", name)
    world.io().delete_tree(journal)
    word = told("fan-out.new-destination", lambda: world.run(ends=(*ENDS, 12))).option("accept_as_new")
    world.run(ends=(*ENDS, 12), accept_as_new=word)
    assert world.seen() == {"files": list(range(12)), name: [*ALL[: ENDS[0]], 9, 10, 11]}


@follows("give-up.fan-out")
@pytest.mark.parametrize("name", ["own", "table"])
def test_what_a_fan_out_has_left_can_be_given_up_when_it_is_not_used_any_more(name):
    """The query writes to the destination alone from then on."""
    world = without_its_files(name)
    word = told("give-up.fan-out", lambda: given_up(world, name)).option("accept_as_new")
    assert "record 2 of application 'streamsink' given up" in given_up(world, name, accept_as_new=word)
    world.run(sink=KINDS[name][0](f"{ROOT}/{name}"))
    assert world.ids(name) == ALL


def test_a_fan_out_is_not_given_up_as_a_whole():
    """Its journal is one of several, and the error that stops the query says which destination has lost something."""
    world = without_its_files("own")
    told("give-up.fan-out", lambda: give_up_of_sink(world.io(), world.make(ROOT), SinkOptions.of(ROOT, {})))
    told("pending.files-gone", lambda: world.run()).says("leave the destination 'own' out of the fan-out")


def retired(world: FanOutWorld, name: str, **options) -> bool:
    own = SinkOptions.of(f"{ROOT}/{name}", options)
    if name == "table":
        return retire(world.io(), f"{ROOT}/{name}", own)
    return retire_of_sink(world.io(), KINDS[name][0](f"{ROOT}/{name}"), own)


@follows("retire.fan-out")
@pytest.mark.parametrize("name", ["table", "lines"])
def test_one_destination_of_a_fan_out_is_not_retired_alone(name):
    """It lost the rows that the fan-out had recorded, and had not given to its journal yet."""
    world = FanOutWorld("files", name)
    world.dies_at("fan-out.recorded", 2)
    word = told("retire.fan-out", lambda: retired(world, name)).says(f"destination '{name}'").option("accept_as_new")
    world.run()
    assert world.seen() == dict.fromkeys(world.names, ALL)
    told("retire.fan-out", lambda: retired(world, name, accept_as_new=word))  # it was about another record
    word = told("retire.fan-out", lambda: retired(world, name)).option("accept_as_new")
    assert retired(world, name, accept_as_new=word) and world.ids(name) == ALL


def test_a_destination_that_is_written_alone_since_is_retired():
    world = FanOutWorld("files", "table")
    world.run(ends=ENDS[:2])
    world.run(sink=KINDS["table"][0](f"{ROOT}/table"))
    assert retired(world, "table")
