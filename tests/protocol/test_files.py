"""Files as positions: a file is its path with its time of modification, read by one source of the query."""

import dataclasses

import pytest

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol import files
from streamsink.protocol.admission import Past, Verdict, admit
from streamsink.protocol.committable import AppState, Batch, Committable, KnownRun
from streamsink.protocol.positions import SourceFile, SourceRange
from streamsink.protocol.same_query import QueryFingerprint

QUERY = QueryFingerprint("s", "p", "", "c", "4.1", True)


def reads(*names, start=None, end=0, name="", time=1, folder="file:///in"):
    """The range of a source that reads these files."""
    read = tuple(SourceFile(f"{folder}/{each}", time) for each in names)
    return SourceRange(start, {"logOffset": end}, "".join(names), name, files=read)


def state(*sources, query="q", checkpoint=0, **changes):
    last = AppState(query, 0, 1, checkpoint, 1, "r", "t", sources or (reads("a"),), journal_id="j", fingerprint=QUERY)
    return dataclasses.replace(last, **changes)


def decide(sources, known=None, *, number=0, query="q2", last=None, earlier=None, stateful=False, combines="", **options):
    batch = Batch(number, query, "r", tuple(sources), fingerprint=QUERY, stateful=stateful, combines=combines)
    recorded = files.KnownFiles(files.entries(known)) if known is not None else None
    past = Past("lake/t", "t", last or state(), lambda query, checkpoint: earlier, lambda run: KnownRun(False), known_files=lambda: recorded)
    return admit(batch, past, SinkOptions.of("lake/t", options))


def refused(kind, *args, **options):
    with pytest.raises(Misuse) as caught:
        decide(*args, **options)
    assert caught.value.kind == kind and "Nothing was written" in str(caught.value), caught.value
    return str(caught.value)


def test_all_known_none_known_and_some_known():
    known = [reads("a", "b")]
    assert decide([reads("b", "a")], known).verdict is Verdict.SEEN
    assert decide([reads("c")], known).verdict is Verdict.NEW
    mixed = decide([reads("a", "c", "b")], known, file_column="f")
    assert (mixed.verdict, mixed.seen_files) == (Verdict.FILTER, {"file:///in/a", "file:///in/b"})
    assert decide([reads("a")], known).replaying and decide([reads("c")], known).replaying and mixed.replaying


def test_rows_that_the_batch_function_has_combined_are_not_filtered_by_their_file():
    """A batch of old files only, or of new ones only, needs no filter."""
    known = [reads("a", "b")]
    message = refused("files.combined", [reads("a", "c")], known, combines="Aggregate", file_column="f")
    assert "Aggregate" in message and "maxFilesPerTrigger=1" in message
    assert decide([reads("b", "a")], known, combines="Aggregate", file_column="f").verdict is Verdict.SEEN
    assert decide([reads("c")], known, combines="Aggregate", file_column="f").verdict is Verdict.NEW


def test_a_batch_that_follows_is_asked_only_in_a_replay():
    """The source's own log does not name a file twice; so nothing is looked up before the first accident."""
    batch = {"number": 1, "query": "q"}
    plain = decide([reads("a", start={"logOffset": 0}, end=1)], None, **batch)
    assert plain.verdict is Verdict.NEW and not plain.replaying
    replaying = state(replaying=True)
    again = decide([reads("a", start={"logOffset": 0}, end=1)], [reads("a")], last=replaying, **batch)
    assert again.verdict is Verdict.SEEN and again.replaying
    refused("batch.in-replay", [reads("b", start={"logOffset": 0}, end=1)], None, last=replaying, **batch)


def test_time_and_spelling():
    """Another time is another file; another number of slashes is not."""
    assert decide([reads("a", time=2)], [reads("a", time=1)]).verdict is Verdict.NEW
    assert decide([reads("a", folder="file:/in")], [reads("a")]).verdict is Verdict.SEEN
    assert decide([reads("a", folder="s3a://b/in")], [reads("a", folder="s3a://b/in")]).verdict is Verdict.SEEN
    refused("files.moved", [reads("a", folder="s3://b/in")], [reads("a", folder="s3a://b/in")])


def test_a_moved_file_among_known_ones_is_new():
    """Names and times may meet by chance: the folder's path is proven by the files that are known under it."""
    decision = decide([reads("a"), reads("b", folder="file:///other", end=1)], [reads("a", "b"), reads("c")], file_column="f")
    assert decision.verdict is Verdict.FILTER


def test_two_sources_over_one_folder():
    """Each makes rows of its own of a file: what one has read, the other may have to read still."""
    known = [reads("a", "b"), reads("a")]
    assert decide([reads("a"), reads("a")], known).verdict is Verdict.SEEN
    assert decide([reads("c"), reads("d")], known, file_column="f").verdict is Verdict.NEW
    message = refused("files.other-source", [reads("a"), reads("b")], known, file_column="f")
    assert "file:///in/b" in message and "accept_as_new=" in message and "accept_as_seen=" in message
    refused("files.other-source", [reads("a", "b"), reads("b")], known, file_column="f")


def test_named_sources_are_known_by_their_names():
    """In whatever order they stand."""
    one, two = reads("a", name="one"), reads("b", name="two")
    assert decide([two, one], [one, two]).verdict is Verdict.SEEN
    refused("files.other-source", [reads("a", name="two"), reads("b", name="one")], [one, two])


def test_sources_that_tell_no_files_and_state_are_asked_for_as_before():
    other = SourceRange(None, {"logOffset": 0}, "")
    refused("checkpoint.replaced", [other], [reads("a")])
    refused("checkpoint.replaced", [reads("a"), other], [reads("a")])
    refused("query.state-lost", [reads("a")], [reads("a")], stateful=True)
    assert decide([reads("a"), reads()], [reads("a")]).verdict is Verdict.SEEN, "a source that has nothing for the batch"
    refused("checkpoint.replaced", [reads()], [reads("a")])


def test_a_batch_whose_earlier_ones_are_not_here_is_not_decided_by_files():
    """Their files may be in no record at all."""
    follows = reads("b", start={"logOffset": 4}, end=5)
    refused("checkpoint.replaced", [follows], [reads("a")], number=5)
    refused("batch.gap", [follows], [reads("a")], number=5, query="q")
    before = state(reads("a", end=4), query="q2", checkpoint=4)
    assert decide([follows], [reads("a")], number=5, earlier=before).verdict is Verdict.NEW
    refused("checkpoint.replaced", [reads("b", start={"logOffset": 3}, end=5)], [reads("a")], number=5, earlier=before)


def test_state_and_record_keep_what_they_must_and_nothing_else():
    """Fields stand in the JSON only when they say something, so that other sources have none of it."""
    plain, full = state(), state(replaying=True, files_from=7)
    assert not {"replaying", "files_from"} & set(plain.to_json())
    assert AppState.from_json(full.to_json()) == full and AppState.from_json(plain.to_json()) == plain
    for read in (None, b"", files.entries([reads("a", "b")])):
        record = Committable(full, "x", None, (), {}, read)
        assert Committable.from_json(record.to_json()) == record
        assert ("source_files" in record.to_json()) == (read is not None)


def test_the_option_is_checked():
    for given in ("", 5, ("f",)):
        with pytest.raises(Misuse, match="file_column"):
            SinkOptions.of("lake/t", {"file_column": given})
    refused("query.stateful-positions", [reads("a")], [reads("a")], stateful=True, file_column="f")
    with pytest.raises(Misuse, match="rest of a batch"):
        SinkOptions.of("lake/t", {"file_column": "f", "mode": "overwrite"})
