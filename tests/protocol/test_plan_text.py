"""The text of plans as Spark 4.1 prints them: what is new at each start is left out, and what a query does is not."""

import pytest

from streamsink.spark.gateway import plan_text

SOURCE = (
    "~StreamingRelation DataSource(org.apache.spark.sql.classic.SparkSession@{hash},json,List(),None,List(),None,"
    "Map(path -> /in, fs.s3a.secret.key -> {secret}),None), FileSource[/in], [id#{a}L, name#{b}]"
)
PLAN = (
    """~Project [id#{a}L, name#{b}, {now} AS at#{c}, rand({seed}) AS r#{d}, uuid(Some({seed})) AS u#{e}]
+- ~Filter (((id#{a}L > cast(5 as bigint)) AND (at#{c} < {day})) OR \
(from_json(StructField(x,IntegerType,true), name#{b}, Some({zone}), false)))
   +- ~EventTimeWatermark {uuid}, at#{c}: timestamp, 1 seconds
      +- ~SubqueryAlias view_{seed}
         +- """
    + SOURCE
    + "\n"
)
FIRST = {
    "a": 1,
    "b": 2,
    "c": 3,
    "d": 4,
    "e": 5,
    "hash": "1a2b3c4d",
    "now": "2026-11-22 08:32:31.464807",
    "seed": "4671186473474093245",
    "day": "2026-11-22",
    "uuid": "bdc92db8-14c2-49fe-8eb2-6d3d9657fb3d",
    "zone": "UTC",
    "secret": "a",
}
SECOND = {
    "a": 71,
    "b": 72,
    "c": 83,
    "d": 14,
    "e": 95,
    "hash": "ffffffff",
    "now": "2027-01-01 00:00:00",
    "seed": "-12345678901234",
    "day": "2026-11-22",
    "uuid": "a900d219-58f9-42a1-9b71-632b6700e584",
    "zone": "Europe/Berlin",
    "secret": "b",
}


def of(plan, sources=()):
    return plan_text.canonical(plan_text.operators(plan, sources))


def test_two_starts_of_one_program_print_the_same():
    """They differ in ids, seeds, hashes, times of day, names of views, and the machine's time zone."""
    assert of(PLAN.format(**FIRST)) == of(PLAN.format(**SECOND))
    assert "secret" not in of(PLAN.format(**FIRST)).text


def test_dates_of_conditions_stand_apart():
    """They may be computed anew at each start, so they do not make another plan; but they are not left out either."""
    one, two = of(PLAN.format(**FIRST)), of(PLAN.format(**{**FIRST, "day": "2026-11-23"}))
    assert one.text == two.text
    assert (one.dates, two.dates) == (("2026-11-22",), ("2026-11-23",))


@pytest.mark.parametrize(
    "a, b", [("> cast(5", "> cast(6"), ("~Filter", "~Filter NOT"), ("IntegerType", "LongType"), (" AS r#", " AS q#")]
)
def test_another_program_prints_something_else(a, b):
    assert a in PLAN and of(PLAN.format(**FIRST)).text != of(PLAN.replace(a, b).format(**FIRST)).text


def test_the_same_columns_in_other_places_are_another_plan():
    """Ids are numbered and not left out."""
    assert of("~Filter (a#1 > a#2)\n+- kafka", {"kafka"}) != of("~Filter (a#2 > a#2)\n+- kafka", {"kafka"})


@pytest.mark.parametrize(
    "operator",
    [
        "Repartition 3, true",
        "RepartitionByExpression [id#1L], 8",
        "ResolvedHint (strategy=broadcast)",
        "SubqueryAlias x",
        "CollectMetrics o, [count(1) AS n#9L], 78",
    ],
)
def test_what_passes_rows_through_does_not_count(operator):
    plain = "~Filter (id#1L > 5)\n+- kafka"
    assert of(f"~Filter (id#1L > 5)\n+- ~{operator}\n   +- kafka", {"kafka"}) == of(plain, {"kafka"})


STREAMS_JOIN = (
    "~Join Inner, (id#1L = id#2L)\n:- ~Filter (id#1L > 0)\n:  +- kafka\n+- ~SubqueryAlias b\n   +- View "
    "(`t`, [id#2L])\n      +- kafka"
)
STATIC_JOIN = (
    "~Join LeftOuter, (id#1L = id#2L)\n:- kafka\n+- Aggregate [id#2L], [id#2L]\n   +- LogicalRDD [id#2L], false"
)
SUBQUERY = (
    "~Filter id#1L IN (list#3 [])\n:  +- Aggregate [id#2L], [id#2L]\n:     +- LogicalRDD [id#2L], false\n+- kafka"
)


@pytest.mark.parametrize(
    "plan, stateful",
    [
        (STREAMS_JOIN, True),
        (STATIC_JOIN, False),
        (SUBQUERY, False),
        ("~Union false, false\n:- kafka\n+- kafka", False),
        ("~Aggregate [id#1L], [id#1L]\n+- kafka", True),
        ("~Deduplicate [id#1L]\n+- kafka", True),
        ("~GlobalLimit 5\n+- ~LocalLimit 5\n   +- kafka", True),
        ("~FlatMapGroupsInPandasWithState st(id#1L)#2, [id#1L]\n+- kafka", True),
        ("~FlatMapGroupsInPandas [id#1L], f(id#1L)#2\n+- kafka", False),
        ("~TransformWithStateInPySpark f(id#1L)#2\n+- kafka", True),
        ("~DeduplicateWithinWatermark [id#1L]\n+- kafka", True),
    ],
)
def test_state_is_kept_by_operators_over_streams_only(plan, stateful):
    assert plan_text.is_stateful(plan_text.operators(plan, {"kafka"})) is stateful


BATCH = "LogicalRDD [id#1L], false"
# The batch, and the batch read a second time.
COLUMNS = {"id#1L", "id#8L", "id#9L"}


@pytest.mark.parametrize(
    "plan, operator",
    [
        (f"Filter (id#1L > 0)\n+- {BATCH}", ""),
        (f"Union false, false\n:- {BATCH}\n+- {BATCH}", ""),
        (f"Sort [id#1L], true\n+- {BATCH}", ""),
        (f"Aggregate [id#1L], [id#1L]\n+- Filter (id#1L > 0)\n   +- {BATCH}", "Aggregate"),
        (f"Deduplicate [id#1L]\n+- {BATCH}", "Deduplicate"),
        (f"Project [id#1L]\n+- Window [row_number() AS n#2], [id#1L]\n   +- {BATCH}", "Window"),
        (f"GlobalLimit 5\n+- LocalLimit 5\n   +- {BATCH}", "GlobalLimit"),
        (f"FlatMapGroupsInPandas [id#1L], f(id#1L)#2, [id#3L]\n+- {BATCH}", "FlatMapGroupsInPandas"),
        (f"Except false\n:- {BATCH}\n+- {BATCH}", "Except"),
        (
            (
                f"Join Inner, (id#1L = key#2L)\n:- {BATCH}\n+- Aggregate [key#2L], [key#2L]\n   +- LogicalRDD "
                "[key#2L], false"
            ),
            "",
        ),
        (f"Join Inner, (id#1L = id#1L)\n:- {BATCH}\n+- Filter (id#1L > 0)\n   +- {BATCH}", "Join"),
        ("Aggregate [id#7L], [id#7L]\n+- LogicalRDD [other#7L], false", ""),
        (f"Join LeftAnti, (id#1L = id#7L)\n:- {BATCH}\n+- LogicalRDD [id#7L], false", ""),
        ("Deduplicate [id#7L]\n+- LogicalRDD [id#7L], false", ""),
        (
            (
                f"Project [id#1L]\n+- Join Inner, (id#1L = id#9L)\n   :- {BATCH}\n   +- Aggregate [id#9L], [id#9L]\n"
                "      +- LogicalRDD [id#9L], false"
            ),
            "Join",
        ),
        (f"Filter id#1L IN (list#3 [])\n:  +- LogicalRDD [id#8L], false\n+- {BATCH}", "Filter"),
        (
            (
                f"Filter (id#1L = scalar-subquery#5 [])\n:  +- Aggregate [max(id#8L) AS m#9L]\n:     +- LogicalRDD "
                f"[id#8L], false\n+- {BATCH}"
            ),
            "Filter",
        ),
        (
            (
                f"Project [id#1L]\n+- Union false, false\n   :- {BATCH}\n   +- Filter (id#1L > 0)\n      +- LogicalRDD "
                "[id#8L], false"
            ),
            "",
        ),
    ],
)
def test_rows_of_a_batch_are_combined_by_operators_over_the_batch_only(plan, operator):
    """It does not matter what a static table went through, whatever its columns are called;
    nor does a union of parts of the batch."""
    assert plan_text.combines(plan_text.operators(plan), COLUMNS) == operator


ELSEWHERE = "an RDD, localCheckpoint(), the driver or a file through which they went"
STATIC = "LocalRelation [key#2L]"


@pytest.mark.parametrize(
    "plan, hidden",
    [
        (f"Filter f(id#1L)#3\n+- {BATCH}", ""),
        (f"TypedFilter f\n+- {BATCH}", ""),
        (f"SerializeFromObject\n+- MapElements f\n   +- DeserializeToObject\n      +- {BATCH}", ""),
        (f"Union false, false\n:- {BATCH}\n+- Filter (id#8L > 0)\n   +- LogicalRDD [id#8L], false", ""),
        (f"Generate explode(array(1, 2)), false, [col#3]\n+- {BATCH}", ""),
        (f"Join Inner, (id#1L = key#2L)\n:- {BATCH}\n+- MapInPandas f(key#2L)#5, [key#6L]\n   +- {STATIC}", ""),
        (f"Project [id#1L]\n+- MapInPandas f(id#1L)#5, [id#6L], false\n   +- {BATCH}", "MapInPandas"),
        (f"MapInArrow f(id#1L)#5, [id#6L]\n+- {BATCH}", "MapInArrow"),
        (f"MapPartitions f\n+- {BATCH}", "MapPartitions"),
        (f"Generate Ud(id#1L)#2, false, [a#3]\n+- {BATCH}", "Generate"),
        (f"ScriptTransformation cat, [id#6]\n+- {BATCH}", "ScriptTransformation"),
        (f"Project [id#1L]\n+- Union false, false\n   :- {BATCH}\n   +- LogicalRDD [id#8L, other#9], false", ELSEWHERE),
    ],
)
def test_what_a_plan_hides_of_rows_that_may_be_of_several(plan, hidden):
    """It hides what functions over many rows of the batch do, and rows that no plan leads back to the batch. A function
    over one row at a time makes none of several."""
    assert plan_text.may_combine(plan_text.operators(plan), COLUMNS, True) == hidden
    assert plan_text.may_combine(plan_text.operators(plan), COLUMNS, False) == ELSEWHERE


@pytest.mark.parametrize(
    "plan, hidden",
    [
        ("~MapInPandas m(id#1L)#2, [id#3L], false\n+- kafka", "MapInPandas"),
        ("~FlatMapGroupsInPandas [id#1L], f(id#1L)#2\n+- kafka", "FlatMapGroupsInPandas"),
        ("~Filter f(id#1L)#2\n+- kafka", ""),
        (f"~Join Inner, (id#1L = key#2L)\n:- kafka\n+- MapInPandas f(key#2L)#5, [key#6L]\n   +- {STATIC}", ""),
    ],
)
def test_what_a_stream_s_plan_hides(plan, hidden):
    """It is known before the batch function is given anything."""
    assert plan_text.may_combine_in_stream(plan_text.operators(plan, {"kafka"})) == hidden


def test_a_text_with_a_line_break_is_one_operator():
    assert len(plan_text.operators("~Filter (name#1 = a\nAggregate b)\n+- kafka", {"kafka"})) == 2


@pytest.mark.parametrize(
    "plan, all_of_it",
    [
        ("~MapInPandas m(id#1L)#2, [id#3L], false\n+- kafka", False),
        ("~Generate Ud(id#1L)#2, false, [a#3]\n+- kafka", False),
        ("~Generate explode(array(1, 2)), false, [col#3]\n+- kafka", True),
        ("~Project [a#1, b#2, ... 16 more fields]\n+- kafka", False),
        ("~TypedFilter f\n+- kafka", False),
        ("~Project [sum(id)#4L]\n+- kafka", True),
    ],
)
def test_a_plan_tells_whether_it_shows_everything(plan, all_of_it):
    assert plan_text.shows_everything(plan_text.operators(plan, {"kafka"})) is all_of_it


def test_a_batch_whose_rows_went_through_an_rdd_is_not_the_streams():
    stream = "id#1L, count(1)#2L"
    assert plan_text.reads(plan_text.operators("Filter (id#1L > 0)\n+- LogicalRDD [id#1L, count(1)#2L], false"), stream)
    assert not plan_text.reads(plan_text.operators("LogicalRDD [id#7L, count(1)#8L], false"), stream)


# -- bounded runs --------------------------------------------------------------------------------------------------


def of_run(plan):
    return plan_text.canonical(plan_text.of_a_job(plan_text.operators(plan)))


RUN = "Project [{first}, (id#1L + 1) AS w#2L, {last}]\n+- Filter {condition}\n   +- Relation [id#1L] parquet"


@pytest.mark.parametrize(
    "one, two",
    [("abc AS x#9", "a, b (c) AS x#9"), ("1 AS x#9", "2 AS x#9"), ("cast(a as date) AS x#9", "cast(b as date) AS x#9")],
)
def test_a_constant_column_may_be_set_anew(one, two):
    for place in ({"first": "id#1L", "last": "{}"}, {"first": "{}", "last": "id#1L"}):
        texts = [of_run(RUN.format(condition="(id#1L > 5)", **place).format(column)) for column in (one, two)]
        assert texts[0] == texts[1]


@pytest.mark.parametrize(
    "one, two",
    [("coalesce(id#1L, 0) AS x#9", "coalesce(id#1L, 5) AS x#9"), ("(id#1L * 2) AS x#9", "(id#1L * 3) AS x#9")],
)
def test_a_column_that_reads_rows_is_part_of_the_run(one, two):
    texts = [of_run(RUN.format(first="id#1L", last=column, condition="(id#1L > 5)")) for column in (one, two)]
    assert texts[0] != texts[1]


def test_a_condition_is_part_of_the_run():
    assert of_run(RUN.format(first="id#1L", last="id#1L", condition="(id#1L > 5)")) != of_run(
        RUN.format(first="id#1L", last="id#1L", condition="(id#1L > 6)")
    )


@pytest.mark.parametrize(
    "one, two",
    [
        (
            "Relation [id#1L] JDBCRelation((select 1) SPARK_GEN_SUBQ_0) [numPartitions=1]",
            "Relation [id#4L] JDBCRelation((select 1) SPARK_GEN_SUBQ_7) [numPartitions=1]",
        ),
        ("RelationV2[id#1L] parquet file:/a/part-1", "RelationV2[id#1L] parquet file:/a/part-2"),
        (
            "HiveTableRelation [`d`.`t`, org.x.Serde, Data Cols: [id#1], Statistic: 5B]",
            "HiveTableRelation [`d`.`t`, org.x.Serde, Data Cols: [id#1]]",
        ),
    ],
)
def test_what_spark_numbers_in_a_process_is_no_part_of_a_run(one, two):
    assert of_run(one) == of_run(two)


@pytest.mark.parametrize(
    "plan, fixed",
    [
        ("Project [rand(5) AS r#1]\n+- Sort [id#1L], true\n   +- Relation [id#1L] parquet", True),
        ("Filter (rand(1) < 0.5)\n+- Range (0, 5)", False),
        ("Sample 0.0, 0.5, false, 77\n+- Range (0, 5)", False),
        ("SubqueryAlias a\n+- View (`v`, [id#1L])\n   +- LocalRelation [id#1L]", True),
    ],
)
def test_rows_that_come_out_as_they_are_read(plan, fixed):
    lines = plan_text.operators(plan)
    assert plan_text.has_row_for_row(lines) is fixed and plan_text.samples(lines) is plan.startswith("Sample")
