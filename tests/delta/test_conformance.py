"""A Delta table passes the suite of all sinks: whatever happens at any call of the store, each row is there once."""

import itertools

import pytest

from streamsink.testing.conformance import check_sink
from tests.delta.world import DeltaOnDisk, seen


def check(tmp_path, every: int, **options) -> int:
    """The log is on a disk, where deltalake can write it; all other files are in the suite's store."""
    numbers = itertools.count()
    now = {}

    def drop():
        now["disk"] = str(tmp_path / str(next(numbers)))

    drop()
    return check_sink(
        lambda root: DeltaOnDisk(root, disk=now["disk"]),
        lambda file_io, root: seen(file_io, root, now["disk"]),
        drop=drop,
        every=every,
        **options,
    )


@pytest.mark.in_turn("a lake table in the suite of all sinks", 1)
def test_a_table_passes(tmp_path):
    """Some of the calls are tried, in every way; the soak tries all."""
    assert check(tmp_path, 61) > 10


@pytest.mark.soak
@pytest.mark.parametrize("options", [{}, {"publish": "async"}], ids=["sync", "async"])
def test_every_call_is_tried(tmp_path, options):
    assert check(tmp_path, 3, **options) > 100
