"""A query with dead letters whose table, journal and name are of earlier code goes on under its first name."""

import pytest

from streamsink.errors import Misuse
from tests.advice.following import advice, follows
from tests.crash.letters_world import EARLIER, EARLIER_NAME, LETTERS, NAME, PLAIN, LettersWorld

_MORE = (6, 9, 9, 14, 18, 22)


def test_a_table_of_earlier_code_goes_on_under_its_first_name():
    """Its application was streamsink-<table>, and its journal is in the folder above."""
    world = LettersWorld()
    world.run(boundaries=(6, 9), how=EARLIER)
    world.run()
    world.check_complete()
    assert list(world.states(NAME)) == [f"{EARLIER_NAME}@tables"]
    assert not world.file_io().entries(f"{world.path}/streamsink")


def test_an_earlier_query_that_has_only_written_dead_letters_goes_on():
    """Its journal does not name the table yet, and the table knows nothing of it."""
    world = LettersWorld()
    world.run(boundaries=(1,), how=EARLIER)
    assert [name for name, _, _ in world.rows()] == ["rejected"]
    ends = (1, 4, 9)
    world.run(boundaries=ends)
    world.check_complete(ends)
    assert list(world.states(NAME)) == [f"{EARLIER_NAME}@tables"]


def test_an_earlier_table_is_recognised_without_its_journal():
    """Its snapshots say the name. A new name would write everything a second time."""
    world = LettersWorld()
    world.run(boundaries=(6, 9), how=EARLIER)
    world.file_io().delete_tree(f"{world.root}/streamsink")
    world.checkpoint = type(world.checkpoint)("00000000-0000-0000-0000-000000000002")
    before = world.rows()
    with pytest.raises(Misuse) as refused:
        world.run()
    assert refused.value.kind == "tables.unknown-record" and world.rows() == before


def test_of_two_names_the_one_with_the_later_batch_of_this_query_counts():
    """The query took the earlier name by adopt_from_batch, as application.renamed said; then it is upgraded."""
    world = LettersWorld()
    world.run(boundaries=(6, 9), how=PLAIN)
    world.run(boundaries=(6, 9, 14), how=EARLIER, adopt_from_batch=2)
    world.run(boundaries=_MORE[:2] + (14, 18))
    world.check_complete(_MORE[:2] + (14, 18))
    assert world.states(NAME)["streamsink"]["checkpoint_id"] == 1


@follows("application.two-names")
def test_a_query_that_neither_of_two_names_knows_is_asked_which():
    """The name that its user sets decides."""
    world = LettersWorld()
    world.run(boundaries=(6, 9), how=PLAIN)
    world.run(boundaries=(6, 9, 14), how=EARLIER, adopt_from_batch=2)
    world.checkpoint = type(world.checkpoint)("00000000-0000-0000-0000-000000000002")
    before = world.rows()
    with pytest.raises(Misuse) as refused:
        world.run(boundaries=(5,))
    said = advice(refused.value, "application.two-names")
    names = [
        said.find(r"Set application='([\w-]+)' or"),
        said.find(r"Set application='[\w-]+' or application='([\w-]+)' to say"),
    ]
    assert names == ["streamsink", EARLIER_NAME]
    for name in names:
        with pytest.raises(Misuse) as refused:
            world.run(boundaries=(5,), application=name)
        assert refused.value.kind == "positions.overlap", (
            "it is that name's record that the new checkpoint is compared with"
        )
    assert world.rows() == before
    driver = world.driver_of(LETTERS, application=names[1])
    driver.first_file = 14  # This is a new checkpoint that begins where the record under that name ends.
    driver.run(world.file_io(), type(world.checkpoint)("00000000-0000-0000-0000-000000000003"), (18,))
    world.check_complete((6, 9, 14, 18))
