"""What a run's batches say of its next one."""

from streamsink.spark.sizes import Expected, Forecast, Sizes


def after(forecast: Forecast, weight: int | None, rows: int, size: int) -> Expected | None:
    """What was expected of a batch that then came like this."""
    forecast.begin(weight)
    expected = forecast.expected()
    if expected is not None and expected.rows <= 100:
        forecast.came(size, as_expected=rows <= 100)
    forecast.add(rows, size)
    return expected


def test_nothing_is_expected_of_a_first_batch():
    forecast = Forecast()
    assert after(forecast, None, 10, 1_000) is None
    assert after(forecast, None, 10, 1_000) == (10, 1_000)


def test_what_is_written_of_a_batch_is_in_proportion_to_what_it_reads():
    """So a backlog of a source that tells its size is not taken for one more small batch."""
    forecast = Forecast()
    after(forecast, 1_000, 10, 500)
    forecast.begin(4_000_000)
    assert forecast.expected() == (40_000, 2_000_000)
    forecast.begin(None)
    assert forecast.expected() == (10, 500)


def test_a_batch_for_which_nothing_was_read_says_nothing_of_the_next():
    forecast = Forecast()
    after(forecast, 0, 0, 0)
    assert after(forecast, 5_000_000, 50, 100) is None
    after(forecast, 0, 0, 0)
    assert after(forecast, 5_000_000, 50, 100) == (50, 100)


def test_rows_that_were_written_without_a_forecast_say_nothing():
    """Of a batch whose rows are in the table already, or of which a part is, no weight is known."""
    sizes = Sizes()
    sizes.add("driver", 10, 1_000)
    sizes.forecast.begin(None)
    assert sizes.forecast.expected() is None and sizes.bytes_per_row == 100


def test_after_batches_that_came_otherwise_it_is_tried_less_and_less_often():
    """A run whose batches are small and large in turn computes few of them to keep them in vain."""
    forecast, tried = Forecast(), []
    for number in range(300):
        large = number % 2 == 1
        expected = after(forecast, None, 1_000 if large else 1, 100)
        if expected is not None and expected.rows <= 100:
            tried.append(number)
    assert 0 < len(tried) < 12
    assert [later - earlier for earlier, later in zip(tried[:4], tried[1:5])] == [2, 4, 6, 10]


def test_it_is_tried_again_soon_when_batches_come_as_expected():
    forecast = Forecast()
    for rows in (1, 1_000, 1, 1):
        after(forecast, None, rows, 100)
    assert after(forecast, None, 1, 100) == (1, 100)


def test_bytes_are_those_in_memory_where_they_were_seen():
    """Files are compressed: a batch whose file is small may be large in memory."""
    forecast = Forecast()
    after(forecast, None, 10, 1_000)
    forecast.begin(None)
    assert forecast.expected() == (10, 1_000)
    forecast.came(16_000, as_expected=True)
    forecast.add(10, 1_000)
    forecast.begin(None)
    assert forecast.expected() == (10, 16_000)
