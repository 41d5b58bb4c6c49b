"""Traces of real queries: each batch is one, with all of its steps."""

import pytest

import streamsink
from streamsink.traces import Traces
from tests.e2e.harness import Ground, assert_each_once
from tests.lineage.test_queries import IN_TURN, files, run

pytestmark = pytest.mark.spark
STEPS = [f"streamsink.{name}" for name in ("admit", "wait", "write", "record", "publish")]


@pytest.fixture
def ground(tmp_path) -> Ground:
    return Ground(tmp_path)


@IN_TURN
@pytest.mark.parametrize("way", [{}, {"publish": "async"}], ids=["in the batch", "beside it"])
def test_a_query(spark, ground, recorder, way):
    """Three batches, and the start, which is in the first of them."""
    expected = ground.add_files(0, 3)
    sink = streamsink.to_table(ground.table, listener=Traces(recorder.provider), flush=False, **way)
    run(files(spark, ground), sink, ground)
    assert_each_once(ground.table, expected)
    batches = recorder.trees()
    assert batches[0].below.pop(0).name == "streamsink.restore", "in the call for the first batch"
    assert [each.values["streamsink.checkpoint_id"] for each in batches] == [0, 1, 2]
    for batch in batches:
        assert batch.names == STEPS, "in the order of their beginnings"
        assert batch.error == "" and batch.values["streamsink.rows"] == 10
        assert batch.values["streamsink.source_files"] == 1
        steps = [each for each in batch.below if each.name != "streamsink.publish"]
        assert all(batch.began <= each.began and each.ended <= batch.ended for each in steps)


@IN_TURN
def test_a_batch_that_fails(spark, ground, recorder):
    """In the step that writes, where the program's own expression fails."""
    ground.add_files(0, 1)
    df = files(spark, ground).selectExpr("CAST(raise_error('a value of a row') AS STRING) AS id", "name")
    sink = streamsink.to_table(ground.table, listener=Traces(recorder.provider), flush=False)
    with pytest.raises(Exception, match="a value of a row"):
        run(df, sink, ground)
    [batch] = [tree for tree in recorder.trees() if tree.name == "streamsink.batch"]
    assert batch.error and batch.values["streamsink.failed_in"] == "write"
    assert "a value of a row" not in str(batch)
