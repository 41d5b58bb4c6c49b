"""Publishing that gives no answer at all:
the next attempt finds out, and nothing is deleted that a snapshot may refer to."""

import dataclasses
import errno

import pytest

from streamsink.clock import IdSource
from streamsink.errors import OutcomeUnknown
from streamsink.faults import arm
from streamsink.format.manifest import write_manifest
from streamsink.format.manifest_list import ManifestFileMeta, write_manifest_list
from streamsink.storage.file_io import FileIO
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.delta import CommitRequest
from streamsink.table.commit.overwrite import Overwrite
from streamsink.table.commit.table_commit import TableCommit
from streamsink.table.commit.tries import Guard
from streamsink.table.table import open_table
from streamsink.testing.memory import MemoryCalls
from tests.table.entries import OPTIONS, ROOT, TEXT, Says, add, commit, live, new_table, part


class Silent(FileIO):
    """Creates the first ``silent`` snapshots, or does not, and never says;
    ``meanwhile`` happens before the silence ends."""

    lands = True
    silent = 1

    def meanwhile(self):
        """What others do."""

    def create_if_absent(self, path, data, unique="", **prepared):
        if "/snapshot-" not in path or not self.silent:
            return super().create_if_absent(path, data, unique, **prepared)
        self.silent -= 1
        if self.lands:
            super().create_if_absent(path, data, unique, **prepared)
        self.meanwhile()
        raise OutcomeUnknown("no answer", kind="publish.unknown")


def _silent(calls, **settings):
    io = Silent(calls, IdSource().new_id)
    for name, value in settings.items():
        setattr(io, name, value)
    return open_table(io, ROOT, for_writing=True)


def _commit(table, kind, **more):
    request = CommitRequest(
        "me",
        7,
        Changes((add("new", part("x")),)),
        "mine",
        kind,
        overwrite=Overwrite(dynamic=True) if kind == "OVERWRITE" else None,
        **more,
    )
    return TableCommit(table, OPTIONS).commit(request, Guard())


@pytest.mark.parametrize("kind, after", [("APPEND", ["new", "old"]), ("OVERWRITE", ["new"])])
@pytest.mark.parametrize("others", [False, True], ids=["alone", "others-went-on"])
@pytest.mark.parametrize("lands", [True, False], ids=["landed", "not-landed"])
def test_no_answer_is_settled_by_looking(kind, after, lands, others):
    """There is one snapshot of ours, whole, whether the attempt succeeded or not,
    and whether others built on it or took its number."""
    calls = MemoryCalls()
    table = new_table(calls)
    commit(table, Changes((add("old", part("x")),)))
    meanwhile = (lambda: commit(table, Changes((add("other", part("y")),)), user="other")) if others else (lambda: None)
    done = _commit(_silent(calls, lands=lands, meanwhile=meanwhile), kind)
    assert live(table) == sorted(after + ["other"] * others)
    mine = [n for n in table.snapshots.ids() if table.snapshots.load(n).commit_user == "me"]
    assert mine == [done.snapshot_id] and table.snapshots.load(mine[0]).commit_kind == kind


@pytest.mark.parametrize("silent, kept", [(1, True), (0, False)], ids=["no-answer", "not-tried"])
def test_a_list_made_ahead_stays_where_a_try_without_an_answer_may_have_used_it(silent, kept):
    """The snapshot was created, others built on it, and it has expired, as a snapshot with a tag may: it is found
    published, and nothing of it is deleted."""
    calls = MemoryCalls()
    table = new_table(calls)
    data = write_manifest([add("new", part("x"))])
    meta = ManifestFileMeta.of("manifest-ahead", len(data), [add("new", part("x"))], TEXT)
    lists = write_manifest_list([meta])
    for name, content in (("manifest-ahead", data), ("manifest-list-ahead", lists)):
        table.file_io.write(table.layout.manifest(name), content)

    def others_go_on():
        assert table.snapshots.load(1).delta_manifest_list == "manifest-list-ahead"
        commit(table, Changes((add("other", part("y")),)), user="other")
        calls.unlink(table.layout.snapshot(1))

    if not silent:
        commit(table, Changes((add("other", part("y")),)), user="other")
    request = CommitRequest(
        "me",
        7,
        Changes((add("new", part("x")),)),
        "mine",
        manifests=(meta,),
        delta_list=("manifest-list-ahead", len(lists)),
    )
    done = TableCommit(_silent(calls, silent=silent, meanwhile=others_go_on), OPTIONS).commit(
        request, Says(lambda: table.snapshots.latest() is not None)
    )
    assert done.snapshot.commit_user == "other"
    assert ("manifest-list-ahead" in table.file_io.names(table.layout.manifest_dir)) is kept


def test_what_others_have_built_on_stays_although_the_snapshot_was_replaced():
    """The snapshot was created, another writer built on it, and a rename replaced it: the merged manifest that the
    other writer's snapshot names stays."""
    calls = MemoryCalls()
    table = new_table(calls, options={"manifest.merge-min-count": "3"})
    for name in ("a", "b", "c"):
        commit(table, Changes((add(name, part("x")),)))
    before = table.snapshots.latest()

    def built_on_and_replaced():
        commit(table, Changes((add("other", part("y")),)), user="other")
        replacing = dataclasses.replace(before, id=4, uuid="of-another", commit_user="foreign")
        table.file_io.replace(table.layout.snapshot(4), replacing.to_json(), "x")

    request = CommitRequest("me", 7, Changes((add("new", part("x")),)), "mine")
    TableCommit(_silent(calls, meanwhile=built_on_and_replaced), OPTIONS).commit(
        request, Says(lambda: table.snapshots.latest().id == 5)
    )
    assert table.snapshots.load(4).commit_user == "foreign"
    assert live(table) == ["a", "b", "c", "new", "other"]
    names = table.file_io.names(table.layout.manifest_dir)
    assert any(name.startswith("manifest-mine-") for name in names)
    assert not any(name.startswith("manifest-list-mine-") for name in names), "its lists nobody names"


class _SyncFails(MemoryCalls):
    """Fails the first ``failing`` times that the snapshots' folder is to be synced."""

    failing = 0

    def sync_dir(self, path):
        if path.endswith("/snapshot") and self.failing:
            self.failing -= 1
            raise OSError(errno.EIO, "not synced", path)
        super().sync_dir(path)


@pytest.mark.parametrize("failing", [1, 2])
def test_a_commit_whose_name_was_not_made_durable_at_first_is_durable_when_it_returns(failing):
    """The name is given and its sync fails, once or twice, so that there is no answer.
    A power failure after the commit takes nothing back."""
    calls = _SyncFails()
    table = new_table(calls)
    commit(table, Changes((add("old", part("x")),)))
    calls.failing = failing
    done = _commit(_silent(calls, silent=0), "APPEND")
    assert calls.failing == 0
    calls.power_failure()
    assert open_table(FileIO(calls, IdSource().new_id), ROOT, for_writing=True).snapshots.ids() == [1, done.snapshot_id]


def test_never_an_answer_is_an_unknown_outcome():
    """After the last attempt the error says that the outcome is unknown,
    and every list of every attempt is still there."""
    calls = MemoryCalls()
    commit(new_table(calls), Changes((add("old", part("x")),)))
    with pytest.raises(OutcomeUnknown):
        _commit(_silent(calls, lands=False, silent=99), "APPEND")
    names = [name for name, *_ in calls.entries(f"{ROOT}/manifest")]
    assert sum(name.startswith("manifest-list-mine-") and name.endswith("-0") for name in names) == 4


def test_what_an_overwrite_deletes_is_worked_out_in_each_try():
    """Rows that another writer published between two attempts are replaced too."""
    table = new_table(MemoryCalls())
    commit(table, Changes((add("old", part("x")),)))

    def others_win(step):
        if step == "commit.before_publish":
            arm(None)
            commit(table, Changes((add("late", part("x")), add("other", part("y")))), user="other")

    arm(others_win)
    try:
        done = _commit(table, "OVERWRITE")
    finally:
        arm(None)
    assert done.attempts == 2 and live(table) == ["new", "other"]


def _built_on_and_replaced(table, then=lambda: None):
    """Another writer builds snapshot 3 on our snapshot 2, ``then`` happens, and a rename replaces ours;
    neither of the others knows of any state."""
    replacing = dataclasses.replace(table.snapshots.load(1), id=2, uuid="of-another", commit_user="foreign")

    def meanwhile():
        commit(table, Changes((add("other", part("y")),)), user="other")
        then()
        table.file_io.replace(table.layout.snapshot(2), replacing.to_json(), "x")

    return meanwhile


@pytest.mark.parametrize("kind, after", [("APPEND", ["new", "old", "other"]), ("OVERWRITE", ["new", "other"])])
def test_files_that_others_have_built_on_are_not_added_again(kind, after):
    """The snapshot was created, another writer built on it, and a rename replaced it:
    the next attempt publishes the state, and no file."""
    calls = MemoryCalls()
    table = new_table(calls)
    commit(table, Changes((add("old", part("x")),)))
    done = _commit(
        _silent(calls, meanwhile=_built_on_and_replaced(table)), kind, application="mine", state={"sequence": 1}
    )
    assert live(table) == after and done.snapshot_id == 4 and done.snapshot.delta_record_count == 0
    assert table.states.read(table.snapshots.latest()).by_application == {"mine": {"sequence": 1}}
    assert table.snapshots.latest().total_record_count == len(after)


@pytest.mark.parametrize("kind", ["APPEND", "COMPACT"])
def test_nor_are_those_that_others_have_rewritten_since(kind):
    """A snapshot rewrote them on which the newest one is built."""
    calls = MemoryCalls()
    table = new_table(calls)
    commit(table, Changes((add("old", part("x")),)))

    def rewrite():
        commit(
            table,
            Changes((add("new", part("x")).deleting, add("rewritten", part("x")))),
            user="compactor",
            kind="COMPACT",
        )

    _commit(_silent(calls, meanwhile=_built_on_and_replaced(table, rewrite)), kind)
    assert live(table) == ["old", "other", "rewritten"] and table.snapshots.latest().total_record_count == 3


@pytest.mark.parametrize("hide", ["not-built-on", "expired"])
def test_where_that_cannot_be_told_nothing_is_published(hide):
    """A later snapshot names our files and the newest one does not, or a later one is gone that might have named them:
    the restart decides."""
    calls = MemoryCalls()
    table = new_table(calls)
    commit(table, Changes((add("old", part("x")),)))
    before = table.snapshots.latest()

    def go_on():
        rewritten = Changes((add("new", part("x")).deleting, add("rewritten", part("x"))))
        commit(table, rewritten, user="compactor", kind="COMPACT")
        other = dataclasses.replace(before, id=5, uuid="other", commit_user="other")
        table.file_io.replace(table.layout.snapshot(5), other.to_json(), "x")
        if hide == "expired":
            calls.unlink(table.layout.snapshot(3))
            calls.unlink(table.layout.snapshot(4))

    with pytest.raises(OutcomeUnknown):
        _commit(_silent(calls, meanwhile=_built_on_and_replaced(table, go_on)), "APPEND")
    assert table.snapshots.latest().id == 5
