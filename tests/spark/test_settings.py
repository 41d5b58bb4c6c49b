"""Settings that a session has for as long as something is written with them."""

import pytest

from streamsink.spark.gateway.running import with_settings

pytestmark = pytest.mark.spark
SET, UNSET = "spark.sql.parquet.outputTimestampType", "spark.sql.execution.arrow.maxBytesPerBatch"


@pytest.mark.parametrize("first_out", [0, 1])
def test_two_jobs_of_one_session_at_one_time_leave_it_as_it_was(spark, first_out):
    """Threads load several days at once. Formerly the first one to end took the settings away from the other, which
    left them to the program for good. Its own files were not as the table has them, which ended in `spark.file`."""
    session = spark.newSession()
    session.conf.set(SET, "INT96")
    before = session.conf.get(UNSET, None)
    jobs = [with_settings(session, {SET: "TIMESTAMP_MICROS", UNSET: str(2**31 - 1)}) for _ in range(2)]
    for job in jobs:
        job.__enter__()
    jobs[first_out].__exit__(None, None, None)
    assert (session.conf.get(SET), session.conf.get(UNSET)) == ("TIMESTAMP_MICROS", str(2**31 - 1))
    jobs[1 - first_out].__exit__(None, None, None)
    assert (session.conf.get(SET), session.conf.get(UNSET, None)) == ("INT96", before)
