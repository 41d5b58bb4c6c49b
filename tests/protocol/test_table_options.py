"""Options of the table that a commit needs are checked before the record: a foreign writer may have set them wrong."""

import dataclasses

import pytest

from streamsink.errors import Misuse
from streamsink.table.table import open_table
from tests.crash.test_names import _records
from tests.crash.world import expected, memory_world

WRONG = {
    "commit.max-retries": "many",
    "commit.timeout": "soon",
    "commit.min-retry-wait": "1 eon",
    "manifest.merge-min-count": "none",
    "manifest.target-file-size": "8 miles",
    "manifest.full-compaction-threshold-size": "-1",
    "commit.strict-mode.last-safe-snapshot": "last",
}


def _set(world, option, value) -> None:
    """Set an option, as ALTER TABLE of another engine does."""
    table = open_table(world.file_io(world.calls), world.driver.root, for_writing=False)
    old = table.latest_schema()
    options = (
        {**old.options, option: value} if value is not None else {k: v for k, v in old.options.items() if k != option}
    )
    table.schemas.add(dataclasses.replace(old, id=old.id + 1, options=options))


@pytest.mark.parametrize("option", WRONG)
def test_a_wrong_option_is_an_error_before_the_record(option):
    """The error names the option. Once it is set right the query goes on."""
    world = memory_world(table_options={})
    world.driver.options = dataclasses.replace(world.driver.options, commit_min_wait_ms=None, commit_max_wait_ms=None)
    world.run(boundaries=(3,))
    _set(world, option, WRONG[option])
    for _ in range(2):
        with pytest.raises(Misuse, match=option) as refused:
            world.run(boundaries=(3, 6))
        assert refused.value.kind in ("option.value", "table.bad-option") and world.driver.root in str(refused.value)
        assert len(_records(world)) == 1
    _set(world, option, None)
    world.run(boundaries=(3, 6, 9))
    assert world.ids() == expected((9,))
