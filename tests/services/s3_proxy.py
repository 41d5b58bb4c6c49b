"""A proxy in front of an S3 server: it records each request, can delay each answer, and can do what networks do.

    with S3Proxy(server.endpoint) as proxy:
        store_options["s3.endpoint"] = proxy.endpoint
        proxy.delay_ms = 20                        # each answer is held back by so much
        proxy.fault("PUT", 3, RESET_AFTER)         # of the third PUT from now on the reply is lost
        proxy.fault("*", 1, SLOW_DOWN, times=4)    # the next four requests, of any kind, are throttled
        ...
        done = proxy.take()                        # the requests until now, which are forgotten with this

HTTP/1.1 without TLS, paths as ``/bucket/key``; one connection to the server for each one of a client. The Host header
goes on as it is, because the signature covers it. The proxy runs in a thread; ``python -m tests.services.s3_proxy
ENDPOINT`` runs it in a process of its own, where it takes nothing from the Python that is measured: see
``S3ProxyProcess``.
"""

import asyncio
import contextlib
import json
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.services.ports import LOOPBACK
from tests.services.s3_requests import KINDS, Request, body, head, parse

STALL = "stall"  # the request is read and never answered; after ``seconds`` the connection is closed
RESET_BEFORE = "reset-before"  # the connection is reset and the server hears nothing
CUT = "cut"  # both connections are reset when the head and half of the body have reached the server
RESET_AFTER = "reset-after"  # the server has done it, and the connection is reset instead of an answer: a lost reply
BROKEN = "broken"  # the server has done it, and half of the answer comes, then a reset
SLOW_DOWN = "slow-down"  # 503 SlowDown, and the server hears nothing
LATE = "late"  # the server has done it; the answer is held back for ``seconds``, so that the client may have given up
HELD = "held"  # the server hears it ``seconds`` later, whatever the client has done meanwhile
FAULTS = (STALL, RESET_BEFORE, CUT, RESET_AFTER, BROKEN, SLOW_DOWN, LATE, HELD)
# What is no fault of the network: the keys have expired, and the server hears nothing.
EXPIRED = "expired"
# Likewise: the bucket is in another region, and the clock of who asks is wrong.
OTHER_REGION, SKEWED = "other-region", "skewed"
_MOST_HEAD = 1 << 20
_SMALL = 1 << 20  # answers up to this size are read whole, and recorded before they are sent on
_START_TIMEOUT_S, _REST_TIMEOUT_S = 120, 5
_NO_BODY = (204, 304)
_REFUSALS = {
    SLOW_DOWN: ("503 Slow Down", "SlowDown"),
    EXPIRED: ("400 Bad Request", "ExpiredToken"),
    OTHER_REGION: ("400 Bad Request", "AuthorizationHeaderMalformed"),
    SKEWED: ("403 Forbidden", "RequestTimeTooSkewed"),
}
_ERROR = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{}</Code><Message>As ordered.</Message></Error>'


@dataclass
class _Fault:
    """One fault, for ``left`` requests that match (None: all), after ``skip`` others that match."""

    matches: Callable[[Request], bool]
    what: str
    seconds: float
    skip: int
    left: int | None

    def hits(self, request: Request) -> bool:
        if self.left == 0 or not self.matches(request):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.left is not None:
            self.left -= 1
        return True


@dataclass
class _Connection:
    """A client's connection and its own one to the server."""

    number: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    up_reader: asyncio.StreamReader | None = None
    up_writer: asyncio.StreamWriter | None = None

    async def connect(self, host: str, port: int) -> None:
        """Have a connection to the server; a new one when the server has closed the last one meanwhile."""
        if self.up_reader is None or self.up_reader.at_eof():
            if self.up_writer is not None:
                self.up_writer.close()
            self.up_reader, self.up_writer = await asyncio.open_connection(host, port, limit=_MOST_HEAD)

    def reset(self) -> None:
        """Close both with a TCP reset instead of an end."""
        for writer in (self.writer, self.up_writer):
            if writer is not None:
                raw = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()

    def close(self) -> None:
        for writer in (self.writer, self.up_writer):
            if writer is not None:
                writer.close()


class S3Proxy:
    """A proxy to an S3 server. A context manager.

    delay_ms: each answer is held back for so long, from when the server gave it. May be set at any time.
    requests: what has come since the start or the last ``take``, in that order; also what is not answered yet.
    """

    def __init__(self, upstream: str):
        """upstream: where the server is, such as ``http://127.0.0.1:8333``."""
        self.delay_ms = 0.0
        self.requests: list[Request] = []
        self._upstream = urlsplit(upstream)
        self._port = 0
        self._numbers, self._connections = 0, 0
        self._faults: list[_Fault] = []
        self._sizes: dict[tuple[str, str], int] = {}
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="s3-proxy", daemon=True)

    # -- for tests and benchmarks ------------------------------------------------------------------------------------

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self._port}"

    def start(self) -> "S3Proxy":
        """Listen on a free port. A proxy is started once."""
        self._thread.start()
        if not self._ready.wait(_START_TIMEOUT_S):
            raise OSError("the proxy does not start")
        return self

    def stop(self) -> None:
        """Close every connection. Idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_START_TIMEOUT_S)

    def take(self) -> list[Request]:
        """The requests until now, which are forgotten here."""
        taken, self.requests = self.requests, []
        return taken

    def fault(
        self, kind: str | Callable[[Request], bool], nth: int, what: str, *, times: int | None = 1, seconds: float = 0.0
    ) -> None:
        """Do ``what`` (of ``FAULTS``, or a refusal) to the n-th request of this kind from now on, and to those behind.

        kind: one of ``KINDS``, "*" for any, or a function of the request. nth: from 1. times: to how many in all; None
        for each one from there on. seconds: how long STALL and LATE last. A request that the client repeats counts
        again. Of several faults that match one request the first takes it.
        """
        if what not in (*FAULTS, *_REFUSALS) or (isinstance(kind, str) and kind not in (*KINDS, "*")):
            raise ValueError(f"no such fault or kind: {what}, {kind}")
        matches = kind if callable(kind) else lambda request: kind in ("*", request.kind)
        self._faults.append(_Fault(matches, what, seconds, nth - 1, times))

    def clear(self) -> None:
        """Forget every fault; those that are under way go on."""
        self._faults.clear()

    def __enter__(self) -> "S3Proxy":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        starting = asyncio.start_server(self._connected, LOOPBACK, 0, limit=_MOST_HEAD, backlog=512)
        server = self._loop.run_until_complete(starting)
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        try:
            self._loop.run_forever()
        finally:
            server.close()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        connection = _Connection(self._connections, reader, writer)
        try:
            while await self._one(connection):
                pass
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            return  # one of the two sides is gone, or the proxy is
        finally:
            connection.close()

    async def _one(self, connection: _Connection) -> bool:
        """Serve one request. Returns whether the connection goes on."""
        raw, line, headers = await head(connection.reader)
        self._numbers += 1
        request = parse(self._numbers, line, headers, time.time())
        request.connection = connection.number
        request.up_bytes = int(headers.get("x-amz-decoded-content-length", headers.get("content-length", 0)))
        fault = next((fault for fault in list(self._faults) if fault.hits(request)), None)
        request.fault = fault.what if fault else ""
        self.requests.append(request)
        if fault and fault.what in (STALL, RESET_BEFORE, *_REFUSALS):
            return await self._refuse(connection, request, headers, fault)
        await connection.connect(str(self._upstream.hostname), self._upstream.port or 80)
        if fault and fault.what == CUT:
            connection.up_writer.write(raw + await connection.reader.readexactly(request.up_bytes // 2))
            await connection.up_writer.drain()
            connection.reset()
            return False
        if fault and fault.what == HELD:
            raw += await connection.reader.readexactly(request.up_bytes)  # the client may be gone when it is sent
            headers["content-length"] = "0"
            await asyncio.sleep(fault.seconds)
        connection.up_writer.write(raw)
        sending = asyncio.ensure_future(body(connection.reader, connection.up_writer, headers))
        try:
            goes_on = await self._answer(connection, request, fault)
            await asyncio.wait({sending}, timeout=_REST_TIMEOUT_S)  # an answer may come before all was sent
            return goes_on and sending.done() and headers.get("connection", "").lower() != "close"
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError, asyncio.IncompleteReadError):
                await sending

    async def _refuse(self, connection: _Connection, request: Request, headers: dict, fault: _Fault) -> bool:
        """What is done to a request that the server does not hear of."""
        if "expect" not in headers:  # else the client waits for leave to send its body
            await body(connection.reader, None, headers)
        if fault.what == STALL:
            await asyncio.sleep(fault.seconds)
            return False
        if fault.what == RESET_BEFORE:
            connection.reset()
            return False
        await asyncio.sleep(self.delay_ms / 1000)
        line, code = _REFUSALS[fault.what]
        error = _ERROR.format(code).encode()
        said = b"" if request.method == "HEAD" else error
        request.status, request.down_bytes, request.end_s = int(line[:3]), len(said), time.time()
        lines = (f"HTTP/1.1 {line}", "Content-Type: application/xml", f"Content-Length: {len(error)}")
        is_last = "expect" in headers
        closing = ("Connection: close",) if is_last else ()
        connection.writer.write("\r\n".join((*lines, *closing, "", "")).encode() + said)
        await connection.writer.drain()
        if is_last:
            await _heard_out(connection)
        return not is_last

    async def _answer(self, connection: _Connection, request: Request, fault: _Fault | None) -> bool:
        """Hand on the server's answer, late or not at all where a fault says so."""
        up_reader, writer = connection.up_reader, connection.writer
        while True:
            raw, line, headers = await head(up_reader)
            status = int(line.split(" ")[1])
            if status != 100:
                break
            request.interim += 1
            writer.write(raw)
            await writer.drain()
        await asyncio.sleep(self.delay_ms / 1000)
        bare = request.method == "HEAD" or status in _NO_BODY
        length = 0 if bare else int(headers.get("content-length", _SMALL + 1))
        kept = await up_reader.readexactly(length) if length <= _SMALL else None
        if fault and fault.what == RESET_AFTER:
            connection.reset()
            return False
        if fault and fault.what == BROKEN:
            part = raw + (kept or b"")
            writer.write(part[: len(raw) + length // 2] if length > 1 else part[: len(raw) // 2])
            await writer.drain()
            connection.reset()
            return False
        if fault and fault.what == LATE:
            await asyncio.sleep(fault.seconds)
        request.status = status
        self._account(request)
        if kept is not None:
            request.down_bytes, request.end_s = len(kept), time.time()
            writer.write(raw + kept)
        else:
            writer.write(raw)
            request.down_bytes = await body(up_reader, writer, headers, until_closed=True)
            request.end_s = time.time()
        await writer.drain()
        return "close" not in headers.get("connection", "").lower()

    def _account(self, request: Request) -> None:
        """Remember how large objects are, to say how much a COPY copies."""
        if request.status >= 300:
            return
        if request.kind == "PUT":
            self._sizes[request.bucket, request.key] = request.up_bytes
        elif request.kind == "COPY":
            bucket, _, key = unquote(request.headers["x-amz-copy-source"]).lstrip("/").partition("/")
            request.copied_bytes = self._sizes.get((bucket, key), 0)
            self._sizes[request.bucket, request.key] = request.copied_bytes


async def _heard_out(connection: _Connection) -> None:
    """Read until the client closes.

    A client that has waited a second for leave to send its body sends it all the same, and one that is cut off while it
    sends never reads the answer.
    """
    connection.writer.write_eof()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(connection.reader.read(), _REST_TIMEOUT_S)


class S3ProxyProcess:
    """An ``S3Proxy`` without faults in a process of its own, for benchmarks. A context manager, with the same names."""

    def __init__(self, upstream: str):
        command = [sys.executable, "-m", "tests.services.s3_proxy", upstream]
        root = Path(__file__).resolve().parent.parent.parent
        self._process = subprocess.Popen(
            command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.endpoint = self._process.stdout.readline().strip()

    @property
    def delay_ms(self) -> float:
        return self._ask({})["delay_ms"]

    @delay_ms.setter
    def delay_ms(self, value: float) -> None:
        self._ask({"delay_ms": value})

    def take(self) -> list[Request]:
        return [Request(**one) for one in self._ask({"take": True})["requests"]]

    def stop(self) -> None:
        """End the process. Idempotent."""
        self._process.stdin.close()
        self._process.wait(_START_TIMEOUT_S)

    def __enter__(self) -> "S3ProxyProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _ask(self, question: dict) -> dict:
        self._process.stdin.write(json.dumps(question) + "\n")
        return json.loads(self._process.stdout.readline())


def main(upstream: str) -> None:
    """Serve until the input ends: each line is a question of ``S3ProxyProcess``, and is answered with one line."""
    with S3Proxy(upstream) as proxy:
        print(proxy.endpoint, flush=True)
        for line in sys.stdin:
            question = json.loads(line)
            proxy.delay_ms = question.get("delay_ms", proxy.delay_ms)
            taken = [one.as_dict() for one in proxy.take()] if question.get("take") else []
            print(json.dumps({"delay_ms": proxy.delay_ms, "requests": taken}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
