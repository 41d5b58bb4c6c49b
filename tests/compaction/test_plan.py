"""Which files become one: Paimon's rule, and the one beside a stream, which writes each byte again only a few times."""

import dataclasses
import random

import pytest

from streamsink.compaction.plan import Sizes, doubled, grown, pack, pack_all, plan
from streamsink.errors import Misuse
from streamsink.format.data_file import FILE_SOURCE_COMPACT
from tests.table.entries import add, data_file, part

MB = 2**20
SIZES = Sizes.of("t", {})
ONE = b""


def files(*given):
    return [dataclasses.replace(data_file(str(n)), file_size=size) for n, size in enumerate(given)]


def test_the_options_have_paimons_names_and_defaults():
    assert SIZES == Sizes(256 * MB, int(0.7 * 256 * MB), 5, 4 * MB, 100_000)
    given = {"target-file-size": "1 gb", "compaction.small-file-ratio": "0.5", "compaction.min.file-num": "3"}
    assert Sizes.of("t", given) == Sizes(1024 * MB, 512 * MB, 3, 4 * MB, 100_000)
    free = {"source.split.open-file-cost": "0 b"}
    assert Sizes.of("t", free) == dataclasses.replace(SIZES, open_cost_bytes=0), "an option for readers, who may say so"


@pytest.mark.parametrize(
    "given",
    [
        {"target-file-size": "much"},
        {"compaction.small-file-ratio": "1.5"},
        {"compaction.min.file-num": "0"},
        {"source.split.open-file-cost": "much"},
    ],
)
def test_a_wrong_option_is_named(given):
    with pytest.raises(Misuse, match="^/lake/t: .*" + next(iter(given))) as refused:
        Sizes.of("/lake/t", given)
    assert refused.value.kind == "table.bad-option"


def test_paimons_rule_takes_the_smallest_first_and_fills_twice_the_target():
    """Each file counts four megabytes more than it has; what is left needs five files."""
    assert pack(ONE, files(*[1 * MB] * 4), SIZES) == []
    assert pack(ONE, files(*[1 * MB] * 5), SIZES) == [[0, 1, 2, 3, 4]]
    found = pack(ONE, files(170 * MB, 1, 170 * MB, 170 * MB, 2), SIZES)
    assert found == [[1, 4, 0, 2, 3]], "12 MB of small ones, and three of 174: 2 * 256 are reached with the last one"
    tiny = pack(ONE, files(*[1] * 300), SIZES)
    assert [len(each) for each in tiny] == [128, 128, 44], "128 files at four megabytes each are 512"


def test_all_small_files_become_as_few_as_there_can_be():
    assert pack_all(ONE, files(1), SIZES) == []
    assert pack_all(ONE, files(1, 2), SIZES) == [[0, 1]]
    assert pack_all(ONE, files(*[100 * MB] * 7), SIZES) == [[0, 1, 2], [3, 4, 5]]


def test_files_are_left_alone_that_are_large_or_would_lose_something():
    small = add("data-a.parquet", part("x"))
    changes = [
        {"file_size": int(0.7 * 256 * MB)},
        {"external_path": "s3://elsewhere/data-a.parquet"},
        {"extra_files": ("data-a.parquet.index",)},
        {"embedded_file_index": b"x"},
        {"file_name": "data-a.orc"},
        {"schema_id": 7},
    ]
    others = [dataclasses.replace(small, file=dataclasses.replace(small.file, **change)) for change in changes]
    is_readable = {0: True, 7: False}.__getitem__
    assert plan([small, *others], SIZES, pack_all, is_readable=is_readable) == []
    assert [t.files for t in plan([small, *others, small], SIZES, pack_all, is_readable=is_readable)] == [
        (small, small)
    ]


def test_tasks_are_of_one_partition_each_and_keep_the_order_of_the_table():
    live = [add(f"data-{n}.parquet", part("xyx"[n % 3])) for n in range(9)]
    tasks = plan(live, SIZES, pack, is_readable=lambda _: True)
    assert [(t.partition, [e.file.file_name for e in t.files]) for t in tasks] == [
        (part("x"), [f"data-{n}.parquet" for n in (0, 2, 3, 5, 6, 8)])
    ]
    wanted = plan(live, SIZES, pack_all, is_readable=lambda _: True, is_wanted=lambda p: p == part("y"))
    assert [t.partition for t in wanted] == [part("y")]
    assert plan(live, dataclasses.replace(SIZES, most_files=1), pack_all, is_readable=lambda _: True) == []


def _streamed(packing, batches, size_of):
    """(bytes written again for each byte that came, most files that a reader saw) of a stream."""
    live, came, again, most = [], 0, 0, 0
    for _ in range(batches):
        file = files(size_of())[0]
        came += file.file_size
        live.append(file)
        small = [f for f in live if f.file_size < SIZES.small_bytes]
        for places in packing(ONE, small, SIZES):
            chosen = [small[place] for place in places]
            size = sum(f.file_size for f in chosen)
            again += size
            live = [f for f in live if not any(f is other for other in chosen)]
            live.append(dataclasses.replace(files(size)[0], file_source=FILE_SOURCE_COMPACT))
        most = max(most, len(live))
    return again / came, most


def test_beside_a_stream_each_byte_is_written_again_at_most_about_twice():
    """Whatever the sizes of the batches are; Paimon's own rule would write each byte again very often."""
    chance = random.Random(4)
    for size_of in (lambda: 100_000, lambda: chance.randrange(1_000, 400_000), lambda: 3_000_000):
        again, most = _streamed(grown(2), 3_000, size_of)
        assert again <= 2.05 and most < 250
    assert _streamed(pack, 300, lambda: 100_000)[0] > 10


def test_more_rewrites_leave_fewer_files():
    most = [_streamed(grown(n), 2_000, lambda: 100_000)[1] for n in (1, 2, 3)]
    again = [_streamed(grown(n), 2_000, lambda: 100_000)[0] for n in (1, 2, 3)]
    assert most == sorted(most, reverse=True) and most[0] > 5 * most[2]
    assert [round(each + 0.49) <= n for n, each in enumerate(again, 1)] == [True] * 3, again


def test_what_comes_seldom_does_not_have_a_large_file_written_each_time():
    """Files at rest are few, and a byte of a batch that comes once an hour is written again a dozen times at most."""
    again, most = _streamed(doubled, 2_000, lambda: 100_000)
    assert again <= 12 and most <= 14
    assert doubled(ONE, files(100 * MB, 1, 1), SIZES) == [[1, 2]]
    assert doubled(ONE, files(3 * MB, 2 * MB, 2 * MB), SIZES) == [[1, 2, 0]]
    assert doubled(ONE, files(3), SIZES) == []
