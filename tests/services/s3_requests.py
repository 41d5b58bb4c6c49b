"""What a request to S3 is, as a proxy sees it: its kind, its key, and what is recorded of it; and how it is read."""

import asyncio
from dataclasses import asdict, dataclass
from urllib.parse import parse_qs, unquote, urlsplit

# The kinds, by what a price list tells apart. DELETE_MANY removes up to a thousand objects; PART to ABORT are of
# uploads in parts; PART_COPY is a part that is copied from another object. OTHER is about buckets.
KINDS = ("PUT", "COPY", "GET", "HEAD", "LIST", "DELETE", "DELETE_MANY")
KINDS += ("CREATE_UPLOAD", "PART", "PART_COPY", "COMPLETE", "ABORT", "LIST_UPLOADS", "LIST_PARTS", "OTHER")
# Headers that are recorded when a request has them. Of the signature only the access key's id is kept.
RECORDED = ("expect", "if-none-match", "if-match", "range", "content-md5", "x-amz-copy-source", "user-agent")


@dataclass
class Request:
    """One request that a proxy has seen.

    number: from 1, in the order in which the requests came. method, target: of its first line. kind: one of ``KINDS``.
    bucket, key: of the object; for LIST and LIST_UPLOADS ``key`` is the prefix. headers: those of ``RECORDED`` that it
    has, names in small letters. access_key: the id of the key that signed it, or ''.
    start_s: when its head had come; end_s: when its answer was sent, 0.0 until then and for one that is never answered.
    Both are seconds of ``time.time()``, so that they can be laid beside Spark's times.
    status: of the answer that the client was sent, 0 without one. interim: how often the server said "100 Continue".
    up_bytes, down_bytes: of the bodies. copied_bytes: the size of what COPY copied, as far as the proxy saw it written.
    fault: what was injected, or ''. connection: the number of the client's connection, from 1.
    """

    number: int
    method: str
    target: str
    kind: str
    bucket: str
    key: str
    headers: dict[str, str]
    access_key: str
    start_s: float
    end_s: float = 0.0
    status: int = 0
    interim: int = 0
    up_bytes: int = 0
    down_bytes: int = 0
    copied_bytes: int = 0
    fault: str = ""
    connection: int = 0

    def as_dict(self) -> dict:
        """The same, for JSON."""
        return asdict(self)


def parse(number: int, line: str, headers: dict[str, str], start_s: float) -> Request:
    """A request of this first line, with paths as ``/bucket/key``. headers: all of them, names in small letters."""
    method, target, _ = line.split(" ", 2)
    parts = urlsplit(target)
    query = parse_qs(parts.query, keep_blank_values=True)
    bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
    kind = _kind(method, key, query, "x-amz-copy-source" in headers)
    if kind in ("LIST", "LIST_UPLOADS"):
        key = query.get("prefix", [""])[0]
    kept = {name: headers[name] for name in RECORDED if name in headers}
    signed = headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]
    return Request(number, method, target, kind, bucket, key, kept, signed, start_s)


def _kind(method: str, key: str, query: dict, is_copy: bool) -> str:
    if not key:
        if method == "POST" and "delete" in query:
            return "DELETE_MANY"
        if method == "GET" and "uploads" in query:
            return "LIST_UPLOADS"
        return "LIST" if method == "GET" and {"list-type", "prefix", "delimiter"} & query.keys() else "OTHER"
    in_parts = "uploadId" in query
    if method == "PUT":
        return ("PART_COPY" if is_copy else "PART") if in_parts else ("COPY" if is_copy else "PUT")
    if method == "POST":
        return "CREATE_UPLOAD" if "uploads" in query else "COMPLETE" if in_parts else "OTHER"
    if method == "DELETE":
        return "ABORT" if in_parts else "DELETE"
    if method == "GET" and in_parts:
        return "LIST_PARTS"
    return method if method in ("GET", "HEAD") else "OTHER"


# -- HTTP/1.1 ----------------------------------------------------------------------------------------------------------

CHUNK = 1 << 18


async def head(reader: asyncio.StreamReader) -> tuple[bytes, str, dict[str, str]]:
    """The head of a message: as it came, its first line, its headers."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as large:
        raise OSError(str(large)) from large
    first, *lines = raw[:-4].decode("latin1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return raw, first, {name.strip().lower(): value.strip() for name, _, value in pairs}


async def body(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None, headers: dict, until_closed: bool = False
) -> int:
    """Hand on the body that these headers announce (writer None: drop it). Returns its size in bytes."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _chunked(reader, writer)
    left = int(headers["content-length"]) if "content-length" in headers else None
    if left is None and not until_closed:
        return 0
    size = 0
    while left is None or size < left:
        got = await reader.read(CHUNK if left is None else min(left - size, CHUNK))
        if not got:
            if left is not None:
                raise ConnectionResetError("the body ends too early")
            break
        size += len(got)
        await _hand_on(writer, got)
    return size


async def _chunked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None) -> int:
    total = 0
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        total += size
        await _hand_on(writer, line + (await reader.readexactly(size + 2) if size else b""))
        if not size:
            break
    while line != b"\r\n":  # trailers
        line = await reader.readuntil(b"\r\n")
        await _hand_on(writer, line)
    return total


async def _hand_on(writer: asyncio.StreamWriter | None, data: bytes) -> None:
    if writer is not None:
        writer.write(data)
        await writer.drain()
