"""A newcomer can read one micro-batch: few files, few lines, few functions deep; PROTOCOL.md names the files."""

import re
from pathlib import Path

import pytest

import streamsink
from tests.e2e.harness import assert_each_once
from tests.e2e.reading import read_batch

PROTOCOL = Path(__file__).resolve().parents[2] / "docs" / "PROTOCOL.md"
MOST_FILES, MOST_LINES, MOST_FUNCTIONS = 12, 2_400, 12


@pytest.mark.spark
def test_a_batch_can_be_read(spark, ground):
    """The second batch of a run, small, on a local disk, published before it returns."""
    reading, publish = read_batch(1, streamsink.to_table(ground.table, lambda event: None))
    expected = ground.add_files(0, 3)
    stream = spark.readStream.schema("id BIGINT, name STRING").option("maxFilesPerTrigger", 1).json(str(ground.source))
    query = stream.writeStream.foreachBatch(publish).option("checkpointLocation", str(ground.root / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert_each_once(ground.table, expected)
    assert {"write.begin", "precommit.saved", "commit.published", "batch.end", "snapshot-2"} <= reading.stacks.keys()
    functions = reading.between("BatchFunction.__call__", "snapshot-2")
    print(f"{len(reading.files)} files, {reading.lines} lines, {len(functions)} functions: {functions}")
    assert reading.files == _named_by_the_document(), "docs/PROTOCOL.md names others"
    assert len(reading.files) <= MOST_FILES and reading.lines <= MOST_LINES
    assert len(functions) <= MOST_FUNCTIONS, functions


def _named_by_the_document() -> set[str]:
    text = PROTOCOL.read_text(encoding="utf-8")
    listed = re.search(r"<!-- the files of a batch -->(.*?)<!-- until here -->", text, re.DOTALL)
    return set(re.findall(r"`([a-z_/]+\.py)`", listed[1]))
