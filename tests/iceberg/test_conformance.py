"""An Iceberg table passes the suite of all sinks, with its files in memory and its catalog in memory as well."""

import pytest

from streamsink.testing.conformance import check_sink
from tests.iceberg.lake import Lake, ids_of

SHORT = pytest.mark.in_turn("a lake table in the suite of all sinks", 1)


def _check(every: int, **options) -> int:
    lake = Lake()

    def seen(file_io, root: str) -> list[int]:
        lake.io(file_io._calls)
        return ids_of(file_io, lake.catalog())

    return check_sink(lambda root: lake.sink(), seen, drop=lake.drop, every=every, **options)


@pytest.mark.parametrize("options", [pytest.param({}, marks=SHORT), pytest.param({"publish": "async"}, marks=SHORT)])
def test_an_iceberg_table_passes(options):
    """Some of the calls are tried."""
    assert _check(131, **options) > 8


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"publish": "async"}, {"on_rollback": "republish"}, {"publish_every_batches": 3}], ids=str
)
def test_every_call_is_tried(options):
    """So are pyiceberg's own."""
    assert _check(7, **options) > 300
