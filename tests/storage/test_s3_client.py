"""The client of S3: what it sends, how many connections it has, and how long it waits.

Seen at a real server through the recording proxy.
"""

import errno
import threading
import uuid

import pytest

from streamsink.errors import Misuse, Retryable
from streamsink.storage import s3_calls, s3_client
from streamsink.storage.s3_calls import S3Calls
from streamsink.storage.s3_client import LONG_PATIENCE, PATIENCE, Patience
from streamsink.storage.store_failures import told_of
from tests.services import s3_proxy
from tests.services.s3_proxy import S3Proxy

QUICK = Patience(connect_s=2, read_s=1, attempts=2)
PART_BYTES = 1_000  # an upload of one part, which may be small


@pytest.fixture
def proxy(s3_server):
    with S3Proxy(s3_server.endpoint) as started:
        yield started


@pytest.fixture
def root(s3_server):
    return f"s3://{s3_server.bucket}/{uuid.uuid4().hex}"


@pytest.fixture
def calls(proxy, s3_server, monkeypatch):
    monkeypatch.setattr(s3_calls, "PART_BYTES", PART_BYTES)
    return S3Calls({**s3_server.options, "s3.endpoint": proxy.endpoint}, QUICK, QUICK)


def _write(calls, path, size):
    stream = calls.open_new(path)
    stream.write(b"x" * size)
    calls.close(stream, True)


def test_a_body_is_sent_without_asking_before(proxy, calls, root):
    """Formerly each PUT asked first, and waited a round trip for "100 Continue"."""
    calls.put(f"{root}/put", b"x")
    calls.put_new(f"{root}/new", b"x", "try-1")
    _write(calls, f"{root}/large", PART_BYTES)
    _write(calls, f"{root}/small", 100)
    seen = proxy.take()
    assert [one.kind for one in seen] == ["PUT", "PUT", "CREATE_UPLOAD", "PART", "COMPLETE", "PUT"]
    assert [one for one in seen if "expect" in one.headers or one.interim] == []


def test_requests_that_run_at_once_keep_their_connections(proxy, calls, root):
    """A pool that is smaller closes what is beyond it after one request: then each round opens connections."""
    calls.put(f"{root}/object", b"x")
    proxy.delay_ms = 100
    for _ in range(3):
        at_once = threading.Barrier(s3_client.CONNECTIONS)

        def ask(at_once=at_once):
            at_once.wait()
            calls.read(f"{root}/object")

        threads = [threading.Thread(target=ask) for _ in range(s3_client.CONNECTIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    asked = [one for one in proxy.take() if one.kind == "GET"]
    assert len(asked) == 3 * s3_client.CONNECTIONS
    assert len({one.connection for one in asked}) <= s3_client.CONNECTIONS


def test_there_is_one_client_for_each_settings(calls, proxy, s3_server):
    """Making one takes a tenth of a second, and each has connections of its own."""
    again = S3Calls({**s3_server.options, "s3.endpoint": proxy.endpoint}, QUICK, QUICK)
    assert again._client is calls._client
    assert S3Calls({**s3_server.options, "s3.endpoint": proxy.endpoint})._client is not calls._client


REQUESTS = {
    "GET": lambda calls, root: calls.read(f"{root}/object"),
    "HEAD": lambda calls, root: calls.size(f"{root}/object"),
    "LIST": lambda calls, root: calls.entries(root),
    "LIST_UPLOADS": lambda calls, root: calls.unfinished(root),
    "PUT": lambda calls, root: calls.put(f"{root}/other", b"x"),
    "COPY": lambda calls, root: calls.copy(f"{root}/object", f"{root}/copy"),
    "DELETE": lambda calls, root: calls.unlink(f"{root}/object"),
    "DELETE_MANY": lambda calls, root: calls.remove_tree(root),
    "CREATE_UPLOAD": lambda calls, root: calls.begin(f"{root}/large"),
    "PART": lambda calls, root: _write(calls, f"{root}/large", PART_BYTES),
    "COMPLETE": lambda calls, root: _write(calls, f"{root}/large", PART_BYTES),
    "ABORT": lambda calls, root: calls.abort(f"{root}/large", calls.begin(f"{root}/large")),
}
LASTING = {
    s3_proxy.STALL: (errno.ETIMEDOUT, "storage.unreachable", "Read timeout"),
    s3_proxy.RESET_BEFORE: (errno.ETIMEDOUT, "storage.unreachable", "Connection"),
    s3_proxy.SLOW_DOWN: (errno.EBUSY, "storage.busy", "S3 said 503"),
}


@pytest.mark.in_turn("requests to S3 that fail each time", 3)
@pytest.mark.parametrize("what", LASTING)
@pytest.mark.parametrize("kind", REQUESTS)
def test_a_request_that_fails_each_time_ends_after_its_attempts(proxy, calls, root, kind, what):
    """The error says where it was and what the store said, and that a restart goes on."""
    code, error, said = LASTING[what]
    calls.put(f"{root}/object", b"x")
    proxy.take()
    proxy.fault(kind, 1, what, times=None, seconds=60)
    with pytest.raises(Retryable) as told, told_of("s3://lake/shop.db/orders"):
        REQUESTS[kind](calls, root)
    failed = told.value.__cause__
    assert (failed.errno, told.value.kind) == (code, error) and failed.filename.startswith(root)
    assert [one.fault for one in proxy.take() if one.kind == kind] == [what] * QUICK.attempts
    for part in ("s3://lake/shop.db/orders: ", said, f"({failed.filename})", "is published after a restart"):
        assert part in str(told.value)


@pytest.mark.in_turn("requests to S3 that fail once", 4)
@pytest.mark.parametrize("what", s3_proxy.FAULTS)
@pytest.mark.parametrize("kind", REQUESTS)
def test_a_request_that_fails_once_is_made_again(proxy, calls, root, kind, what):
    """No caller hears of it."""
    calls.put(f"{root}/object", b"x")
    proxy.take()
    proxy.fault(kind, 1, what, seconds=1.5)
    REQUESTS[kind](calls, root)
    faults = [one.fault for one in proxy.take() if one.kind == kind]
    assert faults[0] == what and faults[1:] == [""]


def test_an_answer_that_breaks_off_is_asked_for_again(proxy, calls, root):
    """The client of boto3 repeats a request only until the answer's head has come."""
    calls.put(f"{root}/object", b"x" * 1000)
    proxy.fault("GET", 1, s3_proxy.BROKEN)
    assert calls.read(f"{root}/object") == b"x" * 1000
    proxy.fault("GET", 1, s3_proxy.BROKEN, times=QUICK.attempts)
    with pytest.raises(TimeoutError):
        calls.read(f"{root}/object")


def test_an_error_of_the_store_that_breaks_off_is_asked_for_again(proxy, calls, root):
    """Such as that there is no object, or that there is one already. boto3 lets these through as errors of urllib3."""
    calls.put_new(f"{root}/object", b"x", "try-1")
    for times in (1, QUICK.attempts):
        proxy.fault(lambda request: request.key.endswith("nothing"), 1, s3_proxy.BROKEN, times=times)
        with pytest.raises(FileNotFoundError if times == 1 else TimeoutError):
            calls.read(f"{root}/nothing")
    proxy.fault("PUT", 1, s3_proxy.BROKEN)
    assert calls.put_new(f"{root}/object", b"x", "try-1") is True
    assert calls.put_new(f"{root}/object", b"x", "try-2") is False
    assert calls.try_new(f"{root}/object", b"x", "try-1") is False, "it says only that the name is taken"


def test_the_usual_bounds():
    """A stalled request ends within two minutes, and a copy within a few more, for which the store works longer."""
    assert PATIENCE.attempts * PATIENCE.read_s <= 120 and PATIENCE.attempts * PATIENCE.connect_s <= 60
    assert LONG_PATIENCE.attempts * LONG_PATIENCE.read_s <= 360


def test_an_endpoint_where_nobody_listens_is_said(s3_server, root):
    """The restart of the query tries it again."""
    calls = S3Calls({**s3_server.options, "s3.endpoint": "http://127.0.0.1:9"}, QUICK, QUICK)
    with pytest.raises(Retryable) as told, told_of(root):
        calls.read(f"{root}/object")
    assert told.value.kind == "storage.unreachable" and "http://127.0.0.1:9" in str(told.value)


def test_a_listing_of_several_pages_is_whole(proxy, calls, root):
    """Also when a page fails for good: then it is an error, not a shorter listing."""
    for number in range(5):
        calls.put(f"{root}/{number}", b"x")
    bucket, _, prefix = root.removeprefix("s3://").partition("/")

    def keys():
        pages = calls._pages(root, "list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=2)
        return [one["Key"][-1] for page in pages for one in page.get("Contents", ())]

    assert keys() == ["0", "1", "2", "3", "4"]
    proxy.fault("LIST", 2, s3_proxy.SLOW_DOWN, times=QUICK.attempts)
    with pytest.raises(OSError):
        keys()
    uploads = [calls.begin(f"{root}/large-{number}") for number in range(5)]
    pages = calls._pages(root, "list_multipart_uploads", Bucket=bucket, Prefix=prefix, MaxUploads=2)
    assert sorted(one["UploadId"] for page in pages for one in page.get("Uploads", ())) == sorted(uploads)


def test_a_right_that_is_missing_is_told_from_keys_that_are_not_known(s3_server, root):
    """A HEAD is answered without a reason, so the reason is asked for."""
    from tests.services.s3 import READER

    keys = dict(zip(("s3.access-key", "s3.secret-key"), READER, strict=True))
    for given, kind, said in (
        (keys, "storage.denied", "s3:PutObject"),
        ({"s3.access-key": "nobody"}, "store.credentials-rejected", "InvalidAccessKeyId"),
        ({"s3.secret-key": "wrong"}, "store.credentials-rejected", "SignatureDoesNotMatch"),
    ):
        calls = S3Calls({**s3_server.options, **given}, QUICK, QUICK)
        with pytest.raises(Misuse) as told, told_of(root):
            calls.put(f"{root}/object", b"x")
        assert told.value.kind == kind and said in str(told.value)
        if given is not keys:
            with pytest.raises(Misuse) as told, told_of(root):
                calls.size(f"{root}/object")
            assert told.value.kind == kind and said in str(told.value)
