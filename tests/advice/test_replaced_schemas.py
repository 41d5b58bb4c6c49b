"""Advice of the error of a record whose schema has given its number to another one:
Paimon rolls a table's schema back, or fast-forwards a branch, where no snapshot has the schema; a record is none."""

import contextlib

import pytest

from streamsink import faults
from streamsink.commands.give_up import give_up
from streamsink.errors import StreamsinkError
from streamsink.format.types import parse_ddl
from streamsink.journal.record_format import decode_record
from streamsink.operations.doctor import diagnose
from streamsink.options import SinkOptions
from streamsink.table.table import open_table
from streamsink.testing.faults import arm
from tests.advice.accidents import take
from tests.advice.following import Advice, follows, told
from tests.advice.many import accept
from tests.crash.giving_up import ENDS
from tests.crash.letters_world import BOUNDARIES, NAME, LettersWorld
from tests.crash.many_world import ManyWorld, check_complete
from tests.crash.world import die_at_step, expected, memory_world

PLAIN = {"restore": "restore-and-continue", "add_columns": True, "journal_retain": 100}
ROOT = "/lake/shop.db/orders"
FIRST, OTHER = "more STRING", "other BIGINT"


def _alter(world, column: str, root: str = ROOT) -> None:
    """Somebody adds a column."""
    table = open_table(world.file_io(world.calls), root, for_writing=True)
    columns = ", ".join(f"`{field.name}` {field.type}" for field in table.latest_schema().fields)
    table.evolve(parse_ddl(f"{columns}, {column}"), add_columns=True, widen_types=False)


def _roll_back(world, root: str = ROOT) -> None:
    """As Paimon's SchemaManager.rollbackTo(0), which refuses to where a snapshot or a tag has the schema."""
    take(world, f"{root}/schema/schema-1")


def _change(world, root: str = ROOT) -> None:
    _roll_back(world, root)
    _alter(world, OTHER, root)


def _refused(world, rows, run) -> Advice:
    before = sorted(rows())
    said = told("schema.replaced", run)
    assert sorted(rows()) == before, "something was published"
    return said


def _follow(world, said: Advice):
    (path,), options = said.call("streamsink.give_up")
    return give_up(world.file_io(world.calls), path, SinkOptions.of(path, {**options, "commit_min_wait_ms": 0}))


def _made_again(world, said: Advice, root: str = ROOT) -> None:
    said.says("roll the table's schema back once more, make the change again", "and start the query again")
    _roll_back(world, root)
    _alter(world, FIRST, root)


@follows("schema.replaced")
@pytest.mark.parametrize("step", ["precommit.saved", "commit.placed", "commit.before_publish"])
@pytest.mark.parametrize("way", ["made-again", "given-up"])
@pytest.mark.parametrize("publish_as", ["snapshot-per-checkpoint", "one-snapshot"])
def test_a_schema_that_was_rolled_back_under_a_pending_record(step, way, publish_as):
    """Formerly the record was published, and readers took its columns for those of the other schema."""
    world = memory_world(**PLAIN, publish_as=publish_as)
    world.run(boundaries=ENDS[:1])
    _alter(world, FIRST)
    assert die_at_step(step, 1, world, boundaries=ENDS[:2])
    _change(world)
    found = {(each.kind, each.command) for each in diagnose(world.file_io(world.calls), ROOT)}
    assert ("schema.replaced", f"streamsink recover {ROOT} -a streamsink --give-up") in found
    said = _refused(world, world.ids, lambda: world.run(boundaries=ENDS))
    if way == "made-again":
        _made_again(world, said)
    else:
        assert _follow(world, said).records == (2,)
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


@follows("schema.replaced")
def test_records_before_it_are_published_and_those_behind_it_are_given_up():
    world = memory_world(**PLAIN, publish_every_batches=9)
    assert die_at_step("precommit.saved", 2, world, boundaries=ENDS)
    _alter(world, FIRST)
    assert die_at_step("group.queued", 3, world, boundaries=ENDS)
    assert [step for step in range(1, 5) if _columns_of(world, step)] == [3, 4]
    _change(world)
    said = told("schema.replaced", lambda: world.run(boundaries=ENDS))
    assert world.ids() == expected(ENDS[:2])
    assert _follow(world, said).records == (3, 4)


def _columns_of(world, sequence: int):
    path = f"{ROOT}/streamsink/streamsink/record-{sequence}.json"
    return decode_record(world.file_io(world.calls).read(path), path).payload["manifest"].get("columns")


@follows("schema.replaced")
@pytest.mark.parametrize("way", ["made-again", "given-up"])
@pytest.mark.parametrize("name", ["a", "more_x", "more_y"])
def test_one_of_several_tables_has_another_schema(name, way):
    """No table gets its part of the record before that is seen."""
    world = ManyWorld(**PLAIN)
    world.run(boundaries=(6, 9, 9))
    root = f"{world.root}/{name}"
    _alter(world, FIRST, root)
    assert die_at_step("precommit.saved", 1, world)
    _change(world, root)
    said = _refused(world, world.rows, world.run)
    if way == "made-again":
        _made_again(world, said, root)
    else:
        assert _follow(world, said).records == (4,)
    world.run()
    check_complete(world.rows())


@follows("schema.replaced", "give-up.published")
def test_one_of_several_tables_has_another_schema_and_others_have_their_part():
    """The word publishes the record without the rows of that table, as where its files are gone."""
    world = ManyWorld(**PLAIN)
    world.run(boundaries=(6, 9, 9))
    root = f"{world.root}/more_y"
    _alter(world, FIRST, root)
    assert die_at_step("tables.table_published", 1, world, boundaries=(6, 9, 9, 14))
    _change(world, root)
    said = _refused(world, world.rows, lambda: world.run(boundaries=(6, 9, 9, 14)))
    refusal = told("give-up.published", lambda: _follow(world, said))
    accept(world, accept_as_seen=refusal.says("its rows for more_y are lost then").option("accept_as_seen"))
    before = {number for _, number, _ in world.rows()}
    with pytest.raises(Exception, match="does not have it"):
        world.run(boundaries=(6, 9, 9, 14, 18))
    assert {number for _, number, _ in world.rows()} > before


@follows("schema.replaced")
@pytest.mark.parametrize("way", ["made-again", "given-up"])
@pytest.mark.parametrize("name", [NAME, "rejected"])
def test_a_table_or_that_of_its_dead_letters_has_another_schema(name, way):
    """The dead letters, which are published first, are not published either."""
    world = LettersWorld(**PLAIN)
    world.run(boundaries=BOUNDARIES[:1])
    root = f"{world.root}/{name}"
    _alter(world, FIRST, root)
    assert die_at_step("precommit.saved", 1, world, boundaries=BOUNDARIES[:2])
    _change(world, root)
    said = _refused(world, world.rows, world.run)
    if way == "made-again":
        _made_again(world, said, root)
    else:
        assert _follow(world, said).records == (2,)
    world.run()
    world.check_complete()


@follows("schema.replaced")
@pytest.mark.parametrize("options", [{}, {"publish_every_batches": 2}], ids=["batch", "group"])
def test_a_schema_is_replaced_under_the_running_query(options):
    """It knows the schema by its number, and looks only for higher ones: formerly it published."""
    world = memory_world(**PLAIN, **options)
    world.run(boundaries=ENDS[:1])
    _alter(world, FIRST)
    sink = world.driver.start(world.file_io(world.calls), world.checkpoint)
    world.checkpoint.ends = list(ENDS)
    if options:
        sink.batch(world.driver.describe(world.checkpoint, 1))
        world.checkpoint.committed = 2
        _change(world)
    else:
        arm("precommit.saved", 1, lambda: _change(world))
    batch = world.driver.describe(world.checkpoint, world.checkpoint.committed)
    told("schema.replaced", lambda: sink.batch(batch)).says("Start the query again")
    faults.arm(None)
    with contextlib.suppress(StreamsinkError):
        sink.close()
    assert world.ids() == expected(ENDS[:1])
    _made_again(world, _refused(world, world.ids, lambda: world.run(boundaries=ENDS)))
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)
