"""S3 and what speaks its protocol, through ``boto3``. See docs/design/0003-stores.md.

An object is there whole or not at all, and durable when the reply comes. What publishes is a PUT with
``If-None-Match: *``; files get their final names by copies within the store. There are no folders.
"""

import base64
import errno
import functools
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

from streamsink.clock import Clock
from streamsink.errors import Misuse
from streamsink.storage.calls import Calls, NameLimits, size_of
from streamsink.storage.file_io import FileIO, is_there
from streamsink.storage.flush_group import FlushGroup, Unflushed
from streamsink.storage.hold import BeatingHold, Hold

CONNECT_TIMEOUT_S, READ_TIMEOUT_S, ATTEMPTS = 10, 60, 5
PART_BYTES = 16 * 1024 * 1024  # of a multipart upload, which may have 10,000
MOST_COPIED_BYTES = 5 * 1024**3  # CopyObject's limit
_MOST_KEY_BYTES, _LONG_NAME_BYTES = 1_024, 255
_DELETED_AT_ONCE, _CONFLICT_WAIT_MS = 1_000, 100
_TRY = "streamsink-try"
_PROBES = 3
# Names of the options as Paimon and Flink have them.
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
def _client(options: frozenset[Any], process: int):
    """One client per process and settings: making one takes a tenth of a second. Safe between threads."""
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
    more = {}
    if "s3.endpoint" in given:
        # Not every server that speaks S3 knows the checksums that newer clients add by themselves.
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
    """Requests. Paths are URIs: ``s3://bucket/key`` or ``s3a://bucket/key``."""

    def __init__(self, options: Mapping[str, str]):
        """options: see ``OPTIONS``; what is missing comes from the environment and files that every AWS client reads."""
        self._client = _client(frozenset(options.items()), os.getpid())
        self._clock = Clock()

    def read(self, path: str) -> bytes:
        return self._do(path, lambda at: self._client.get_object(**at)["Body"].read())

    def size(self, path: str) -> int | None:
        try:
            return self._do(path, lambda at: self._client.head_object(**at))["ContentLength"]
        except FileNotFoundError:
            return None

    def entries(self, path: str) -> list[tuple[str, int, bool]]:
        bucket, prefix = _split(path.rstrip("/") + "/")
        found = []
        for page in self._pages(path, "list_objects_v2", Bucket=bucket, Prefix=prefix, Delimiter="/"):
            objects = [o for o in page.get("Contents", ()) if o["Key"] != prefix]
            found += [(o["Key"][len(prefix) :], o["Size"], False) for o in objects]
            found += [(p["Prefix"][len(prefix) : -1], 0, True) for p in page.get("CommonPrefixes", ())]
        return found

    def open_new(self, path: str) -> BinaryIO:
        return _Upload(self, path)

    def close(self, stream: BinaryIO, flush: bool) -> None:
        stream.finish()

    def unlink(self, path: str) -> bool | None:
        self._do(path, lambda at: self._client.delete_object(**at))

    def put(self, path: str, data: bytes) -> None:
        """An object with this content, replacing what was there."""
        self._do(path, lambda at: self._client.put_object(**_body(data), **at))

    def put_new(self, path: str, data: bytes, unique: str) -> bool:
        """An object that must not exist; False when it does. Atomic.

        The client repeats a request whose reply was lost, and is then refused by its own object: the mark tells.
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
                self._clock.sleep_ms(_CONFLICT_WAIT_MS)  # another one is creating it at this moment
        raise OSError(errno.EIO, "still being created by others", path)

    def _is_mine(self, path: str, data: bytes, unique: str) -> bool:
        """Whether the object is of this try. Raises OSError when it is, but not whole: a server that does not check bodies."""
        found = self._do(path, lambda at: self._client.get_object(**at))
        if found["Metadata"].get(_TRY) != unique:
            return False
        if found["Body"].read() != data:
            self.unlink(path)
            raise OSError(errno.EIO, "the server kept a part of a broken request; removed", path)
        return True

    def copy(self, source: str, target: str) -> None:
        """A copy within the store, replacing. Raises FileNotFoundError."""
        bucket, key = _split(source)
        self._do(target, lambda at: self._client.copy_object(CopySource={"Bucket": bucket, "Key": key}, **at))

    def name_limits(self, path: str) -> NameLimits:
        bucket, key = _split(path)
        return NameLimits(None, _MOST_KEY_BYTES, path[: len(path) - len(key)])

    def remove_tree(self, path: str) -> None:
        """Every object below, a thousand a request."""
        bucket, prefix = _split(path.rstrip("/") + "/")
        for page in self._pages(path, "list_objects_v2", Bucket=bucket, Prefix=prefix):
            keys = [{"Key": o["Key"]} for o in page.get("Contents", ())]
            for at in range(0, len(keys), _DELETED_AT_ONCE):
                doomed = {"Objects": keys[at : at + _DELETED_AT_ONCE], "Quiet": True}
                done = self._do(path, lambda _: self._client.delete_objects(Bucket=bucket, Delete=doomed))
                for refused in done.get("Errors", ())[:1]:
                    raise OSError(errno.EIO, f"deleting {refused.get('Key')}: {refused.get('Code')}", path)

    def unfinished(self, path: str) -> list[tuple[str, str]]:
        """(path, upload id) of multipart uploads below that were neither finished nor given up."""
        bucket, prefix = _split(path.rstrip("/") + "/")
        pages = self._pages(path, "list_multipart_uploads", Bucket=bucket, Prefix=prefix)
        root = path[: path.index("://") + 3] + bucket
        return [(f"{root}/{u['Key']}", u["UploadId"]) for page in pages for u in page.get("Uploads", ())]

    def abort(self, path: str, upload: str) -> None:
        """Give an unfinished upload up; fine when it is gone."""
        try:
            self._do(path, lambda at: self._client.abort_multipart_upload(UploadId=upload, **at))
        except FileNotFoundError:
            return

    # -- multipart uploads, for ``_Upload`` ------------------------------------------------------------------------

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
            if self.size(path) != size:  # else repeated after a lost reply: the upload is gone because it is finished
                raise

    def _pages(self, path: str, operation: str, **arguments) -> Iterator[dict[str, Any]]:
        pages = iter(self._client.get_paginator(operation).paginate(**arguments))
        while (page := self._do(path, lambda _: next(pages, None))) is not None:
            yield page

    def _do(self, path: str, request: Callable[..., Any]):
        """One request about the object of this path; its failures as OSError of the kind that a disk would give."""
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

        bucket, key = _split(path)
        try:
            return request({"Bucket": bucket, "Key": key})
        except (NoCredentialsError, PartialCredentialsError) as missing:
            raise Misuse(
                f"{path}: no credentials for S3 were found. Give them in the environment or a file that every AWS client "
                "reads, or in store_options (s3.access-key, s3.secret-key)",
                kind="store.credentials",
            ) from missing
        except ClientError as failed:
            raise _as_os_error(failed, path) from failed
        except BotoCoreError as failed:
            raise OSError(errno.EIO, str(failed), path) from failed


def _as_os_error(failed, path: str) -> Exception:
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


# Codes whose meaning a disk would tell as well.
_MEANING = {
    "KeyTooLongError": errno.ENAMETOOLONG,
    "InsufficientStorage": errno.ENOSPC,
    "XMinioStorageFull": errno.ENOSPC,
}


class S3FileIO(FileIO):
    """FileIO without folders, links and renames."""

    takes_files_of_others = False
    lists_sizes = True
    largest_file = MOST_COPIED_BYTES

    def __init__(self, calls: S3Calls, new_id: Callable[[], str], table: str):
        """table: its path; below it the store is tried out, once, before the first write."""
        super().__init__(calls, new_id)
        self._table = table

    @functools.cached_property
    def atomic_create(self) -> bool:
        """Whether the server honours ``If-None-Match``. Tried out, because one that does not know it writes over, silently."""
        # A writer that starts meanwhile may sweep the object away between the two; a server that writes over does it each time.
        return any(self._refuses_the_second() for _ in range(_PROBES))

    def _refuses_the_second(self) -> bool:
        """Of two creations under one name."""
        # Where a creation that died may leave a hidden file, which is swept: so a probe that died is no foreign file either.
        probe = os.path.join(self._table, "schema", f".probe-{self._new_id()}.tmp")
        try:
            return self._calls.put_new(probe, b"", "1") and not self._created_again(probe)
        except OSError as failed:
            if "501" not in failed.strerror:  # not implemented, which is an answer too
                raise
            return False
        finally:
            self._calls.unlink(probe)

    def _created_again(self, probe: str) -> bool:
        try:
            return self._calls.put_new(probe, b"", "2")
        except FileNotFoundError:
            return False  # refused, and swept before it could be looked at whose it is

    def make_dir(self, path: str) -> None:
        """There are none."""

    begin_dir = make_dir

    def _begin_names(self, folder, staging, group):
        """Servers that keep objects as files have their disk's limit of a name: a long one is tried out."""
        if max(size_of(name) for name in folder.split("/")) > _LONG_NAME_BYTES:
            probe = os.path.join(folder, f".probe-{self._new_id()}.tmp")
            self._calls.put(probe, b"")
            self._calls.unlink(probe)

    def sync_dir(self, path: str) -> None:
        """A name is durable when the reply comes."""

    def write(self, path: str, data: bytes) -> None:
        created = (
            self._calls.put_new(path, data, self._new_id()) if self.atomic_create else self._put_if_free(path, data)
        )
        if not created:
            raise FileExistsError(errno.EEXIST, "object exists", path)

    def begin(self, path: str, data: bytes) -> Unflushed:
        return Unflushed(lambda: self.write(path, data), lambda: None)

    def mark(self, path: str, data: bytes = b"") -> None:
        self._calls.put(path, data)

    def prepare(self, group: FlushGroup, path: str, data: bytes, unique: str) -> None:
        """A conditional PUT needs nothing."""

    def give_up(self, path: str, unique: str) -> None:
        """Nothing was prepared."""

    def create_new(
        self, path: str, data: bytes, unique: str = "", *, prepared: bool = False, replaceable: bool = False
    ) -> bool:
        if not self.atomic_create:
            return self._put_if_free(path, data)
        try:
            return self._calls.put_new(path, data, unique or self._new_id())
        except OSError as failed:
            return is_there(self, path, data, failed, replaceable)

    def _put_if_free(self, path: str, data: bytes) -> bool:
        """Look, then put: for a server without conditions, under a lock that others honour."""
        if self._calls.size(path) is not None:
            return False
        try:
            self._calls.put(path, data)
        except OSError as failed:
            return is_there(self, path, data, failed)
        return True

    def place(self, source: str, target: str, keep_source: bool) -> None:
        """A copy. The source stays in staging, which goes as a whole once the checkpoint is published."""
        try:
            self._calls.copy(source, target)
        except FileNotFoundError:
            if self._calls.size(target) is None:
                raise

    def replace(self, path: str, data: bytes, unique: str) -> None:
        self._calls.put(path, data)

    def delete_tree(self, path: str) -> None:
        self._calls.remove_tree(path)

    def delete_unfinished(self, folder: str) -> None:
        for path, upload in self._calls.unfinished(folder):
            self._calls.abort(path, upload)

    def hold(self, folder: str) -> Hold:
        return BeatingHold(self, folder)


class _Upload(io.RawIOBase):
    """An object being written: one PUT when it is small, else a multipart upload. Closed by itself it is given up."""

    def __init__(self, calls: S3Calls, path: str):
        super().__init__()
        self._calls = calls
        self._path = path
        self._buffer = bytearray()
        self._written = 0
        self._upload: str | None = None
        self._parts: list[dict[str, Any]] = []

    def write(self, data) -> int:
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
        """The object is there, whole."""
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
    """Content with its digest, so that no server takes a part of it for the whole when a connection breaks."""
    return {"Body": data, "ContentMD5": base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()}


def _split(path: str) -> tuple[str, str]:
    """(bucket, key) of a URI."""
    bucket, _, key = path.partition("://")[2].partition("/")
    return bucket, key
