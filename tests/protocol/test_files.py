"""Files as positions: a file is its path with its time of modification, read by one source of the query."""

import base64
import dataclasses
import re

import pytest

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol import recorded_files
from streamsink.protocol.admission import files
from streamsink.protocol.admission.admit import Past, admit
from streamsink.protocol.committable import AppState, Batch, Committable, KnownRun
from streamsink.protocol.decision import Verdict
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


def decide(
    sources,
    known=None,
    *,
    number=0,
    query="q2",
    last=None,
    earlier=None,
    stateful=False,
    combines="",
    hides="",
    **options,
):
    batch = Batch(
        number, query, "r", tuple(sources), fingerprint=QUERY, stateful=stateful, combines=combines, may_combine=hides
    )
    recorded = recorded_files.KnownFiles(recorded_files.entries(known)) if known is not None else None
    past = Past(
        "lake/t",
        "t",
        last or state(),
        lambda query, checkpoint: earlier,
        lambda run: KnownRun(False),
        known_files=lambda: recorded,
    )
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
    """A batch of old files only, or of new files only, needs no filter."""
    known = [reads("a", "b")]
    message = refused("files.combined", [reads("a", "c")], known, combines="Aggregate", file_column="f")
    assert "Aggregate" in message and "maxFilesPerTrigger=1" in message
    assert decide([reads("b", "a")], known, combines="Aggregate", file_column="f").verdict is Verdict.SEEN
    assert decide([reads("c")], known, combines="Aggregate", file_column="f").verdict is Verdict.NEW


def test_rows_that_may_have_been_combined_are_asked_for_before_they_are_filtered_by_their_file():
    """The question comes where old and new files meet. Its word holds in later batches of the replay as well; the token
    that names the query is no answer to it."""
    known, given = [reads("a", "b")], {"hides": "MapInPandas", "file_column": "f"}
    message = refused("files.may-combine", [reads("a", "c")], known, **given)
    assert "MapInPandas" in message and "maxFilesPerTrigger=1" in message
    word, token = (re.search(rf"{option}='(\w+)'", message)[1] for option in ("accept_as_same", "accept_as_new"))
    refused("files.may-combine", [reads("a", "c")], known, **given, accept_as_same=token)
    assert decide([reads("a", "c")], known, **given, accept_as_same=word).verdict is Verdict.FILTER
    later = state(reads("c", start={"logOffset": 0}, end=1), query="q2", checkpoint=1, replaying=True, record_id="r9")
    after = [reads("b", "d", start={"logOffset": 1}, end=2)]
    assert decide(after, known, number=2, last=later, **given, accept_as_same=word).verdict is Verdict.FILTER
    assert decide([reads("b", "a")], known, **given).verdict is Verdict.SEEN
    assert decide([reads("c")], known, **given).verdict is Verdict.NEW
    refused("files.overlap", [reads("a", "c")], known, hides="MapInPandas")
    refused("files.combined", [reads("a", "c")], known, combines="Aggregate", **given, accept_as_same=word)


def test_a_batch_that_follows_is_asked_only_in_a_replay():
    """The source's own log does not name a file twice, so nothing is looked up before the first accident."""
    batch = {"number": 1, "query": "q"}
    plain = decide([reads("a", start={"logOffset": 0}, end=1)], None, **batch)
    assert plain.verdict is Verdict.NEW and not plain.replaying
    replaying = state(replaying=True)
    again = decide([reads("a", start={"logOffset": 0}, end=1)], [reads("a")], last=replaying, **batch)
    assert again.verdict is Verdict.SEEN and again.replaying
    refused("batch.in-replay", [reads("b", start={"logOffset": 0}, end=1)], None, last=replaying, **batch)


def test_time_and_spelling():
    """Another number of slashes does not make another file."""
    assert decide([reads("a", folder="file:/in")], [reads("a")]).verdict is Verdict.SEEN
    assert decide([reads("a", folder="s3a://b/in")], [reads("a", folder="s3a://b/in")]).verdict is Verdict.SEEN
    refused("files.moved", [reads("a", folder="s3://b/in")], [reads("a", folder="s3a://b/in")])


def _word(message):
    return re.search(r"accept_as_seen='(\w+)'", message)[1]


def test_a_recorded_path_with_another_time_is_asked_for():
    """The file was restored without its time, or was written again.
    Nothing tells which, and only in the first case its rows are here."""
    known = [reads("a", "b")]
    for batch in (
        [reads("a", time=2)],
        [reads("a"), reads("b", time=2)],
        [reads("c"), reads("b", time=2)],
        [reads("a", folder="file:/in", time=2)],
    ):
        message = refused("files.other-times", batch, known, file_column="f")
        assert "file:///in/" in message and " 1 of " in message
        word = _word(message)
        assert word != re.search(r"accept_as_new='(\w+)'", refused("files.overlap", [reads("a", "c")], known))[1], (
            "that one is for the whole batch"
        )
        decisions = [
            decide(batch, known, file_column="f", **{way: f"other {word}"})
            for way in ("accept_as_seen", "accept_as_new")
        ]
        assert all(decision.replaying and not decision.forgets_files for decision in decisions)
    both = [reads("a", "c"), reads("b", time=2)]
    refused("files.other-times", both, [reads("a"), reads("b")], accept_as_seen=word)
    word = _word(refused("files.other-times", both, [reads("a"), reads("b")]))
    seen, new = (
        decide(both, [reads("a"), reads("b")], file_column="f", **{way: word})
        for way in ("accept_as_seen", "accept_as_new")
    )
    assert seen.verdict is new.verdict is Verdict.FILTER
    assert (seen.seen_files, new.seen_files) == ({"file:///in/a", "file:///in/b"}, {"file:///in/a"})


def test_all_recorded_paths_with_other_times():
    """This is what ``cp -r`` leaves. The answer holds for this batch, and the next one is asked about as well."""
    known, batch = [reads("a", "b", "c")], [reads("a", "b", time=2)]
    word = _word(refused("files.other-times", batch, known))
    assert (
        decide(batch, known, accept_as_seen=word).verdict is Verdict.SEEN
        and decide(batch, known, accept_as_new=word).verdict is Verdict.NEW
    )
    replaying = state(replaying=True, query="q2")
    following = {"number": 1, "last": replaying, "accept_as_seen": word}
    refused("files.other-times", [reads("c", start={"logOffset": 0}, end=1, time=2)], known, **following)


def test_a_path_of_a_folder_that_was_moved_and_restored_is_asked_for_first():
    """Its name and time are those of a file elsewhere, and its path is recorded with another time."""
    known = [reads("a", time=1), reads("a", time=2, folder="file:///old")]
    refused("files.other-times", [reads("a", time=2), reads()], known)


def test_entries_of_earlier_code_do_not_know_a_path_alone():
    """They know everything else as they did."""
    entries = recorded_files.entries([reads("a", "b")])
    record = Committable(state(), "x", None, (), {}, entries)
    value = record.to_json()
    value["source_files"] = base64.b64encode(b"".join(entries[at : at + 20] for at in (0, 28))).decode()
    del value["read_files"]
    known = recorded_files.KnownFiles(Committable.from_json(value).source_files)
    single, two = (
        [[reads(*names, time=time)] for names, time in ((("a", "b"), 1), (("a",), 2))],
        [reads("a"), reads("a")],
    )
    assert files.sort_out(single[0], known).seen and files.sort_out(single[1], known).new and len(known) == 2
    assert files.sort_out(two, known).unclear


def _words(message):
    return {option: re.search(rf"{option}='([\w ]+)'", message)[1] for option in ("accept_as_seen", "accept_as_new")}


def test_moved_files_beside_known_ones_are_asked_for():
    """A part of the folder was moved.
    Formerly its files were written as new, so that rows which are here came a second time."""
    known = [reads("a", "b"), reads("c")]
    batch = [reads("a"), reads("b", folder="file:///other", end=1)]
    message = refused("files.moved", batch, known, file_column="f")
    assert "1 of 2 files" in message and "file:///other/b" in message and "file:///in/a" not in message
    seen, new = (decide(batch, known, file_column="f", **{way: word}) for way, word in _words(message).items())
    assert (seen.verdict, new.verdict, new.seen_files) == (Verdict.SEEN, Verdict.FILTER, {"file:///in/a"})
    assert seen.replaying and new.replaying and not new.forgets_files


def test_new_files_beside_moved_ones_are_written():
    """The answer says what the moved files are, and nothing of the others. Formerly ``accept_as_seen`` was for the
    whole batch, and lost the new ones."""
    known, batch = [reads("a", "b")], [reads("d"), reads("b", folder="file:///other", end=1)]
    seen, new = (
        decide(batch, known, file_column="f", **{way: word})
        for way, word in _words(refused("files.moved", batch, known)).items()
    )
    assert (seen.verdict, seen.seen_files) == (Verdict.FILTER, {"file:///other/b"}) and new.verdict is Verdict.NEW


def test_what_is_said_of_moved_files_is_said_of_these_alone():
    """The answer is for no other batch, and for no further files in this one."""
    known, moved = [reads("a", "b", "c")], reads("b", folder="file:///other", end=1)
    words = _words(refused("files.moved", [reads("a"), moved], known))
    for way, word in words.items():
        refused("files.moved", [reads("a"), reads("b", "c", folder="file:///other", end=1)], known, **{way: word})
        refused("files.moved", [reads("a"), reads("c", folder="file:///other", end=1)], known, **{way: word})
        refused("files.moved", [reads("a"), moved], known, last=state(record_id="r9"), **{way: word})


@pytest.mark.parametrize(
    "first, second", [(a, b) for a in ("accept_as_seen", "accept_as_new") for b in ("accept_as_seen", "accept_as_new")]
)
def test_one_batch_may_have_to_be_asked_for_both(first, second):
    """It has moved files, and others without their times.
    The second error repeats what was answered, where it names the same option."""
    known = [reads("a", "b")]
    batch = [reads("a", time=2), reads("b", folder="file:///other", end=1)]
    given = {first: _words(refused("files.other-times", batch, known))[first]}
    given |= {second: _words(refused("files.moved", batch, known, **given))[second]}
    decision = decide(batch, known, file_column="f", **given)
    seen = {path for way, path in ((first, "file:///in/a"), (second, "file:///other/b")) if way == "accept_as_seen"}
    assert (decision.verdict, decision.seen_files) == {
        0: (Verdict.NEW, frozenset()),
        1: (Verdict.FILTER, frozenset(seen)),
        2: (Verdict.SEEN, frozenset()),
    }[len(seen)]


def test_two_sources_over_one_folder():
    """Each source makes rows of its own of a file: what one has read, the other may still have to read."""
    known = [reads("a", "b"), reads("a")]
    assert decide([reads("a"), reads("a")], known).verdict is Verdict.SEEN
    assert decide([reads("c"), reads("d")], known, file_column="f").verdict is Verdict.NEW
    message = refused("files.other-source", [reads("a"), reads("b")], known, file_column="f")
    assert "file:///in/b" in message and "accept_as_new=" in message and "accept_as_seen=" in message
    refused("files.other-source", [reads("a", "b"), reads("b")], known, file_column="f")


def test_named_sources_are_known_by_their_names():
    """They may stand in any order."""
    one, two = reads("a", name="one"), reads("b", name="two")
    assert decide([two, one], [one, two]).verdict is Verdict.SEEN
    refused("files.other-source", [reads("a", name="two"), reads("b", name="one")], [one, two])


def test_sources_that_tell_no_files_and_state_are_asked_for_as_before():
    other = SourceRange(None, {"logOffset": 0}, "")
    refused("checkpoint.replaced", [other], [reads("a")])
    refused("checkpoint.replaced", [reads("a"), other], [reads("a")])
    refused("query.state-lost", [reads("a")], [reads("a")], stateful=True)
    assert decide([reads("a"), reads()], [reads("a")]).verdict is Verdict.SEEN, (
        "a source that has nothing for the batch"
    )
    refused("checkpoint.replaced", [reads()], [reads("a")])


def test_a_batch_whose_earlier_ones_are_not_here_is_not_decided_by_files():
    """The files of the earlier batches may be in no record at all."""
    follows = reads("b", start={"logOffset": 4}, end=5)
    refused("checkpoint.replaced", [follows], [reads("a")], number=5)
    refused("batch.gap", [follows], [reads("a")], number=5, query="q")
    before = state(reads("a", end=4), query="q2", checkpoint=4)
    assert decide([follows], [reads("a")], number=5, earlier=before).verdict is Verdict.NEW
    refused("checkpoint.replaced", [reads("b", start={"logOffset": 3}, end=5)], [reads("a")], number=5, earlier=before)


def test_state_and_record_keep_what_they_must_and_nothing_else():
    """Fields stand in the JSON only when they say something, so that other sources have none of them."""
    plain, full = state(), state(replaying=True, files_from=7)
    assert not {"replaying", "files_from"} & set(plain.to_json())
    assert AppState.from_json(full.to_json()) == full and AppState.from_json(plain.to_json()) == plain
    for read in (None, b"", recorded_files.entries([reads("a", "b")])):
        record = Committable(full, "x", None, (), {}, read)
        assert Committable.from_json(record.to_json()) == record
        assert ("read_files" in record.to_json()) == (read is not None)


def test_the_option_is_checked():
    for given in ("", 5, ("f",)):
        with pytest.raises(Misuse, match="file_column"):
            SinkOptions.of("lake/t", {"file_column": given})
    refused("query.stateful-positions", [reads("a")], [reads("a")], stateful=True, file_column="f")
    with pytest.raises(Misuse, match="rest of a batch"):
        SinkOptions.of("lake/t", {"file_column": "f", "mode": "overwrite"})
