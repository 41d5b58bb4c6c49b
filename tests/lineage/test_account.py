"""What a query has read and written is told once, however late it is told, and in whatever order it is published."""

from dataclasses import replace

from streamsink import events
from streamsink.lineage.account import MOST_FILES, Account, Told
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.positions import SourceFile, SourceRange

TABLE, APP, RUN = "/lake/t", "orders", "11111111-2222-3333-4444-555555555555"


def kafka(start: int | None, end: int) -> SourceRange:
    return SourceRange(
        None if start is None else {"t": {"0": start}}, {"t": {"0": end}}, cluster="c", topic_ids={"t": "id"}
    )


def admitted(checkpoint_id: int, *sources: SourceRange, run: str = RUN, verdict: str = "new", table: str = TABLE):
    return events.BatchAdmitted(table, APP, checkpoint_id, verdict, None, 0, "query", run, 1.0, sources)


def published(checkpoint_id: int, snapshot: int, checkpoints: int = 1, table: str = TABLE) -> events.Event:
    of = {"rows": 10, "files": 1, "pending": 0, "attempts": 1, "commit_ms": 1.0, "bytes": 100}
    return events.CheckpointPublished(table, APP, checkpoint_id, snapshot, checkpoints=checkpoints, **of)


def told_of(account: Account, *given: events.Event) -> list[Told]:
    """What is told at once, and what is left then."""
    for event in given:
        account.add(event, 1_000)
    found = list(account.ready)
    account.ready.clear()
    rest = account.take(2_000)
    return found + ([rest] if rest else [])


def test_a_group_is_told_with_all_that_it_has_read():
    """Offsets belong to what is published, not to what is written: the third batch waits."""
    account = Account()
    begun = [events.Claimed(TABLE, APP, 1), *(admitted(n, kafka(n * 10, n * 10 + 10)) for n in range(3))]
    start, running = told_of(account, *begun, published(1, 7, checkpoints=2))
    assert (start.state, running.state) == ("START", "RUNNING")
    window = running.window
    assert (window.first, window.last, window.checkpoints) == (1, 1, 2)
    topic = window.read[0].topics["t"]
    assert topic.parts == {"0": (0, 20)} and (topic.cluster, topic.topic_id) == ("c", "id")
    assert (window.written[TABLE].rows, window.written[TABLE].version) == (10, "7")
    [later] = told_of(account, published(2, 8))
    assert later.window.read[0].topics["t"].parts == {"0": (20, 30)}


def test_what_is_not_told_adds_up():
    """A slow collector gets one message of many publishings."""
    account = Account()
    told_of(account, admitted(0, kafka(None, 5)))
    for number in range(1, 101):
        account.add(published(number - 1, number), 1_000)
        account.add(admitted(number, kafka(number * 5, number * 5 + 5)), 1_000)
    [running] = told_of(account)
    assert running.window.checkpoints == 100 and running.window.written[TABLE].rows == 1_000
    assert running.window.written[TABLE].size == 10_000 and running.window.written[TABLE].version == "100"
    assert running.window.read[0].topics["t"].parts == {"0": (None, 500)}, "the beginning of the partition"
    assert account.take(3_000) is None


def test_files_are_counted_and_some_are_named():
    """However many files a query reads, a message has few."""
    account = Account()
    files = tuple(SourceFile(f"file:/in/{number}", 0) for number in range(80))
    sources = [SourceRange({"logOffset": n}, {"logOffset": n + 1}, files=files) for n in range(2)]
    given = [admitted(0, sources[0]), published(0, 1), admitted(1, sources[1]), published(1, 2)]
    _, running = told_of(account, *given)
    assert running.window.read[0].files == 160 and len(running.window.read[0].named) == MOST_FILES


def test_destinations_of_a_fan_out_are_one_message():
    """Each of them tells its own publishing; the batch counts once."""
    account = Account()
    begun = [events.Claimed("/journal", APP, 1), admitted(0, kafka(0, 5), table="/journal")]
    each = [published(0, 3, table="/lake/a"), published(0, 9, table="/lake/b"), published(0, 0, table="/journal")]
    _, running = told_of(account, *begun, *each)
    assert running.window.checkpoints == 1
    assert {path: of.version for path, of in running.window.written.items()} == {
        "/lake/a": "3",
        "/lake/b": "9",
        "/journal": "",
    }


def test_a_replay_has_read_nothing():
    """What is skipped was told by the run that has published it, or is told when it is published."""
    account = Account()
    [start] = told_of(account, admitted(0, kafka(0, 5), verdict="skip"), events.BatchSkipped(TABLE, APP, 0, "same"))
    assert start.state == "START" and not account.has_more
    [running] = told_of(account, published(0, 1))
    assert running.window.read == {}


def test_what_a_start_publishes_of_an_earlier_run_is_told_with_its_first_batch():
    """Rows that a restart makes visible are in the statistics of its run."""
    account = Account()
    assert told_of(account, events.Claimed(TABLE, APP, 2), published(4, 5)) == []
    start, running = told_of(account, events.Restored(TABLE, APP, (4,), ()), admitted(5, kafka(20, 25)))
    assert (start.state, running.window.last, running.window.written[TABLE].version) == ("START", 4, "5")


def test_the_ends_of_a_run():
    """It completes, or fails with what its last batch has raised, unless that batch goes through later."""
    failed = events.BatchFailed(TABLE, APP, 1, "Misuse", "schema.other", 3.0)
    end = events.RunEnded(TABLE, APP, RUN)
    good = told_of(Account(), admitted(0, kafka(0, 5)), published(0, 1), events.BatchReturned(TABLE, APP, 0, 1.0), end)
    assert [each.state for each in good] == ["START", "COMPLETE"] and good[-1].window.written[TABLE].rows == 10
    bad = told_of(Account(), admitted(1, kafka(0, 5)), failed, end)
    assert [(each.state, each.error, each.kind) for each in bad[1:]] == [("FAIL", "Misuse", "schema.other")]
    again = told_of(Account(), admitted(1, kafka(0, 5)), failed, events.BatchReturned(TABLE, APP, 1, 1.0), end)
    assert [each.state for each in again] == ["START", "COMPLETE"]
    beside = events.PublishingFailed(TABLE, APP, "Fenced", "owner.newer", 1)
    assert [each.state for each in told_of(Account(), admitted(0), beside, end)] == ["START", "FAIL"]
    refused = told_of(Account(), events.Claimed(TABLE, APP, 1), failed, end)
    assert [each.state for each in refused] == ["START", "FAIL"], "its first batch was not admitted"


def test_an_end_that_nobody_has_told():
    """The next start of the query ends the one before; the end of the process ends the last."""
    account = Account()
    told = told_of(account, admitted(0, kafka(0, 5)), admitted(1, kafka(5, 6), run="another"))
    assert [each.state for each in told] == ["START", "COMPLETE", "START"]
    account.stop(5_000)
    assert [(each.state, each.run.run) for each in account.ready] == [("ABORT", "another")]


def test_a_bounded_job_is_known_as_one():
    """Its batch has an id of its own."""
    [start] = told_of(Account(), admitted(END_OF_INPUT, run="2026-11-21"))
    assert start.run.is_bounded


def test_another_query_is_left_out():
    """One listener is for one query, and what comes of another one is counted."""
    account = Account()
    told = told_of(account, admitted(0, kafka(0, 5)), admitted(0, kafka(0, 5), table="/lake/other", run="other"))
    assert [each.run.table for each in told] == [TABLE] and account.strangers == 1


def test_nothing_of_another_query_is_told():
    """Neither what it has written nor its columns, its errors or its end; also where it writes the same table."""
    other, run = ("/lake/other", "theirs"), "66666666-7777-8888-9999-000000000000"
    for table, app in [other, (TABLE, "theirs"), ("/lake/other", APP)]:
        account = Account()
        theirs = [
            events.Claimed(table, app, 1),
            events.BatchAdmitted(table, app, 0, "new", None, 0, "another", run, 1.0, (kafka(0, 9),)),
            events.ColumnsChanged(table, app, (("theirs", "INT"),)),
            replace(published(0, 77, table=table), application=app),
            events.BatchFailed(table, app, 1, "Misuse", "schema.other", 3.0),
            events.RunEnded(table, app, run),
        ]
        mine = [admitted(0, kafka(0, 5)), events.ColumnsChanged(TABLE, APP, (("id", "BIGINT"),))]
        told = told_of(account, *mine, *theirs, published(0, 1), *theirs, events.RunEnded(TABLE, APP, RUN))
        assert [each.state for each in told] == ["START", "COMPLETE"] and account.strangers == 2, (table, app)
        assert told[-1].run.columns == (("id", "BIGINT"),) and told[-1].run.run == RUN
        assert {path: of.version for path, of in told[-1].window.written.items()} == {TABLE: "1"}


def test_columns_are_those_of_the_last_batch():
    """They are told when they change, also before the run has begun."""
    account = Account()
    changed = events.ColumnsChanged(TABLE, APP, (("id", "BIGINT"),))
    [start] = told_of(account, admitted(0, kafka(0, 5)), changed)
    assert start.run.columns == (("id", "BIGINT"),)
