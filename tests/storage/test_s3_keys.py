"""Keys that change while a driver runs: what boto3 renews by itself, what the client renews, and what nobody can renew.

A real server takes keys and forgets them; a program gives them out (``credential_process``), as a vault's agent does.
"""

import datetime
import http.server
import json
import os
import signal
import stat
import sys
import threading
import time
import uuid

import pytest

from streamsink.clock import IdSource
from streamsink.errors import Misuse, Retryable
from streamsink.storage import s3_client
from streamsink.storage.s3 import S3FileIO
from streamsink.storage.s3_calls import S3Calls
from streamsink.storage.store_failures import told_of
from tests.crash.world import World, expected
from tests.services.s3 import ACCESS_KEY, ALLOWED, IDENTITIES, S3Server

WAIT_S = 120
_PROGRAM = """#!{python}
import pathlib
pathlib.Path({log!r}).open("a").write("asked\\n")
print(pathlib.Path({answer!r}).read_text())
"""


class Keys:
    """A server, and what gives its keys: only those of the last ``turn`` are taken."""

    def __init__(self, server, folder, monkeypatch):
        self.server = server
        self.answer, self.log = folder / "answer.json", folder / "asked"
        self.program, self.files = folder / "program", folder / "credentials"
        self.log.write_text("")
        text = _PROGRAM.format(python=sys.executable, log=str(self.log), answer=str(self.answer))
        self.program.write_text(text)
        self.program.chmod(stat.S_IRWXU)
        (folder / "config").write_text(f"[profile lake]\ncredential_process = {self.program}\n")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(self.files))
        monkeypatch.setenv("AWS_PROFILE", "lake")
        self.options = {name: value for name, value in server.options.items() if not name.endswith("-key")}
        self.key = ("", "")
        s3_client.client_of.cache_clear()

    def turn(self, how, valid_s=None):
        """From now on the server takes a new key and no earlier one. how: 'program' or 'file' gives it."""
        self.key = (f"key-{uuid.uuid4().hex[:8]}", uuid.uuid4().hex)
        self.give(how, valid_s)
        mine = {"name": "lake", "credentials": [{"accessKey": self.key[0], "secretKey": self.key[1]}]}
        known = {"identities": [*IDENTITIES["identities"], {**mine, "actions": ALLOWED}]}
        (self.server.data_dir / "s3.json").write_text(json.dumps(known))
        os.kill(self.server.pid, signal.SIGHUP)
        end = time.monotonic() + WAIT_S
        while not self._is_taken():
            assert time.monotonic() < end, "the server does not take the new key"
            time.sleep(0.05)

    def give(self, how, valid_s=None):
        """Give out the newest key. valid_s: for how long the program says that it is valid; None: it does not say."""
        if how == "file":
            self.files.write_text(f"[lake]\naws_access_key_id={self.key[0]}\naws_secret_access_key={self.key[1]}\n")
            return
        self.files.write_text("")
        answer = {"Version": 1, "AccessKeyId": self.key[0], "SecretAccessKey": self.key[1]}
        if valid_s is not None:
            end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=valid_s)
            # boto3 takes no keys for ones that expire without a session token; this server heeds none.
            answer |= {"Expiration": end.isoformat(), "SessionToken": ""}
        self.answer.write_text(json.dumps(answer))

    def asked(self):
        """How often the program was asked."""
        return len(self.log.read_text().splitlines())

    def _is_taken(self):
        from botocore.exceptions import ClientError

        mine = dict(zip(("s3.access-key", "s3.secret-key"), self.key, strict=True))
        client = s3_client.S3Client({**self.server.options, **mine}, s3_client.PATIENCE).now
        try:
            client.list_buckets()
        except ClientError:
            return False
        return True


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of this file's own, because its keys change."""
    started = S3Server(tmp_path_factory.mktemp("s3-keys")).start()
    try:
        started.client().create_bucket(Bucket=started.bucket)
        yield started
    finally:
        started.kill()


@pytest.fixture
def keys(server, tmp_path, monkeypatch):
    return Keys(server, tmp_path, monkeypatch)


@pytest.fixture
def root(server):
    return f"s3://{server.bucket}/{uuid.uuid4().hex}/shop.db/orders"


WAYS = {
    # A file is read once; a program that does not say how long its keys are valid is asked once.
    "file": ("file", None),
    "program": ("program", None),
    # The keys are withdrawn long before the time that the program said.
    "program, withdrawn early": ("program", 100_000),
    # boto3 asks again when less than 15 minutes are left.
    "program, about to expire": ("program", 700),
}


@pytest.mark.in_turn("keys that changed", 1)
@pytest.mark.parametrize("way", WAYS)
def test_keys_that_changed_are_taken_by_every_kind_of_request(keys, root, way):
    """The client is made once a process. Formerly it kept keys that nobody takes any more until the process ended."""
    how, valid_s = WAYS[way]
    keys.turn(how, valid_s)
    calls = S3Calls(keys.options)
    calls.put(f"{root}/object", b"x")
    kinds = {
        "GET": lambda: calls.read(f"{root}/object") == b"x",
        "HEAD": lambda: calls.size(f"{root}/object") == 1,
        "LIST": lambda: ("object", 1, False) in calls.entries(root),
        "PUT": lambda: calls.put_new(f"{root}/other", b"x", "try-1"),
        "COPY": lambda: calls.copy(f"{root}/object", f"{root}/copy") is None,
    }
    for name, ask in kinds.items():
        keys.turn(how, valid_s)
        assert ask(), name


def test_a_run_whose_keys_change_between_batches_writes_each_row_once(keys, root):
    """In one driver, which lives on; its hold goes on beating too."""
    keys.turn("program")
    calls = S3Calls(keys.options)
    world = World(calls, root, make_io=lambda over: S3FileIO(over, IdSource().new_id, root))
    rows = world.driver.rows

    def turned(start, end):
        keys.turn("program")  # while the batch is written
        return rows(start, end)

    world.driver.rows = turned
    world.run(boundaries=(3, 5, 8))
    keys.turn("program")
    assert world.ids() == expected((8,))


def test_keys_that_change_under_many_requests_at_once_are_fetched_once(keys, root):
    """The first that is refused fetches them; the others take what it has fetched."""
    keys.turn("program")
    calls = S3Calls(keys.options)
    calls.put(f"{root}/object", b"x")
    before = keys.asked()
    keys.turn("program")
    found, at_once = [], threading.Barrier(16)

    def ask():
        at_once.wait()
        found.append(calls.read(f"{root}/object"))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [b"x"] * 16
    assert keys.asked() - before == 1


def test_a_listing_whose_keys_change_between_its_pages_is_whole(keys, root):
    """It goes on where it was."""
    keys.turn("program")
    calls = S3Calls(keys.options)
    for number in range(5):
        calls.put(f"{root}/{number}", b"x")
    bucket, _, prefix = root.removeprefix("s3://").partition("/")
    found = []
    for page in calls._pages(root, "list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=2):
        found += [one["Key"][-1] for one in page["Contents"]]
        keys.turn("program")
    assert found == ["0", "1", "2", "3", "4"]


def test_a_program_that_fails_in_the_middle_is_not_a_file_that_is_missing(keys, root):
    """Its keys are about to expire, so that it is asked before each request. When it is gone, boto3 says that a file is
    not there: as the answer to whether an object is there that would lose what it is asked for."""
    keys.turn("program", 300)
    calls = S3Calls(keys.options)
    calls.put(f"{root}/object", b"x")
    assert calls.size(f"{root}/object") == 1
    there = keys.program.read_text()
    for broken in (None, "#!/bin/false\n", "#!/bin/sh\necho no JSON\n", "#!/bin/sh\necho '{\"Version\": 7}'\n"):
        keys.program.unlink() if broken is None else keys.program.write_text(broken)
        for ask in (calls.size, calls.read, calls.unlink, calls.entries):
            with pytest.raises(Retryable) as told, told_of(root):
                ask(f"{root}/object")
            assert told.value.kind == "store.credentials-not-fetched"
        keys.program.write_text(there)
        keys.program.chmod(stat.S_IRWXU)
        assert calls.size(f"{root}/object") == 1


class _NoSuchRole(http.server.BaseHTTPRequestHandler):
    """A service of keys that says of each role that it is not there."""

    def do_POST(self):
        error = b"<ErrorResponse><Error><Code>NoSuchEntity</Code><Message>no role</Message></Error></ErrorResponse>"
        self.send_response(404)
        self.send_header("Content-Length", str(len(error)))
        self.end_headers()
        self.wfile.write(error)

    def log_message(self, *_):
        """Nothing."""


def test_a_role_that_is_not_there_is_not_a_file_that_is_missing(keys, root, tmp_path, monkeypatch):
    """The service that gives keys for a role answers with 404, as a store does for an object that is not there."""
    service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _NoSuchRole)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    (tmp_path / "token").write_text("token")
    monkeypatch.delenv("AWS_PROFILE")
    for name, value in (
        ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/lake"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token")),
        ("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{service.server_port}"),
    ):
        monkeypatch.setenv(name, value)
    try:
        calls = S3Calls(keys.options)
        for ask in (calls.size, calls.read, calls.entries):
            with pytest.raises(Retryable) as told, told_of(root):
                ask(f"{root}/object")
            assert told.value.kind == "store.credentials-not-fetched"
            assert "AssumeRoleWithWebIdentity said 404 NoSuchEntity" in str(told.value)
    finally:
        service.shutdown()
        service.server_close()


def test_keys_of_the_options_are_never_replaced(keys, root, server):
    """Somebody has written them down there: other ones are not what was asked for."""
    keys.turn("file")
    own = {"s3.access-key": ACCESS_KEY, "s3.secret-key": "withdrawn"}
    calls = S3Calls({**keys.options, **own})
    with pytest.raises(Misuse) as told, told_of(root):
        calls.put(f"{root}/object", b"x")
    assert told.value.kind == "store.credentials-rejected"
    assert "those of store_options, which nothing renews" in str(told.value)
