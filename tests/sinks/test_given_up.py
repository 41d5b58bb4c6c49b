"""``streamsink.give_up`` with a sink, and what a directory of files says of what it does not know."""

import json
import threading
from dataclasses import dataclass, field

import pytest

import streamsink
from streamsink.clock import IdSource
from streamsink.commands.sinks_given_up import give_up_of_sink
from streamsink.errors import Misuse, Retryable
from streamsink.options import SinkOptions
from streamsink.sink import FileSink, to_sink
from streamsink.storage.file_io import FileIO
from streamsink.testing.conformance import SCHEMA
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.memory import MemoryCalls
from tests.advice.following import follows, told
from tests.sinks.lake import rows
from tests.sinks.test_file_sink import World, rows_of
from tests.sinks.transactions import Remembering, Server, remembered
from tests.sinks.transactions import World as OfTransactions

JOURNAL = "/out/_streamsink/streamsink/streamsink"


def given_up(world, said):
    """What the command says, called as the message has it."""
    name = said.find(r"streamsink\.give_up\(sink, application='(\w+)'\), with the sink that to_sink was given")
    return give_up_of_sink(world.io(), world.sink, SinkOptions.of(world.sink.path, {"application": name}))


def damage(io, path):
    io.delete(path)
    io.create_if_absent(path, b"damaged")


@follows("journal.corrupt")
def test_a_damaged_record_of_a_directory_is_given_up():
    """Its files may have their names already: who lists the directory must not see them beside those to come."""
    world = World()
    world.run(3, 5)
    world.checkpoint.committed = 1
    for name in ("_commits/streamsink/0000000002.json", "_streamsink/streamsink/streamsink/done-2"):
        world.io().delete(f"/out/{name}")  # as if it had died just before
    damage(world.io(), f"{JOURNAL}/record-2.json")
    said = told("journal.corrupt", lambda: world.run(3, 5)).says("Nothing was written")
    done = given_up(world, said)
    assert done.records == (2,) and world.io().names("/out/checkpoint=streamsink-0000000002") == []
    assert "Restart the query with its checkpoint" in str(done)
    world.run(3, 5, 6)
    assert sorted(rows_of(world.io(), "/out")) == list(range(6))


@follows("table.rolled-back")
def test_what_a_directory_has_lost_is_read_again_from_where_the_next_error_says():
    """Spark has gone past it, so a new checkpoint begins where the message has the offsets themselves."""
    world = World()
    world.run(3, 5)
    world.io().delete_tree("/out/checkpoint=streamsink-0000000002")
    world.io().delete("/out/_commits/streamsink/0000000002.json")
    said = told("table.rolled-back", lambda: world.run(3, 5, 6)).says("Restore /out/_commits")
    assert "as that error says" in str(given_up(world, said))
    gap = told("positions.gap", lambda: world.run(3, 5, 6))
    offsets = json.loads(gap.option("startingOffsets"))
    assert offsets == {"t": {"0": 3}}
    driver = MicroBatchDriver("/out", SCHEMA, rows, SinkOptions.of("/out", {"restore": "restore-and-continue"}))
    driver.destination, driver.first_file = lambda: world.sink, offsets["t"]["0"]
    driver.run(world.io(), SparkCheckpoint("another"), (6,))
    assert sorted(rows_of(world.io(), "/out")) == list(range(6))


def test_the_transaction_of_a_record_that_is_given_up_is_aborted():
    world = OfTransactions()
    world.run(3)
    world.die(3, 5, step="precommit.saved")
    damage(world.io(), "/journals/streamsink/streamsink/record-2.json")
    said = told("journal.corrupt", lambda: world.run(3, 5))
    assert world.open and given_up(world, said).records == (2,)
    assert (world.rows, world.open) == ([0, 1, 2], [])
    world.run(3, 5, 6)
    assert (world.rows, world.open) == (list(range(6)), [])


def test_what_the_next_start_can_publish_is_not_given_up():
    world = OfTransactions()
    world.run(3)
    world.die(3, 5, step="precommit.saved")
    assert give_up_of_sink(world.io(), world.sink, SinkOptions.of("/server", {})).records == ()
    world.run(3, 5)
    assert (world.rows, world.open) == (list(range(5)), [])


def test_what_was_committed_is_not_given_up_where_only_the_notes_are_lost():
    """Reading it again would double its rows."""
    world = OfTransactions()
    world.run(3, 5)
    world.io().delete_tree("/journals/commits")
    with pytest.raises(Misuse, match="would double them.*Restore the folder /journals/commits") as refused:
        give_up_of_sink(world.io(), world.sink, SinkOptions.of("/server", {}))
    assert refused.value.kind == "give-up.published"
    assert "give_up" not in str(told("table.rolled-back", lambda: world.run(3, 5, 6)).message)


def test_the_command_takes_a_sink(tmp_path):
    """On its own store, with the options of the query."""
    done = streamsink.give_up(FileSink(tmp_path / "out"), application="orders")
    assert done.records == () and "nothing was given up" in str(done)


@follows("files.foreign")
def test_a_directory_with_files_of_others_is_refused():
    """Whoever reads the directory would take them for rows of the query."""
    world = World()
    world.io().create_if_absent("/out/people.parquet", b"")
    told("files.foreign", lambda: world.run(3)).says("people.parquet", "Nothing was written", "move them away")
    assert world.io().names("/out") == ["people.parquet"]
    world.io().delete("/out/people.parquet")
    world.run(3)
    assert sorted(rows_of(world.io(), "/out")) == [0, 1, 2]


@follows("files.left-over")
def test_folders_that_nothing_knows_any_more_are_not_added_to():
    """Manifests and journal are lost: the same rows would lie there twice for who lists the directory."""
    world = World()
    world.run(3, 5, 6)
    for gone in ("_commits", "_streamsink/streamsink"):
        world.io().delete_tree(f"/out/{gone}")
    world.checkpoint = SparkCheckpoint("another")
    said = told("files.left-over", lambda: world.run(3, 5, 6)).says("Nothing was written")
    first = int(said.find(r"remove the folders of this application from number (\d+) on"))
    for number in range(first, 4):
        world.io().delete_tree(f"/out/checkpoint=streamsink-{number:010}")
    world.run(3, 5, 6)
    listed = [each.name for each in world.io().entries("/out") if each.name.startswith("checkpoint=")]
    parts = [name for folder in listed for name in world.io().names(f"/out/{folder}") if name.startswith("part-")]
    assert len(parts) == 3 and sorted(rows_of(world.io(), "/out")) == list(range(6))


@follows("files.manifest-missing")
def test_a_manifest_that_is_missing_among_others_is_noticed():
    """As where somebody has deleted them while a driver was about to create the next one."""
    world = World()
    world.run(3, 5)
    world.io().delete("/out/_commits/streamsink/0000000001.json")
    said = told("files.manifest-missing", lambda: world.run(3, 5, 6)).says("Nothing was written", '{"files": ["..."]}')
    folder = said.find(r"part files that are in the folder (\S+),")
    names = [f"{folder}/{n}" for n in world.io().names(f"/out/{folder}") if n.startswith("part-")]
    path = said.find(r"the manifest (\S+) is missing")
    world.io().create_if_absent(f"/out/{path}", json.dumps({"files": names}).encode())
    world.run(3, 5, 6)
    assert sorted(rows_of(world.io(), "/out")) == list(range(6))


def test_the_first_record_does_not_go_into_a_destination_that_came_in_the_place_of_the_first_one():
    """Neither remembers anything, so the number of the last record is the same."""
    file_io, root = FileIO(MemoryCalls(), IdSource().new_id), "/db"
    settings = SinkOptions.of(f"{root}/kept", {"publish_every_batches": 5})
    driver = MicroBatchDriver(f"{root}/kept", SCHEMA, rows, settings)
    driver.destination = lambda: Remembering(f"{root}/kept", f"{root}/journals")
    checkpoint = SparkCheckpoint("query", ends=[3])
    sink = driver.start(file_io, checkpoint)
    sink.batch(driver.describe(checkpoint, 0))
    file_io.delete_tree(f"{root}/kept")
    Remembering(f"{root}/kept", f"{root}/journals", [file_io]).identity({})  # somebody makes it anew
    with pytest.raises(Retryable, match="another destination has come in the place") as refused:
        sink.run.commit_up_to_checkpoint(0)
    assert refused.value.kind == "destination.history-changed" and remembered(file_io, root) == []


@follows("sink.not-sendable")
def test_a_sink_that_cannot_be_sent_to_executors_is_refused_at_the_start(tmp_path):
    """Formerly its first large batch ended in a TypeError of pickle's."""

    @dataclass(frozen=True)
    class Locked(Server):
        lock: object = field(default_factory=threading.Lock, compare=False)

    at = {"path": str(tmp_path / "server"), "journal": str(tmp_path / "journals")}
    told("sink.not-sendable", lambda: to_sink(Locked(**at))).says("lock", "Nothing was written", "hold no connection")
    assert not (tmp_path / "journals").exists() and to_sink(Server(**at))


def test_only_a_destination_that_can_be_given_again_what_it_had_is_offered_its_first_name():
    """The folder's name says 'republish', which is no way of this destination."""
    file_io, root = FileIO(MemoryCalls(), IdSource().new_id), "/republish"
    checkpoint = SparkCheckpoint("query")

    def run(*ends, **options):
        settings = SinkOptions.of(f"{root}/kept", {"restore": "restore-and-continue", **options})
        driver = MicroBatchDriver(f"{root}/kept", SCHEMA, rows, settings)
        driver.destination = lambda: Remembering(f"{root}/kept", f"{root}/journals")
        driver.run(file_io, checkpoint, ends)

    run(3, 5)
    run(3, 5, 6, application="new", adopt_from_batch=2)
    for name in ("new/0000000001", "streamsink/0000000002"):
        file_io.delete(f"{root}/kept/{name}")
    file_io.delete(f"{root}/journals/streamsink/new/done-1")  # as if it had died just before
    said = told("table.rolled-back-too-far", lambda: run(3, 5, 6, application="new"))
    said.says("goes on from record 2 of 'streamsink'", "Restore the table")
    assert "on_rollback" not in str(said.message)
