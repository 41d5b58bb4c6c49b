"""Tables of databases pass the suite of all sinks: whatever happens at any call of the journal's store, each row is
there once."""

import pytest

from streamsink.sinks.databases import sink
from streamsink.testing.conformance import check_sink

# Servers are asked over a network, and each of their worlds makes tables: so the gate tries few calls with them.
SOME = {"sqlite": 61, "postgresql": 499, "mariadb": 499}


def _check(place, every: int, options: dict, **of_sink) -> int:
    def seen(file_io, root: str) -> list[int]:
        return place.ids()

    return check_sink(lambda root: place.sink(root, **of_sink), seen, drop=place.drop, every=every, **options)


@pytest.mark.in_turn("databases in the suite of all sinks", 1)
def test_a_table_of_a_database_passes(place):
    """Rows are added. Some of the calls are tried."""
    assert _check(place, SOME[place.kind], {}) > 5


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"publish": "async"}], ids=["sync", "async"])
@pytest.mark.parametrize("by_key", [False, True], ids=["insert", "upsert"])
def test_every_call_is_tried(place, options, by_key):
    """Rows are added, or replace those with the same keys; in the batch, or by another thread with a connection of its
    own."""
    of_sink = {"mode": "upsert", "keys": ("id",)} if by_key else {}
    assert _check(place, 7, options, **of_sink) > 100


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("by_key", [False, True], ids=["insert", "upsert"])
def test_every_call_of_several_writers_is_tried(served, by_key, monkeypatch):
    """The same with staging tables."""
    monkeypatch.setattr(sink, "_LEAST_ROWS", 2)
    of_sink = {"mode": "upsert", "keys": ("id",)} if by_key else {}
    assert _check(served, 7, {}, writers=2, writers_by="staged", **of_sink) > 100
