"""A sink that is not called exactly once for each batch of the query that it belongs to."""

import contextlib
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

import streamsink
from streamsink.errors import Misuse
from streamsink.protocol.ways import CALLED_FOR_EVERY_BATCH
from tests.e2e.harness import assert_each_once, ids_in, ids_of

EVEN, ODD = "id % 2 = 0", "id % 2 = 1"


def _run(spark, ground, function) -> list[Exception]:
    """Run one query over two files. Returns the errors that the function caught or that ended it."""
    ground.add_files(0, 2)
    rows = spark.readStream.schema("id BIGINT, name STRING").option("maxFilesPerTrigger", 1).json(str(ground.source))
    errors: list[Exception] = []

    def each(batch, number):
        try:
            function(batch, number)
        except Exception as failed:
            errors.append(failed)
            raise

    query = (
        rows.writeStream.foreachBatch(each)
        .option("checkpointLocation", ground.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    with contextlib.suppress(StreamingQueryException):
        query.awaitTermination()
    return errors


@pytest.mark.spark
def test_a_second_part_of_a_batch_is_refused_and_never_skipped(spark, ground):
    """A1: there are two filters of one DataFrame and one sink. Formerly 10 of 20 rows were lost in silence."""
    sink = streamsink.to_table(ground.table, lambda event: None, flush=False)

    def both(batch, number):
        sink(batch.where(EVEN), number)
        sink(batch.where(ODD), number)

    [error] = _run(spark, ground, both)
    assert isinstance(error, Misuse) and error.kind == "batch.twice"
    assert sorted(ids_in(ground.table)) == sorted(i for i in ids_of(0, 1) if i % 2 == 0)


@pytest.mark.spark
def test_two_sinks_of_one_table_and_name_are_one_sink(spark, ground):
    """A1: this is the same accident with two objects."""
    sinks = [streamsink.to_table(ground.table, lambda event: None, flush=False) for _ in range(2)]

    def both(batch, number):
        sinks[0](batch.where(EVEN), number)
        sinks[1](batch.where(ODD), number)

    [error] = _run(spark, ground, both)
    assert isinstance(error, Misuse) and error.kind == "batch.twice"


@pytest.mark.spark
def test_a_table_whose_path_is_spelled_in_two_ways_is_one(spark, ground):
    """Formerly the second sink took over as a restart of the query,
    and its half of each batch was skipped as a replay."""
    linked = ground.root / "linked"
    linked.symlink_to(ground.table.rpartition("/")[0])
    streamsink.create_table(ground.table, "id BIGINT, name STRING")
    sinks = [
        (streamsink.to_table(path, lambda event: None, flush=False), part)
        for path, part in ((ground.table, EVEN), (f"{linked}/orders", ODD))
    ]
    [error] = _run(spark, ground, lambda batch, number: [sink(batch.where(part), number) for sink, part in sinks])
    assert isinstance(error, Misuse) and error.kind == "batch.twice"


@pytest.mark.spark
def test_a_table_whose_place_gets_another_path_meanwhile_is_one(spark, ground):
    """No path says that both lead to one place, as with a port, an alias of an endpoint or a mount. Formerly the second
    half of each batch was skipped."""
    folder, away = Path(ground.table).parent, ground.root / "away"
    streamsink.create_table(ground.table, "id BIGINT, name STRING")

    def both(batch, number):
        streamsink.to_table(ground.table, lambda event: None, flush=False)(batch.where(EVEN), number)
        if not away.exists():
            folder.rename(away)
            folder.symlink_to(away)
        streamsink.to_table(ground.table, lambda event: None, flush=False)(batch.where(ODD), number)

    [error] = _run(spark, ground, both)
    assert isinstance(error, Misuse) and error.kind == "batch.twice" and "in another way" in str(error)
    assert sorted(ids_in(ground.table)) == sorted(i for i in ids_of(0, 1) if i % 2 == 0)


@pytest.mark.spark
def test_a_name_each_is_the_way_on(spark, ground):
    """This is what the error advises: two parts under two names, each row once;
    and one sink object made anew in each batch."""

    def both(batch, number):
        for name, part in (("even", EVEN), ("odd", ODD)):
            streamsink.to_table(ground.table, lambda event: None, flush=False, application=name)(
                batch.where(part), number
            )

    streamsink.create_table(ground.table, "id BIGINT, name STRING")
    assert _run(spark, ground, both) == []
    assert_each_once(ground.table, ids_of(0, 2))


def _dies(*sinks):
    """A batch function that ends its query when its sinks have written, before Spark knows."""

    def function(batch, number):
        for sink, part in sinks:
            sink(batch.where(part), number)
        raise InterruptedError("the driver dies")

    return function


def _sink(table: str, name: str, **options):
    return streamsink.to_table(
        table, lambda event: None, flush=False, application=name, restore="restore-and-continue", **options
    )


@pytest.mark.spark
def test_a_query_that_is_renamed_before_spark_has_committed_its_first_batch(spark, ground):
    """Formerly batch 0 came again under the new name, as a second sink's would, and was doubled. A sink of another
    table is no second sink of this one."""
    beside, table = f"{ground.table}_beside", ground.table
    [died] = _run(spark, ground, _dies((_sink(table, "first"), "true"), (_sink(beside, "first"), EVEN)))
    assert isinstance(died, InterruptedError)
    [error] = _run(spark, ground, _dies((_sink(beside, "first"), EVEN), (_sink(table, "second"), "true")))
    assert (
        isinstance(error, Misuse)
        and error.kind == "application.renamed"
        and sorted(ids_in(table)) == sorted(ids_of(0, 1))
    )
    adopt = int(re.search(r"set adopt_from_batch=(\d+)", str(error))[1])
    sinks = (_sink(beside, "first"), EVEN), (_sink(table, "second", adopt_from_batch=adopt), "true")
    assert _run(spark, ground, lambda batch, number: [sink(batch.where(part), number) for sink, part in sinks]) == []
    assert_each_once(table, ids_of(0, 2))
    assert_each_once(beside, {number for number in ids_of(0, 2) if number % 2 == 0})


@pytest.mark.spark
def test_two_names_of_one_function_are_no_earlier_names_of_each_other(spark, ground):
    """Their query dies when both, or only one of them, have written batch 0.
    Several tables of one folder are another name for each of them."""
    folder, name = ground.table.rsplit("/", 1)
    streamsink.create_table(ground.table, "id BIGINT, name STRING")

    def parts():
        tables = streamsink.to_tables(
            folder,
            f"'{name}'",
            {name: {}},
            lambda event: None,
            flush=False,
            application="many",
            restore="restore-and-continue",
        )
        return (
            (_sink(ground.table, "even"), EVEN),
            (tables, f"{ODD} AND id < 5"),
            (_sink(ground.table, "odd"), f"{ODD} AND id >= 5"),
        )

    for called in (1, 2, 3):
        [died] = _run(spark, ground, _dies(*parts()[:called]))
        assert isinstance(died, InterruptedError)
    sinks = parts()
    assert _run(spark, ground, lambda batch, number: [sink(batch.where(part), number) for sink, part in sinks]) == []
    assert_each_once(ground.table, ids_of(0, 2))


@pytest.mark.spark
def test_an_id_that_is_not_sparks_is_refused(spark, ground):
    """A1b: the batch id is the user's own, always 0. Formerly every batch except the first was taken for a replay."""
    sink = streamsink.to_table(ground.table, lambda event: None, flush=False)
    [error] = _run(spark, ground, lambda batch, number: sink(batch, 0))
    assert isinstance(error, Misuse) and error.kind == "batch.wrong-id"
    assert "batch 1" in str(error) and "0" in str(error) and ground.table in str(error)
    assert_each_once(ground.table, ids_of(0, 1))


@pytest.mark.spark
def test_a_call_from_another_thread_is_refused_with_the_reason(spark, ground):
    """A1b: a pool of threads does not know which query it works for."""
    sink = streamsink.to_table(ground.table, lambda event: None, flush=False)

    def elsewhere(batch, number):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(sink, batch, number).result()

    [error] = _run(spark, ground, elsewhere)
    assert isinstance(error, Misuse) and error.kind == "batch.not-streaming"
    assert "thread" in str(error)


@pytest.mark.in_turn("sinks that are called for some batches", 1)
@pytest.mark.spark
@pytest.mark.parametrize("empty, kind", [(1, "batch.gap"), (0, "gap.first-batch")])
def test_a_sink_that_is_called_only_for_batches_with_rows_is_told_to_take_all_of_them(spark, ground, empty, kind):
    """Many batch functions do so.
    Formerly the error blamed the table or the checkpoint, and its advice led back to the same error."""
    ground.add_files(0, 3)
    none_of = ids_of(empty, 1)
    rows = spark.readStream.schema("id BIGINT, name STRING").option("maxFilesPerTrigger", 1).json(str(ground.source))
    rows = rows.where(f"id NOT BETWEEN {min(none_of)} AND {max(none_of)}")
    streamsink.create_table(ground.table, rows.schema)

    def run(function) -> None:
        query = (
            rows.writeStream.foreachBatch(function)
            .option("checkpointLocation", ground.checkpoint)
            .trigger(availableNow=True)
        )
        query.start().awaitTermination()

    sink, errors = streamsink.to_table(ground.table, lambda event: None, flush=False), []

    def only_with_rows(batch, number):
        try:
            if not batch.isEmpty():
                sink(batch, number)
        except Misuse as refused:
            errors.append(refused)
            raise

    with pytest.raises(StreamingQueryException):
        run(only_with_rows)
    sink.close()
    (refused,) = errors
    assert refused.kind == kind and CALLED_FOR_EVERY_BATCH in str(refused)
    option, value = re.search(
        r"also for one without rows.*?(accept_as_new|adopt_from_batch)='?(\w+)", str(refused)
    ).groups()
    value = int(value) if option == "adopt_from_batch" else value
    run(streamsink.to_table(ground.table, lambda event: None, flush=False, **{option: value}))
    assert_each_once(ground.table, ids_of(0, 3) - none_of)
