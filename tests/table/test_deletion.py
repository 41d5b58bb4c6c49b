"""Files are deleted in few places, each of which knows what may be named. This finds any other place."""

import ast
from pathlib import Path

import pytest

from streamsink.errors import Corrupt
from streamsink.storage.stores import Store
from streamsink.table.commit.changes import Changes
from streamsink.table.history.deletion import Look, delete, delete_staged, try_name
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.memory import MemoryCalls
from tests.table.entries import ROOT, add, commit, new_table, part
from tests.test_tidy import LIBRARY

ROOT_FOLDER = Path(__file__).resolve().parents[2]
_DELETING = {
    "delete",
    "delete_all",
    "delete_empty_folder",
    "delete_tree",
    "delete_unfinished",
    "unlink",
    "rmdir",
    "rmtree",
    "remove",
    "remove_all",
    "remove_tree",
    "removedirs",
}
_OF_ICEBERG = "streamsink/table/iceberg_metadata/folder.py"
# Where methods of these names are called, and why that is right. A new line here needs a reason as good as these.
ALLOWED = {
    "streamsink/table/history/deletion.py": "the one way for files of a table: it looks at what is retained",
    "streamsink/table/care/removal.py": "what a durable list names, and nothing that is retained at that moment",
    "streamsink/table/care/empty_folders.py": "folders in which nothing is, which the store makes sure of",
    "streamsink/table/care/expire_consumers.py": "files of consumers, which name no other file",
    "streamsink/table/care/orphan_files.py": "what nothing retained and no journal names, and is old enough",
    "streamsink/table/care/tags.py": "tags of this very call, of what has expired, or not needed",
    _OF_ICEBERG: "Iceberg's metadata alone, which no snapshot of the table names",
    # The stores themselves: they delete what was asked for, and temporary files of the very call that made them.
    "streamsink/storage/calls.py": "the calls themselves, and a file whose first write failed",
    "streamsink/storage/hdfs.py": "the calls themselves, and the temporary file of a creation that lost",
    "streamsink/storage/s3_calls.py": "the calls themselves, and a part of an object of this try's own",
    "streamsink/storage/s3.py": "a folder that is asked for, and a probe",
    "streamsink/storage/file_io.py": "the contract itself, and the temporary file of the call that made it",
    "streamsink/locks/locked_file_io.py": "hands the calls on",
    "streamsink/commands/branches.py:delete_branch": "a branch and the tag that kept it, on purpose only",
    "streamsink/operations/report/written.py:write": "the temporary file of the page that this very call writes",
    # Sinks that keep files of their own.
    "streamsink/sinks/file_writing.py:abort": "the file of this very writer, which no record names",
    "streamsink/sinks/manifest_log.py:sweep": "temporary files of tries whose record is published",
    "streamsink/commands/sinks_retired.py:retire_of_sink": "a whole journal, whose application is retired on purpose",
    "streamsink/sinks/manifest_log.py:forget": "notes of an application that is retired, on purpose only",
    "streamsink/metrics/exporting.py:_write": "the temporary file of metrics that could not be written",
    "streamsink/metrics/exporting.py:_release": "the lock file beside the file of metrics, which this driver has",
    "streamsink/spark/jvm_metrics.py:_hand_over": "no file: a gauge in the registry of the JVM",
    # Compaction, whose new files nothing names before its commit.
    "streamsink/compaction/attempts.py:_delete": "announcements and notes of attempts of which nothing is left",
    "streamsink/compaction/attempts.py:_delete_temporary": "what creations of these have left that died long ago",
    "streamsink/compaction/attempts.py:_delete_left": "uploads of an attempt that cannot be committed any more",
    # The journal, which Paimon's snapshots never name.
    "streamsink/journal/owners.py:_prune": "owners before the last two, and their holds",
    "streamsink/journal/file_journal.py:forget": (
        "published records beyond those that are retained, and then their marks"
    ),
    "streamsink/journal/file_journal.py:sweep": "what Staging found to be of nobody, and temporary files",
    "streamsink/journal/repair.py:give_up": "records that can never be published, on purpose only",
    "streamsink/journal/run_marks.py:forget": "marks of bounded runs that are given up, on purpose only",
    "streamsink/journal/known_files.py:_drop": "digests that stand in the next larger segment already",
    "streamsink/journal/repair.py:remove_damaged": "damaged owners and identities, which hold no data, on purpose only",
    "streamsink/journal/repair.py:remove": "a retired application's journal, on purpose only",
    "streamsink/journal/announced.py:sweep": "uploads of an attempt without a record, which nobody will finish",
    "streamsink/journal/staging.py:discard": "the staging folder of a checkpoint of its own that has no record",
    "streamsink/journal/staging.py:end_unfinished": "what dead writers never finished",
    "streamsink/journal/staging.py:_delete_known": "as _delete, of folders that were listed as a whole",
    "streamsink/journal/staging.py:withdraw": "this writer's announcement, for a number that it has never begun",
    "streamsink/journal/staging.py:drop": "this writer's announcement, whose number is published",
    "streamsink/journal/staging.py:_delete": "folders that no record names, or whose number is published or taken",
    "streamsink/sinks/databases/postgresql.py:delete": "hands such rows on to a statement",
    "streamsink/sinks/databases/staging.py:move": "the same",
    "streamsink/sinks/databases/changes.py:apply": "rows of a database by their key, which the user's rows say",
    "streamsink/sinks/directory/file_formats.py:abort": "this writer's own staged files",
    "streamsink/sinks/directory/file_sink.py:give_up": "files of a record that is given up, on purpose only",
    "streamsink/sinks/directory/file_sink.py:_end": "files of a published number that its manifest does not name",
    "streamsink/sinks/manifest_log.py:create": "the oldest manifest beyond those that are kept",
    "streamsink/sinks/delta/states.py:keep_last": "states of records before those that are kept",
    "streamsink/sinks/delta/states.py:prune": "the same, of earlier starts, and temporary files of tries that died",
    "streamsink/sinks/iceberg/file_io.py:create": "a file of this very commit, whose name has its id",
    "streamsink/sinks/iceberg/file_io.py:delete": "the calls of pyiceberg, handed on",
    "streamsink/sinks/iceberg/exchange.py:exchange": "metadata of this very commit, which the catalog has refused",
    "streamsink/sinks/lake_tables/attempts.py:sweep": "files of an attempt that no record and no snapshot can name",
    "streamsink/sinks/lake_tables/writing.py:abort": "this writer's own data files",
    "streamsink/sinks/transactions/staged_rows.py:drop": "this writer's own staged rows",
    "streamsink/sinks/transactions/staged_rows.py:recover_and_abort": "staged rows that are in no record",
    "streamsink/spark/query/ended.py:_watch": "an entry of a list in memory",
    "streamsink/commands/retire.py:retire": "a retired application's journal, on purpose only",
    "streamsink/commands/retire.py:_of_several_tables": "the same, of an application of several tables",
    "streamsink/operations/discarding.py:discard": "what an operator names, which is damaged or which nobody needs",
    "streamsink/operations/restoring.py:restore": "a damaged file, right before its whole copy takes its name",
    "streamsink/operations/checkpoints.py:rewind": "what a checkpoint of Spark's says of batches, on purpose only",
    "streamsink/cli/demo.py:bench": "the folder that this very call has made, with a name of its own",
    "streamsink/testing/crashing.py": "hands the calls on",
    "streamsink/testing/conformance.py:identity": "a destination in memory, whose drop is what is tried",
}


def _callers(tree: ast.AST, function: str = ""):
    """Yield (innermost function, line) of each place where such a method is called or passed on."""
    for node in ast.iter_child_nodes(tree):
        inside = node.name if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else function
        if isinstance(node, ast.Attribute) and node.attr in _DELETING:
            yield inside, node.lineno
        yield from _callers(node, inside)


def test_nobody_deletes_files_but_those_who_know_what_is_named():
    """A caller that is not listed is a new way to delete what a snapshot names:
    let it go through table/history/deletion.py."""
    found = {}
    for path in LIBRARY:
        name = str(path.relative_to(ROOT_FOLDER))
        for function, line in _callers(ast.parse(path.read_text())):
            found.setdefault(name if name in ALLOWED else f"{name}:{function}", []).append(line)
    assert {place: lines for place, lines in found.items() if place not in ALLOWED} == {}
    assert set(ALLOWED) <= set(found), "listed, and deletes nothing any more"
    assert not any(
        place.startswith("streamsink/table/")
        for place in ALLOWED
        if not place.startswith(("streamsink/table/history/deletion.py", "streamsink/table/care/", _OF_ICEBERG))
    )


@pytest.fixture
def table():
    """Three snapshots, whose commits never merge manifests."""
    made = new_table(CrashingCalls(MemoryCalls()), options={"manifest.merge-min-count": "1000"})
    for name in ("a", "b", "c"):
        commit(made, Changes((add(name, part("x")),)))
    return made


def _files(table):
    return [table.layout.manifest(name) for name in table.file_io.names(table.layout.manifest_dir)]


@pytest.mark.parametrize("look", Look)
def test_of_all_files_of_a_table_nothing_goes(table, look):
    """Deletion is asked for all of them: each is named, or is not of the kind that an attempt to commit makes."""
    data = f"{ROOT}/bucket-0/data-x.parquet"
    checkpoint_s = table.layout.manifest("manifest-8d9f-0")
    for path in (data, checkpoint_s):
        table.file_io.make_dir(path.rpartition("/")[0])
        table.file_io.write(path, b"x")
    paths = [*_files(table), data, table.layout.snapshot(3), table.layout.latest_hint, table.layout.schema(0)]
    assert delete(table, paths, look) == []
    assert all(table.file_io.exists(path) for path in paths)


@pytest.mark.parametrize("look", Look)
def test_what_nothing_names_goes(table, look):
    """Lists and manifests of an attempt, and hidden temporary files, are deleted durably."""
    paths = [
        table.layout.manifest(f"{kind}-{try_name('mine', 4, 1)}{end}")
        for kind, end in (
            ("manifest-list", "-0"),
            ("manifest-list", "-1"),
            ("manifest", "-d"),
            ("manifest", "-m0"),
            ("index-manifest", ""),
        )
    ] + [f"{table.layout.snapshot_dir}/.snapshot-4.{try_name('mine', 4, 1)}.tmp"]
    before = _files(table)
    for path in paths:
        table.file_io.write(path, b"x")
    assert delete(table, paths, look) == paths
    table.file_io._calls._inner.power_failure()
    assert _files(table) == before and not table.file_io.exists(paths[-1])


def test_snapshots_before_a_try_are_not_looked_at(table):
    """The file's name says for which snapshot number it was made:
    a sweep costs what came since, however many snapshots are retained."""
    calls, asked = table.file_io._calls, {}
    for number in (4, 3, 1):
        path = table.layout.manifest(f"manifest-{try_name('mine', number, 1)}-m0")
        table.file_io.write(path, b"x")
        before = calls.by_name["read"]
        assert delete(table, [path], Look.ALL) == [path]
        asked[number] = calls.by_name["read"] - before
    assert asked == {4: 0, 3: 3, 1: 9}, "a snapshot and its two lists"


def test_a_name_of_an_earlier_version_is_looked_for_everywhere(table):
    """Such a name does not say its number."""
    named = table.layout.manifest("manifest-list-mine-1-0")
    first = table.snapshots.load(1)
    table.file_io.write(named, table.file_io.read(table.layout.manifest(first.base_manifest_list)))
    table.file_io.replace(
        table.layout.snapshot(1),
        first.to_json().replace(first.base_manifest_list.encode(), b"manifest-list-mine-1-0"),
        "x",
    )
    assert delete(table, [named], Look.ALL) == []


def test_a_damaged_list_keeps_what_it_may_name(table):
    """Nobody knows which names are in it."""
    calls = table.file_io._calls._inner
    calls._names[table.layout.manifest(table.snapshots.load(3).delta_manifest_list)].data = b"Obj"
    with pytest.raises(Corrupt):
        table.manifests.delta_of(table.snapshots.load(3))
    path = table.layout.manifest(f"manifest-{try_name('mine', 2, 1)}-m0")
    table.file_io.write(path, b"x")
    assert delete(table, [path], Look.ALL) == [] and table.file_io.exists(path)


def test_a_store_that_refuses_does_not_hide_what_has_ended_the_writing(monkeypatch, caplog):
    """A task has no keys for S3: it can neither write nor remove what it has begun, and says the first."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    store = Store("s3://bucket/t", {"s3.endpoint": "http://127.0.0.1:9", "s3.region": "eu-central-1"})
    delete_staged(store.open(), ["s3://bucket/t/bucket-0/data-1.parquet"])
    assert "could not be deleted" in caplog.text and "credentials" in caplog.text
