"""What is special about S3:
requests that the client repeats by itself, servers that ignore conditions, uploads in parts."""

import uuid
from pathlib import Path

import pytest

from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.storage import s3_calls
from streamsink.storage.s3 import S3FileIO
from streamsink.storage.s3_calls import S3Calls
from streamsink.storage.stores import store_of, table_path
from tests.crash.world import World, expected
from tests.services.lossy import LossyRelay
from tests.services.s3_proxy import CUT, S3Proxy
from tests.storage.back_ends import back_end


@pytest.fixture
def lossy(s3_server):
    """The relay, a FileIO through it, and a root."""
    root = f"s3://{s3_server.bucket}/{uuid.uuid4().hex}"
    with LossyRelay(int(s3_server.endpoint.rpartition(":")[2])) as relay:
        options = {**s3_server.options, "s3.endpoint": f"http://127.0.0.1:{relay.port}"}
        yield relay, S3FileIO(S3Calls(options), IdSource().new_id, root), root


@pytest.mark.parametrize("losses", [1, 2])
def test_a_creation_whose_reply_was_lost_is_won(lossy, losses):
    """The client repeats the request and is refused because of its own object, which is no other writer's."""
    relay, io, root = lossy
    relay.to_lose = losses
    assert io.create_if_absent(f"{root}/snapshot-1", b"ours") is True
    assert relay.lost == losses
    assert io.read(f"{root}/snapshot-1") == b"ours"


def test_a_creation_that_another_writer_won_is_lost_although_its_reply_was_lost(lossy):
    """This holds even when both wrote the same bytes: the mark of the attempt tells."""
    relay, io, root = lossy
    assert io.create_if_absent(f"{root}/snapshot-1", b"same") is True
    relay.to_lose = 1
    assert io.create_if_absent(f"{root}/snapshot-1", b"same") is False
    assert relay.lost == 1


def test_a_big_output_survives_lost_replies(lossy):
    """Parts and their completion are repeated."""
    relay, io, root = lossy
    stream = io.open_output(f"{root}/data")
    for _ in range(3):
        relay.to_lose = 1
        stream.write(b"x" * s3_calls.PART_BYTES)
    relay.to_lose = 1
    io.close_output(stream)
    assert relay.lost == 4
    assert io.size(f"{root}/data") == 3 * s3_calls.PART_BYTES


def test_a_query_whose_replies_get_lost_writes_each_row_once(lossy):
    """Replies are lost every so often in a run of several batches."""
    relay, io, root = lossy
    world = World(io._calls, f"{root}/shop.db/orders", make_io=lambda calls: S3FileIO(calls, IdSource().new_id, root))
    for at in range(2, 9):
        relay.to_lose = 1
        world.run(boundaries=tuple(range(1, at)))
    assert relay.lost == 7
    assert world.ids() == expected((7,))
    assert world.unknown_files() == []


def test_a_creation_of_which_half_arrived_is_made_again(s3_server):
    """A server that keeps what came of a broken request would keep a part of the object for the whole."""
    root = f"s3://{s3_server.bucket}/{uuid.uuid4().hex}"
    with S3Proxy(s3_server.endpoint) as proxy:
        calls = S3Calls({**s3_server.options, "s3.endpoint": proxy.endpoint})
        io = S3FileIO(calls, IdSource().new_id, root)
        assert io.atomic_create
        for times in (1, 2):
            proxy.fault("PUT", 1, CUT, times=times)
            assert io.create_if_absent(f"{root}/snapshot-{times}", b"ours" * 1000) is True
            assert io.read(f"{root}/snapshot-{times}") == b"ours" * 1000
        assert [one.fault for one in proxy.take() if one.fault] == [CUT] * 3


@pytest.fixture
def ignoring(s3_server):
    """A root, and a FileIO of calls to a server that never sees a condition."""
    calls = S3Calls({**s3_server.options, "s3.session-token": ""})  # It has a client of its own.
    calls._client.meta.events.register(
        "before-sign.s3.PutObject", lambda request, **_: request.headers.__delitem__("If-None-Match")
    )
    root = f"s3://{s3_server.bucket}/{uuid.uuid4().hex}/shop.db/orders"
    return root, calls, lambda over: S3FileIO(over, IdSource().new_id, root)


def test_a_server_that_ignores_the_condition_is_found_out_and_refused(ignoring):
    """It would write over an object and say that all is well."""
    root, calls, make_io = ignoring
    assert make_io(calls).atomic_create is False
    world = World(calls, root, make_io=make_io)
    with pytest.raises(Misuse) as caught:
        world.run()
    assert caught.value.kind == "lock.missing"
    assert world.ids() == []


def test_a_probe_that_another_writer_sweeps_away_is_made_again(s3_server):
    """Once it looks as if the server wrote over it.
    A server that really does so is found out because it does so each time."""
    calls = S3Calls(s3_server.options)
    root = f"s3://{s3_server.bucket}/{uuid.uuid4().hex}/shop.db/orders"
    put, swept = calls.put_new, []

    def put_and_sweep(path, data, name):
        done = put(path, data, name)
        if not swept:
            swept.append(path)
            calls.unlink(path)
        return done

    calls.put_new = put_and_sweep
    assert S3FileIO(calls, IdSource().new_id, root).atomic_create is True
    assert len(swept) == 1 and "probe" in swept[0]


def test_a_probe_that_is_refused_is_not_looked_at(s3_server):
    """That the name is taken says that the server knows the condition; whose it is takes a round trip more to know."""
    with S3Proxy(s3_server.endpoint) as proxy:
        calls = S3Calls({**s3_server.options, "s3.endpoint": proxy.endpoint})
        assert S3FileIO(calls, IdSource().new_id, f"s3://{s3_server.bucket}/{uuid.uuid4().hex}").atomic_create is True
        assert [(one.kind, one.status // 100) for one in proxy.take()] == [("PUT", 2), ("PUT", 4), ("DELETE", 2)]


class _Breaks:
    """The body of a reply whose connection breaks while it is read."""

    def read(self):
        from botocore.exceptions import ResponseStreamingError

        raise ResponseStreamingError(error="connection broken")


def test_a_reply_that_breaks_while_it_is_asked_whose_a_name_is_is_an_error_of_the_store(s3_server):
    """Not one of the client's own, which nobody above settles by looking again."""
    calls = S3Calls(s3_server.options)
    path = f"s3://{s3_server.bucket}/{uuid.uuid4().hex}/name"
    assert calls.put_new(path, b"mine", "try-1")
    client = type(
        "Client", (), {"get_object": lambda self, **at: {"Metadata": {s3_calls._TRY: "try-1"}, "Body": _Breaks()}}
    )()
    calls._of_most = type("Of", (), {"now": client})()
    with pytest.raises(OSError) as caught:
        calls._is_mine(path, b"mine", "try-1")
    assert caught.value.filename == path


def test_a_server_that_ignores_the_condition_is_written_under_a_lock(ignoring, tmp_path):
    """Two applications write in turns, with a replay among their batches: every row of each is there once."""
    root, calls, make_io = ignoring
    settings = {"lock": f"jdbc:sqlite:{tmp_path}/locks.db"}
    first, second = (World(calls, root, make_io=make_io, application=name, **settings) for name in ("first", "second"))
    first.run(boundaries=(3,))
    second.run(boundaries=(4,))
    first.checkpoint.committed = 0
    first.run(boundaries=(3, 6))
    assert first.ids() == sorted([*range(6), *range(4)])


def test_uploads_that_were_never_finished_are_given_up_at_the_next_start(request):
    """A killed task leaves parts that no listing shows and that cost money."""
    made = back_end("s3", request)
    world = World(made.calls, f"{made.root}/shop.db/orders", make_io=made.io)
    world.run(boundaries=(3,))
    staging = f"{world.driver.root}/streamsink/streamsink/staging"
    upload = made.calls.begin(f"{staging}/1-2/data-x.parquet")
    made.calls.part(f"{staging}/1-2/data-x.parquet", upload, 1, b"x" * 100)
    assert len(made.calls.unfinished(staging)) == 1
    world.run(boundaries=(3, 5))
    assert made.calls.unfinished(staging) == []


def test_no_option_of_the_store_is_shown(s3_server):
    """It is neither in the text form of options and stores, nor in an error about them."""
    options = SinkOptions.of("t", {"store_options": s3_server.options})
    secret = s3_server.options["s3.secret-key"]
    assert secret not in repr(options) and secret not in repr(store_of("s3://lake/t", s3_server.options))
    with pytest.raises(Misuse) as caught:
        store_of("s3://lake/t", {"s3.secret": secret}).open()
    assert secret not in str(caught.value) and "s3.secret-key" in str(caught.value)
    with pytest.raises(Misuse):
        SinkOptions.of("t", {"store_options": {"s3.secret-key": 1}})


@pytest.mark.parametrize(
    "given, spelled",
    [
        ("hdfs://namenode:8020/lake//shop.db/orders/", "hdfs://namenode:8020/lake/shop.db/orders"),
        ("hdfs:///lake/orders", "hdfs:///lake/orders"),
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("s3a://bucket/a b%20/", "s3a://bucket/a b%20"),
        ("file:///a%20b", "/a b"),
        ("/a/../b", "/b"),
        (Path("/a/../b"), "/b"),
        (Path("file:///a%20b"), "/a b"),
    ],
)
def test_paths_keep_their_spelling(given, spelled):
    """URIs stay as they are, and local paths become absolute."""
    assert table_path(given) == spelled


@pytest.mark.parametrize(
    "given",
    [
        "",
        "s3://bucket",
        "s3:///key",
        "gs://bucket/key",
        "hdfs://namenode:8020/",
        "memory://x/y",
        None,
        b"/a",
        Path("s3://bucket/key"),
        Path("hdfs://namenode/a"),
        "s3a:/bucket/key",
        "s3://bucket/lake\\orders",
        "hdfs://namenode:8020/lake/12:00",
    ],
)
def test_paths_that_name_no_table_are_refused(given):
    """The refusal comes before anything is opened."""
    with pytest.raises(Misuse):
        table_path(given)
