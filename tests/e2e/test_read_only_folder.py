"""A folder that nobody may write in:
every public function that writes names the table, what is the matter, and the way on."""

import pytest

import streamsink
from streamsink.errors import Misuse
from tests.e2e.harness import run_here

pytestmark = pytest.mark.spark
# A real file system in which even root makes no folder; it is mounted read-only in containers.
TABLE = "/sys/kernel/lake/orders"
KINDS = ("storage.denied", "storage.read-only")


def check(error, kept: str = "nothing is lost") -> None:
    text = str(error)
    assert error.kind in KINDS
    assert TABLE in text and kept in text and ("write access" in text or "writable" in text), text


def test_a_table_that_cannot_be_created(spark):
    """It is created by hand."""
    with pytest.raises(Misuse) as refused:
        streamsink.create_table(TABLE, "id BIGINT")
    check(refused.value, kept="stays as it is")


def test_a_bounded_job(spark):
    """It fails at its first write."""
    with pytest.raises(Misuse) as refused:
        streamsink.write(spark.range(3), TABLE, "r1")
    check(refused.value)


@pytest.mark.parametrize("many", [{}, {"route": "'orders'", "tables": {"orders": {}}}], ids=["one", "many"])
def test_a_query(spark, ground, many):
    """It fails at its first batch, of one table and of many."""
    ground.add_files(0, 1)
    outcome = run_here(spark, ground.job(table=TABLE, many=many))
    assert (outcome.error, outcome.kind in KINDS) == ("Misuse", True), outcome
    assert TABLE in outcome.message and "nothing is lost" in outcome.message
