"""Advice of errors about one of several tables that is lost, that went back, or of which nobody knows what it has."""

import itertools
from collections import Counter

import pytest

from streamsink.commands.give_up import give_up
from streamsink.errors import StreamsinkError
from streamsink.format.types import parse_ddl
from streamsink.journal.record_format import decode_record
from streamsink.options import SinkOptions
from streamsink.protocol.committable import StagedFile
from streamsink.table.table import create_table, new_schema
from tests.advice.following import follows
from tests.advice.many import (
    JOURNAL,
    accept,
    commit_of_another,
    files_in,
    four_of_five_batches,
    once,
    put_back,
    refused,
)
from tests.crash.giving_up import follow
from tests.crash.many_world import BOUNDARIES, ROOT, ManyWorld, check_complete
from tests.crash.world import die_at_step
from tests.protocol.history import say_new


@pytest.fixture
def world() -> ManyWorld:
    return four_of_five_batches()


# -- a table is lost, or went back ----------------------------------------------------------------------------------


def _drop(world, name: str) -> tuple[dict, list[int]]:
    """Drop a table. Returns its files and the numbers of its rows."""
    files = files_in(world, f"{ROOT}/{name}")
    lost = [number for table, number, _ in world.rows() if table == name]
    world.file_io().delete_tree(f"{ROOT}/{name}")
    return files, lost


def _recreate(world) -> None:
    schema = new_schema(parse_ddl("id BIGINT, part STRING, n BIGINT NOT NULL, version BIGINT"), (), {})
    create_table(world.file_io(), f"{ROOT}/strict", schema)


def _take_newest_snapshot(world, name: str) -> tuple[dict, list[int]]:
    """Delete the newest snapshot, as a rollback does.
    Returns what was deleted and the numbers of the rows that went with it."""
    before = world.rows()
    newest = max(world.table(name).snapshots.ids())
    files = {
        path: world.calls._names[path].data
        for path in (f"{ROOT}/{name}/snapshot/snapshot-{newest}", f"{ROOT}/{name}/snapshot/LATEST")
    }
    for path in files:
        world.file_io().delete(path)
    after = world.rows()
    return files, [number for table, number, version in before if (table, number, version) not in after]


def _go_on_without_it(world, kind: str, said, lost: list[int], *, is_expired: bool = False) -> None:
    """Go on under another name, as the error says; no other table gets a row twice. is_expired: history has expired, so
    that the tables cannot say whether the other name has written here."""
    if kind == "table.gone":
        _recreate(world)
    said.says("set another application")
    accept(world, application="another", **said.options("adopt_from_batch", "accept_as_seen"))
    if is_expired:
        say_new(world, world.run)
        assert world.driver.options.new_application
    else:
        world.run()
    once(world, lost)


LOST = {"table.gone": lambda world: None, "table.recreated": _recreate}


@follows(*LOST)
@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("way", ["restored", "another-application"])
def test_one_of_the_tables_is_lost(world, kind, way):
    """Either it is restored; or the query goes on under another name, and no other table gets a row twice."""
    files, lost = _drop(world, "strict")
    LOST[kind](world)
    said = refused(world, kind)
    if way == "restored":
        said.says("restore the table")
        world.file_io().delete_tree(f"{ROOT}/strict")
        put_back(world, files)
        world.run()
        check_complete(world.rows())
        return
    _go_on_without_it(world, kind, said, lost)


@follows(*LOST)
@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("batches, is_running", [(4, True), (3, False)])
def test_one_of_the_tables_is_lost_and_a_new_checkpoint_would_double_the_others(kind, batches, is_running):
    """The table is lost under the running query, where the error formerly said what is right for a single table; or it
    is lost behind a batch that put no row into any table."""
    world = ManyWorld(restore="restore-and-continue")
    sink = world.driver.start(world.file_io(), world.checkpoint)
    world.checkpoint.ends += list(BOUNDARIES)
    for batch_id in range(batches):
        sink.batch(world.driver.describe(world.checkpoint, batch_id))
        world.checkpoint.committed = batch_id + 1
    files, lost = _drop(world, "strict")
    LOST[kind](world)
    if is_running:
        said = refused(world, kind, lambda: sink.batch(world.driver.describe(world.checkpoint, batches)))
    sink.close()
    if not is_running:
        said = refused(world, kind)
    _go_on_without_it(world, kind, said, lost)


_WENT_BACK = "table.rolled-back"
# Table ``strict`` gets rows of the last batch, which is written after four others.
_STRICT_HAS_ROWS = (6, 9, 9, 9, 18)


@follows("table.rolled-back")
@pytest.mark.parametrize("way", ["restored", "another-application"])
def test_one_of_the_tables_is_rolled_back(world, way):
    """Either it is restored; or the loss was meant, or cannot be undone, and the query goes on under another name."""
    files, lost = _take_newest_snapshot(world, "strict")
    assert lost
    said = refused(world, _WENT_BACK)
    if way == "another-application":
        _go_on_without_it(world, _WENT_BACK, said, lost)
        return
    said.says("Restore the table")
    put_back(world, files)
    world.run()
    check_complete(world.rows())


@follows(*LOST, "table.rolled-back")
@pytest.mark.parametrize("kind", [*LOST, _WENT_BACK])
@pytest.mark.parametrize("way", ["restored", "given-up"])
def test_one_of_the_tables_is_lost_while_a_batch_is_pending(kind, way):
    """Another name alone would leave out what is pending.
    So that is given up first, and the batch is written again, once."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:2])
    assert die_at_step("precommit.saved", 3, world, boundaries=_STRICT_HAS_ROWS)
    files, lost = (_take_newest_snapshot if kind == _WENT_BACK else _drop)(world, "strict")
    LOST.get(kind, lambda world: None)(world)
    said = refused(world, kind).says("estore the table", "is pending")
    assert "another application" not in said.message
    if way == "given-up":
        assert follow(world, said).records == (5,)
        _go_on_without_it(world, kind, refused(world, kind), lost)
        return
    if kind != _WENT_BACK:
        world.file_io().delete_tree(f"{ROOT}/strict")
    put_back(world, files)
    world.run()
    check_complete(world.rows())


@follows("give-up.published")
@pytest.mark.parametrize("kind", LOST)
def test_one_of_the_tables_is_lost_while_others_have_their_part_of_a_batch(kind):
    """Reading the batch again would double their rows. Once they are rolled back as the error says they have lost them,
    and then the batch is given up."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:2])
    assert die_at_step("tables.table_published", 1, world, boundaries=_STRICT_HAS_ROWS)
    _, lost = _drop(world, "strict")
    LOST[kind](world)
    said = refused(world, kind)
    refusal = refused(world, "give-up.published", lambda: follow(world, said))
    for table in {
        name for name in ("a", "more_x", "more_y", "rejected") if f"{ROOT}/{name}" in refusal.says("roll back").message
    }:
        _take_newest_snapshot(world, table)
    assert follow(world, said).records == (5,)
    _go_on_without_it(world, kind, refused(world, kind), lost)


@follows("give-up.published")
@pytest.mark.parametrize("kind", [*LOST, _WENT_BACK])
@pytest.mark.parametrize("published", [1, 2])
def test_one_of_the_tables_is_left_out_where_others_cannot_be_rolled_back(kind, published):
    """Somebody has committed after their part, or what was before it has expired. Formerly there was no way on."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:2])
    assert die_at_step("tables.table_published", published, world, boundaries=_STRICT_HAS_ROWS)
    _, lost = (_take_newest_snapshot if kind == _WENT_BACK else _drop)(world, "strict")
    LOST.get(kind, lambda world: None)(world)
    said = refused(world, kind)
    refusal = refused(world, "give-up.published", lambda: follow(world, said)).says("its rows for strict are lost then")
    accept(world, accept_as_seen=refusal.option("accept_as_seen"))
    world.run(boundaries=_STRICT_HAS_ROWS)
    missing = set(range(18)) - {number for _, number, _ in world.rows()}
    assert missing > set(lost) and len(missing - set(lost)) == _rows_of_part(world, 5, "strict")
    accept(world, accept_as_seen=None)
    _go_on_without_it(world, kind, refused(world, kind), sorted(missing))


@follows("give-up.published")
@pytest.mark.parametrize("is_one_lost", [True, False])
def test_one_of_the_tables_cannot_get_its_part_of_a_batch_any_more(is_one_lost):
    """The table was rolled back and the files of its part were deleted, while other tables have their part. Found by a
    walk: the word that publishes the record in all tables that are not lost led back to the deleted files, for ever."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:2])
    assert die_at_step("tables.table_published", 2, world, boundaries=_STRICT_HAS_ROWS)
    _take_newest_snapshot(world, "more_x")
    for file in _files_of_part(world, 5, "more_x"):
        world.file_io().delete(f"{ROOT}/{file.final}")
    lost = _drop(world, "strict")[1] if is_one_lost else []
    said = refused(world, "table.gone" if is_one_lost else "pending.files-gone")
    refusal = refused(world, "give-up.published", lambda: follow(world, said))
    names = ["more_x", "strict"] if is_one_lost else ["more_x"]
    accept(
        world, accept_as_seen=refusal.says(f"its rows for {' and '.join(names)} are lost then").option("accept_as_seen")
    )
    world.run(boundaries=_STRICT_HAS_ROWS)
    missing = set(range(18)) - {number for _, number, _ in world.rows()}
    assert len(missing - set(lost)) == sum(_rows_of_part(world, 5, name) for name in names)
    accept(world, accept_as_seen=None)
    said = refused(world, _WENT_BACK)
    _go_on_without_it(world, "table.gone" if is_one_lost else _WENT_BACK, said, sorted(missing))


@pytest.mark.parametrize("kind", [*LOST, _WENT_BACK])
def test_a_table_that_is_left_out_of_one_record_is_not_left_out_of_the_next(kind):
    """The word is still in the job."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:2])
    assert die_at_step("tables.table_published", 1, world, boundaries=_STRICT_HAS_ROWS)
    (_take_newest_snapshot if kind == _WENT_BACK else _drop)(world, "strict")
    LOST.get(kind, lambda world: None)(world)
    said = refused(world, kind)
    accept(
        world, accept_as_seen=refused(world, "give-up.published", lambda: follow(world, said)).option("accept_as_seen")
    )
    world.run(boundaries=_STRICT_HAS_ROWS)
    left_out = set(range(18)) - {number for _, number, _ in world.rows()}
    with pytest.raises(StreamsinkError) as told:
        world.run(boundaries=(*_STRICT_HAS_ROWS, *range(24, 90, 6)))
    assert told.value.kind == (kind if kind != "table.gone" else "table.missing")
    numbers = Counter(number for _, number, _ in world.rows())
    assert set(numbers) == set(range(max(numbers) + 1)) - left_out and set(numbers.values()) == {1}
    assert kind == "table.gone" or max(numbers) >= 23, "batches without rows for it go on"


@pytest.mark.parametrize("kind", LOST)
def test_a_table_that_is_restored_after_all_is_not_left_out(kind):
    """The word is already in the job."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:2])
    assert die_at_step("tables.table_published", 1, world, boundaries=_STRICT_HAS_ROWS)
    files, _ = _drop(world, "strict")
    LOST[kind](world)
    said = refused(world, kind)
    accept(
        world, accept_as_seen=refused(world, "give-up.published", lambda: follow(world, said)).option("accept_as_seen")
    )
    world.file_io().delete_tree(f"{ROOT}/strict")
    put_back(world, files)
    world.run(boundaries=_STRICT_HAS_ROWS)
    once(world)


def _files_of_part(world, sequence: int, name: str) -> list[StagedFile]:
    path = f"{JOURNAL}/record-{sequence}.json"
    record = decode_record(world.file_io().read(path), path)
    return [file for file in record.files if file.final.startswith(f"{name}/")]


def _rows_of_part(world, sequence: int, name: str) -> int:
    return sum(file.rows for file in _files_of_part(world, sequence, name))


@pytest.mark.parametrize("kind", LOST)
def test_what_a_table_has_by_its_state_is_not_given_up(kind):
    """No snapshot names its files any more. Formerly its rows were read again and doubled."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:2])
    assert die_at_step("tables.table_published", 1, world, boundaries=_STRICT_HAS_ROWS)
    commit_of_another(world, "a", keeps_states=True)
    _drop(world, "strict")
    LOST[kind](world)
    said = refused(world, kind)
    assert f"{ROOT}/a" in refused(world, "give-up.published", lambda: follow(world, said)).message


@follows("journal.undecidable", *LOST)
@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("way", ["accept_as_seen", "accept_as_new"])
def test_what_its_user_says_that_a_table_has_is_not_given_up(kind, way):
    """Another table of the record is lost, and the question about this one does not look at that."""
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:2])
    assert die_at_step("tables.table_published", 1, world, boundaries=_STRICT_HAS_ROWS)
    commit_of_another(world, "a")
    _, lost = _drop(world, "strict")
    lost += [
        number
        for number in range(18)
        if number not in [n for _, n, _ in world.rows()] and number < 9 and number not in lost
    ]
    LOST[kind](world)
    word = {way: refused(world, "journal.undecidable").option(way)}
    accept(world, **word)
    said = refused(world, kind)
    (path,), options = said.call("streamsink.give_up")
    if way == "accept_as_seen":
        refused(world, "give-up.published", lambda: _give_up(world, path, {**options, **word}))
        return
    assert _give_up(world, path, {**options, **word}).records == (5,)
    _go_on_without_it(world, kind, refused(world, kind), lost, is_expired=True)


def _give_up(world, path: str, options):
    return give_up(world.file_io(), path, SinkOptions.of(path, options))


@follows("tables.journal-behind")
@pytest.mark.parametrize("way", ["restored", "another-application"])
def test_an_older_copy_of_the_journal_took_its_place(world, way):
    """Either the newest copy is put back;
    or there is none, and the query goes on under another name behind what the tables have."""
    newest = max(int(name[7:-5]) for name in world.file_io().names(JOURNAL) if name.startswith("record-"))
    files = files_in(world, JOURNAL)
    for name in (f"record-{newest}.json", f"done-{newest}"):
        world.file_io().delete(f"{JOURNAL}/{name}")
    said = refused(world, "tables.journal-behind")
    if way == "restored":
        said.says("Restore the newest copy")
        put_back(world, files)
    else:
        accept(
            world,
            application="another",
            adopt_from_batch=said.option("adopt_from_batch"),
            accept_as_seen=said.option("accept_as_seen"),
        )
    world.run()
    check_complete(world.rows())


# -- nobody knows what a table has ----------------------------------------------------------------------------------


def _undecidable(published: int) -> ManyWorld:
    """A query that was killed when so many tables had their part of the first batch; others then committed to these,
    and what could tell has expired."""
    world = ManyWorld(restore="restore-and-continue")
    assert die_at_step("tables.table_published", published, world)
    having = [name for name in world.tables if world.table(name) and world.table(name).snapshots.latest()]
    assert len(having) == published
    for name in having:
        commit_of_another(world, name)
    return world


@follows("journal.undecidable")
@pytest.mark.parametrize(
    "ways", [("accept_as_seen",), ("accept_as_new",), *itertools.product(("accept_as_seen", "accept_as_new"), repeat=2)]
)
def test_tables_of_which_nobody_knows_whether_they_have_their_part(ways):
    """The part of each table is left alone or published, whatever was said of the other one.
    The rest of the tables get theirs in any case."""
    world = _undecidable(len(ways))
    left_alone = 0
    for way in ways:
        accept(world, **{way: refused(world, "journal.undecidable").option(way)})
        left_alone += way == "accept_as_seen"
    world.run()
    if not left_alone:
        check_complete(world.rows())
        return
    numbers = Counter(number for _, number, _ in world.rows())
    assert set(numbers.values()) == {1} and set(range(BOUNDARIES[-1])) - set(numbers) <= set(range(BOUNDARIES[0]))
    assert len(numbers) == BOUNDARIES[-1] - left_alone
