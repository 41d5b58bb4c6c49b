"""Requests to S3, and to servers that speak its protocol, through ``boto3``: the calls under ``s3.py``."""

import base64
import errno
import functools
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from streamsink.clock import Clock
from streamsink.errors import Misuse
from streamsink.storage.calls import Calls, NameLimits, in_threads

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

CONNECT_TIMEOUT_S, READ_TIMEOUT_S, ATTEMPTS = 10, 60, 5
PART_BYTES = 16 * 1024 * 1024  # size of a part of a multipart upload, which may have 10,000 parts
MOST_COPIED_BYTES = 5 * 1024**3  # CopyObject's limit
MOST_WRITTEN_BYTES = 10_000 * PART_BYTES
_MOST_KEY_BYTES = 1_024
AT_ONCE = 16  # requests that a driver makes at one time, besides the one of its own thread
_DELETED_AT_ONCE, _CONFLICT_WAIT_MS = 1_000, 100
_TRY = "streamsink-try"  # metadata key whose value tells which attempt created an object
# Our options, named as in Paimon and Flink, and what boto3 calls them.
_CLIENT_OPTIONS = {
    "s3.endpoint": "endpoint_url",
    "s3.region": "region_name",
    "s3.access-key": "aws_access_key_id",
    "s3.secret-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
}
_PATH_STYLE = "s3.path-style-access"
OPTIONS = (*_CLIENT_OPTIONS, _PATH_STYLE)


@functools.lru_cache(maxsize=16)
def _client(options: frozenset[tuple[str, str]], process: int) -> Any:
    """One client per process and settings, because making one takes a tenth of a second. Threads may share it."""
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as missing:
        raise Misuse(
            "tables on S3 need the package boto3: pip install 'streamsink[s3]', on executors too",
            kind="store.extra-missing",
        ) from missing
    given = dict(options)
    more: dict[str, Any] = {}
    if "s3.endpoint" in given:
        # Not every server that speaks S3 knows the checksums that newer clients add by default.
        more = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
    if _PATH_STYLE in given:
        more["s3"] = {"addressing_style": "path" if given[_PATH_STYLE].lower() == "true" else "virtual"}
    config = Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        **more,
    )
    settings = {name: given[key] for key, name in _CLIENT_OPTIONS.items() if key in given}
    try:
        return boto3.session.Session().client("s3", config=config, **settings)
    except (ValueError, BotoCoreError) as refused:
        raise Misuse(
            f"the S3 client refuses its settings: {refused}. Mend store_options ({', '.join(sorted(given))})",
            kind="store.options",
        ) from refused


class S3Calls(Calls):
    """Requests about objects. Paths are URIs: ``s3://bucket/key`` or ``s3a://bucket/key``."""

    def __init__(self, options: Mapping[str, str]):
        """options: values of ``OPTIONS``.

        What is missing comes from the environment and the files that every AWS client reads.
        """
        self._client = _client(frozenset(options.items()), os.getpid())
        self._clock = Clock()

    def read(self, path: str) -> bytes:
        return self._do(path, lambda at: self._client.get_object(**at)["Body"].read())

    def size(self, path: str) -> int | None:
        try:
            return self._do(path, lambda at: self._client.head_object(**at))["ContentLength"]
        except FileNotFoundError:
            return None

    def entries(self, path: str, beginning: str = "") -> list[tuple[str, int, bool]]:
        """As ``Calls.entries``. beginning: only entries whose names begin so, at the cost of these alone."""
        bucket, prefix = _split(path.rstrip("/") + "/")
        found = []
        for page in self._pages(path, "list_objects_v2", Bucket=bucket, Prefix=prefix + beginning, Delimiter="/"):
            objects = [o for o in page.get("Contents", ()) if o["Key"] != prefix]
            found += [(o["Key"][len(prefix) :], o["Size"], False) for o in objects]
            found += [(p["Prefix"][len(prefix) : -1], 0, True) for p in page.get("CommonPrefixes", ())]
        return found

    def open_new(self, path: str) -> BinaryIO:
        return cast(BinaryIO, Upload(self, path))

    def close(self, stream: BinaryIO, flush: bool) -> None:
        cast(Upload, stream).finish()

    def at_once(self, actions: Sequence[Callable[[], None]]) -> None:
        """Make requests concurrently: each takes a round trip."""
        in_threads(actions, AT_ONCE)

    def unlink(self, path: str) -> bool | None:
        self._do(path, lambda at: self._client.delete_object(**at))
        return None

    def put(self, path: str, data: bytes) -> None:
        """Write an object with this content, replacing an existing one."""
        self._do(path, lambda at: self._client.put_object(**_body(data), **at))

    def put_new(self, path: str, data: bytes, unique: str) -> bool:
        """Create an object that must not exist; False if it exists. Atomic.

        unique: an id of this attempt, kept as metadata of the object. The client repeats a request whose reply was
        lost, and is then refused because of the object that it created itself; ``unique`` tells that it is its own.
        """
        for _ in range(ATTEMPTS):
            try:
                self._do(
                    path,
                    lambda at: self._client.put_object(**_body(data), IfNoneMatch="*", Metadata={_TRY: unique}, **at),
                )
                return True
            except FileExistsError:
                return self._is_mine(path, data, unique)
            except BlockingIOError:
                self._clock.sleep_ms(_CONFLICT_WAIT_MS)  # another writer is creating it at this moment
        raise OSError(errno.EIO, "still being created by others", path)

    def _is_mine(self, path: str, data: bytes, unique: str) -> bool:
        """Whether this attempt created the object.

        Raises: OSError if it did, but the object is not whole, as on a server that does not check bodies.
        """

        def own(at: dict[str, str]) -> bytes | None:
            """The object's bytes; None when another attempt created it."""
            found = self._client.get_object(**at)
            return cast(bytes, found["Body"].read()) if found["Metadata"].get(_TRY) == unique else None

        kept = self._do(path, own)
        if kept is None:
            return False
        if kept != data:
            self.unlink(path)
            raise OSError(errno.EIO, "the server kept a part of a broken request; removed", path)
        return True

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store, replacing the target. Raises: FileNotFoundError."""
        bucket, key = _split(source)
        self._do(target, lambda at: self._client.copy_object(CopySource={"Bucket": bucket, "Key": key}, **at))

    def name_limits(self, path: str) -> NameLimits:
        bucket, key = _split(path)
        return NameLimits(None, _MOST_KEY_BYTES, path[: len(path) - len(key)])

    def remove_tree(self, path: str) -> None:
        """Delete every object below the path, a thousand with each request."""
        bucket, prefix = _split(path.rstrip("/") + "/")
        for page in self._pages(path, "list_objects_v2", Bucket=bucket, Prefix=prefix):
            keys = [{"Key": o["Key"]} for o in page.get("Contents", ())]
            for at in range(0, len(keys), _DELETED_AT_ONCE):
                doomed = {"Objects": keys[at : at + _DELETED_AT_ONCE], "Quiet": True}
                done = self._do(path, lambda _: self._client.delete_objects(Bucket=bucket, Delete=doomed))
                for refused in done.get("Errors", ())[:1]:
                    raise OSError(errno.EIO, f"deleting {refused.get('Key')}: {refused.get('Code')}", path)

    def unfinished(self, path: str, beginning: str = "") -> list[tuple[str, str]]:
        """(path, upload id) of each multipart upload below the path that was neither completed nor aborted.

        beginning: of the rest of the path.
        """
        bucket, prefix = _split(path.rstrip("/") + "/")
        pages = self._pages(path, "list_multipart_uploads", Bucket=bucket, Prefix=prefix + beginning)
        root = path[: path.index("://") + 3] + bucket
        return [(f"{root}/{u['Key']}", u["UploadId"]) for page in pages for u in page.get("Uploads", ())]

    def abort(self, path: str, upload: str) -> None:
        """Abort an unfinished upload; does nothing if it does not exist any more."""
        try:
            self._do(path, lambda at: self._client.abort_multipart_upload(UploadId=upload, **at))
        except FileNotFoundError:
            return

    # -- multipart uploads, for ``Upload`` -------------------------------------------------------------------------

    def begin(self, path: str) -> str:
        return self._do(path, lambda at: self._client.create_multipart_upload(**at))["UploadId"]

    def part(self, path: str, upload: str, number: int, data: bytes) -> dict[str, Any]:
        done = self._do(
            path, lambda at: self._client.upload_part(UploadId=upload, PartNumber=number, **_body(data), **at)
        )
        return {"PartNumber": number, "ETag": done["ETag"]}

    def complete(self, path: str, upload: str, parts: list[dict[str, Any]], size: int) -> None:
        try:
            self._do(
                path,
                lambda at: self._client.complete_multipart_upload(
                    UploadId=upload, MultipartUpload={"Parts": parts}, **at
                ),
            )
        except FileNotFoundError:
            # A request that is repeated after a lost reply finds no upload, because the first one completed it.
            if self.size(path) != size:
                raise

    def _pages(self, path: str, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        pages = iter(self._client.get_paginator(operation).paginate(**arguments))
        while (page := self._do(path, lambda _: next(pages, None))) is not None:
            yield page

    def _do(self, path: str, request: Callable[..., Any]) -> Any:
        """Make a request about the object of this path. Failures are raised as the OSError that a disk would give."""
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

        bucket, key = _split(path)
        try:
            return request({"Bucket": bucket, "Key": key})
        except (NoCredentialsError, PartialCredentialsError) as missing:
            raise Misuse(
                f"{path}: no credentials for S3 were found. Give them in the environment or a file that every AWS "
                "client reads, or in store_options (s3.access-key, s3.secret-key)",
                kind="store.credentials",
            ) from missing
        except ClientError as failed:
            raise _as_os_error(failed, path) from failed
        except BotoCoreError as failed:
            raise OSError(errno.EIO, str(failed), path) from failed


def _as_os_error(failed: Any, path: str) -> Exception:
    status = failed.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = failed.response.get("Error", {}).get("Code", "")
    if code == "NoSuchBucket":
        return Misuse(
            f"{path}: the bucket does not exist. Create it, or give the path of another one", kind="store.bucket"
        )
    if status == 404:
        return FileNotFoundError(errno.ENOENT, "no such object", path)
    if status == 412:
        return FileExistsError(errno.EEXIST, "object exists", path)
    if status == 409:
        return BlockingIOError(errno.EAGAIN, f"S3 said {code}", path)
    if status in (401, 403):
        return PermissionError(errno.EACCES, f"S3 said {code}", path)
    return OSError(_MEANING.get(code, errno.EIO), f"S3 said {status} {code}", path)


# S3's error codes for which a disk has an errno of the same meaning.
_MEANING = {
    "KeyTooLongError": errno.ENAMETOOLONG,
    "InsufficientStorage": errno.ENOSPC,
    "XMinioStorageFull": errno.ENOSPC,
}


class Upload(io.RawIOBase):
    """An object that is being written: with one PUT if it is small, otherwise with a multipart upload.

    It appears when ``finish`` is called. ``close`` without ``finish`` gives it up.
    """

    def __init__(self, calls: S3Calls, path: str):
        super().__init__()
        self._calls = calls
        self._path = path
        self._buffer = bytearray()
        self._written = 0
        self._upload: str | None = None
        self._parts: list[dict[str, Any]] = []

    def write(self, data: "ReadableBuffer") -> int:
        view = memoryview(data)
        self._buffer += view
        self._written += view.nbytes
        while len(self._buffer) >= PART_BYTES:
            self._send(bytes(self._buffer[:PART_BYTES]))
            del self._buffer[:PART_BYTES]
        return view.nbytes

    def tell(self) -> int:
        return self._written

    def writable(self) -> bool:
        return True

    def finish(self) -> None:
        """Complete the object: it exists afterwards, whole."""
        if self._upload is None:
            self._calls.put(self._path, bytes(self._buffer))
        else:
            if self._buffer:
                self._send(bytes(self._buffer))
            self._calls.complete(self._path, self._upload, self._parts, self._written)
            self._upload = None
        self.close()

    def close(self) -> None:
        if not self.closed and self._upload is not None:
            self._calls.abort(self._path, self._upload)
            self._upload = None
        super().close()

    def _send(self, data: bytes) -> None:
        if self._upload is None:
            self._upload = self._calls.begin(self._path)
        self._parts.append(self._calls.part(self._path, self._upload, len(self._parts) + 1, data))


def _body(data: bytes) -> dict[str, Any]:
    """Content with its digest, so that no server takes a part for the whole when a connection breaks."""
    return {"Body": data, "ContentMD5": base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()}


def _split(path: str) -> tuple[str, str]:
    """(bucket, key) of a URI."""
    bucket, _, key = path.partition("://")[2].partition("/")
    return bucket, key
