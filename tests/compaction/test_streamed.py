"""Over ten thousand batches: files that a reader finds at any time against those of one batch job, and what that costs.

Only sizes are counted (``streamed.py``); ``benchmarks/compaction`` measures the same with tables.
"""

import pytest

from streamsink.compaction.plan import Sizes, grown, pack
from tests.compaction.streamed import Streamed, around, streamed

KB, MB = 2**10, 2**20
BATCHES = 10_000
SMALL = Sizes.of("t", {"target-file-size": "4 mb"})
DEFAULT = Sizes.of("t", {})


def _beside(sizes: Sizes, size: int, *, batches=BATCHES, every=1, partitions=1, rewrites=2, packing=None) -> Streamed:
    size_of = around(size, seed=4)
    return streamed(packing or grown(rewrites), sizes, batches, size_of, every=every, partitions=partitions)


def _most_more(sizes: Sizes, size: int, every: int) -> float:
    """What docs/COMPACTION.md says of a partition: twice the root of the batches in a file, and what has come since."""
    return 2 * max(2.0, (sizes.target_bytes / size) ** 0.5) + max(every, sizes.min_files) + 1


@pytest.mark.parametrize("every", [1, 7, 25])
def test_a_reader_finds_hardly_more_files_than_one_batch_job_would_have_left(every):
    """Thirty batches make a file: the goals, and never more files above the job's than the documentation says."""
    seen = _beside(SMALL, 137 * KB, every=every)
    mean, worst = seen.ratio(last=BATCHES // 2)
    assert seen.job[-1] > 300 and mean <= 1.1 and worst <= 1.2
    assert seen.rewritten <= 2.0
    assert seen.most_more <= _most_more(SMALL, 137 * KB, every)


@pytest.mark.parametrize("size", [9 * MB, 20 * MB, 60 * MB])
@pytest.mark.parametrize("every", [1, 5, 10, 20])
def test_what_comes_fast_is_compacted_as_well(size, every):
    """When several files could be filled between two looks, all of them are; and none is left that is nearly full."""
    seen = _beside(DEFAULT, size, batches=500, every=every)
    assert seen.most_more <= _most_more(DEFAULT, size, every) and seen.rewritten <= 2.0


def test_each_partition_has_its_own_waiting_files():
    """Files above the job's are so many for each partition, so a table of ten needs ten times as many for the goal."""
    seen = _beside(SMALL, 137 * KB, batches=2_000, partitions=10, every=5)
    assert seen.most_more <= 10 * _most_more(SMALL, 137 * KB, 5) and seen.rewritten <= 2.0
    assert seen.ratio(last=200)[0] <= 1.2


@pytest.mark.soak
def test_files_of_the_default_size_need_more_batches_than_ten_thousand_small_ones():
    """Six files would hold all: a reader finds up to twice the root of 1,900 more. One rewrite more leaves 40."""
    two, three = (_beside(DEFAULT, 137 * KB, rewrites=rewrites) for rewrites in (2, 3))
    assert two.job[-1] == 6 and 60 < two.most_more <= _most_more(DEFAULT, 137 * KB, 1) and two.rewritten <= 2.0
    assert 20 < three.most_more < 45 and three.rewritten <= 3.0
    by_hand = _beside(DEFAULT, 137 * KB, batches=1_000, packing=pack)
    assert by_hand.rewritten > 20
