"""Requests to S3, and to servers that speak its protocol, through ``boto3``: the calls under ``s3.py``."""

import base64
import errno
import functools
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from streamsink.clock import Clock
from streamsink.storage.calls import CALLS_AT_ONCE, Calls, NameLimits
from streamsink.storage.flush_group import in_threads
from streamsink.storage.s3_client import (
    LONG_PATIENCE,
    OF_PROVIDERS,
    OPTIONS,
    PATIENCE,
    Patience,
    S3Client,
    client_of,
    failure,
    is_about_keys,
    is_of_another_service,
    is_refused,
    no_page,
    refusal,
    tells_nothing,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["MOST_COPIED_BYTES", "OPTIONS", "PART_BYTES", "S3Calls", "Upload"]

PART_BYTES = 16 * 1024 * 1024  # size of a part of a multipart upload, which may have 10,000 parts
MOST_COPIED_BYTES = 5 * 1024**3  # CopyObject's limit
MOST_WRITTEN_BYTES = 10_000 * PART_BYTES
_MOST_KEY_BYTES = 1_024
_DELETED_AT_ONCE, _CONFLICT_WAIT_MS, _BROKEN_WAIT_MS = 1_000, 100, 50
_TRY = "streamsink-try"  # metadata key whose value tells which attempt created an object
# What the next page of a listing is asked with, and where the last page says it.
_NEXT = {
    "list_objects_v2": {"ContinuationToken": "NextContinuationToken"},
    "list_multipart_uploads": {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"},
}


def _head(calls: "S3Calls", path: str) -> Mapping[str, Any]:
    """What the store says of an object; nothing where there is none."""
    try:
        found: Mapping[str, Any] = calls._do(path, lambda at: calls._client.head_object(**at))
        return found
    except FileNotFoundError:
        return {}


def _ms_of(moment: datetime | None) -> int | None:
    return int(moment.timestamp() * 1000) if moment is not None else None


class S3Calls(Calls):
    """Requests about objects. Paths are URIs: ``s3://bucket/key`` or ``s3a://bucket/key``."""

    def __init__(self, options: Mapping[str, str], patience: Patience = PATIENCE, long: Patience = LONG_PATIENCE):
        """options: values of ``OPTIONS``.

        What is missing comes from the environment and the files that every AWS client reads.
        patience: of most requests. long: of those for which the store does a lot of work before it answers.
        """
        self._options = frozenset(options.items())
        self._patience, self._long = patience, long
        self._of_most = client_of(self._options, patience, os.getpid())
        self._clock = Clock()

    @property
    def _client(self) -> Any:
        return self._of_most.now

    @functools.cached_property
    def _patient(self) -> S3Client:
        return client_of(self._options, self._long, os.getpid())

    def read(self, path: str) -> bytes:
        return self._content(path)[0]

    def size(self, path: str) -> int | None:
        return _head(self, path).get("ContentLength")

    def modified_ms(self, path: str) -> int | None:
        return _ms_of(_head(self, path).get("LastModified"))

    def entries(self, path: str, beginning: str = "") -> list[tuple[str, int, bool]]:
        """As ``Calls.entries``. beginning: only entries whose names begin so, at the cost of these alone."""
        bucket, prefix = _split(path.rstrip("/") + "/")
        found = []
        for page in self._pages(path, "list_objects_v2", Bucket=bucket, Prefix=prefix + beginning, Delimiter="/"):
            objects = [o for o in page.get("Contents", ()) if o["Key"] != prefix]
            found += [(o["Key"][len(prefix) :], o["Size"], False) for o in objects]
            found += [(p["Prefix"][len(prefix) : -1], 0, True) for p in page.get("CommonPrefixes", ())]
        return found

    def below(self, path: str) -> list[str]:
        """The paths of all objects below the path."""
        bucket, prefix = _split(path.rstrip("/") + "/")
        root = path[: path.index("://") + 3] + bucket
        pages = self._pages(path, "list_objects_v2", Bucket=bucket, Prefix=prefix)
        return [f"{root}/{o['Key']}" for page in pages for o in page.get("Contents", ()) if o["Key"] != prefix]

    def open_new(self, path: str) -> BinaryIO:
        return cast(BinaryIO, Upload(self, path))

    def close(self, stream: BinaryIO, flush: bool) -> None:
        cast(Upload, stream).finish()

    def at_once(self, actions: Sequence[Callable[[], None]]) -> None:
        """Make requests concurrently: each takes a round trip."""
        in_threads(actions, CALLS_AT_ONCE)

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
        return self.try_new(path, data, unique) or self._is_mine(path, data, unique)

    def try_new(self, path: str, data: bytes, unique: str) -> bool:
        """As ``put_new``, but False wherever the server has refused it, which does not take another request to know."""
        said = {**_body(data), "IfNoneMatch": "*", "Metadata": {_TRY: unique}}
        for _ in range(self._patience.attempts):
            try:
                self._do(path, lambda at: self._client.put_object(**said, **at))
                return True
            except FileExistsError:
                return False
            except BlockingIOError:
                self._clock.sleep_ms(_CONFLICT_WAIT_MS)  # another writer is creating it at this moment
        raise OSError(errno.EBUSY, "still being created by others", path)

    def _is_mine(self, path: str, data: bytes, unique: str) -> bool:
        """Whether this attempt created the object. Raises OSError if it did, and the server has kept a part of it."""
        kept, metadata = self._content(path)
        if metadata.get(_TRY) != unique:
            return False
        if kept != data:
            self.unlink(path)
            raise OSError(errno.EIO, "the server kept a part of a broken request; removed", path)
        return True

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store, replacing the target. Raises: FileNotFoundError."""
        bucket, key = _split(source)
        self._do(
            target,
            lambda at: self._patient.now.copy_object(CopySource={"Bucket": bucket, "Key": key}, **at),
            self._patient,
        )

    def name_limits(self, path: str) -> NameLimits:
        bucket, key = _split(path)
        return NameLimits(None, _MOST_KEY_BYTES, path[: len(path) - len(key)])

    def remove_tree(self, path: str) -> None:
        """Delete every object below the path, a thousand with each request."""
        bucket, prefix = _split(path.rstrip("/") + "/")
        for page in self._pages(path, "list_objects_v2", Bucket=bucket, Prefix=prefix):
            self._remove(path, bucket, [o["Key"] for o in page.get("Contents", ())])

    def remove_all(self, paths: Sequence[str]) -> None:
        """Delete these objects of one bucket, at least one, a thousand with each request."""
        self._remove(paths[0], _split(paths[0])[0], [_split(path)[1] for path in paths])

    def _remove(self, path: str, bucket: str, keys: Sequence[str]) -> None:
        for at in range(0, len(keys), _DELETED_AT_ONCE):
            doomed = {"Objects": [{"Key": key} for key in keys[at : at + _DELETED_AT_ONCE]], "Quiet": True}
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
                lambda at: self._patient.now.complete_multipart_upload(
                    UploadId=upload, MultipartUpload={"Parts": parts}, **at
                ),
                self._patient,
            )
        except FileNotFoundError:
            # A request that is repeated after a lost reply finds no upload, because the first one completed it.
            if self.size(path) != size:
                raise

    def _pages(self, path: str, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """The pages of a listing, each by a request of its own: a failed one never ends a listing as if it were whole.

        Raises: OSError when the store gives the same page twice, which would have no end.
        """
        last: dict[str, Any] = {}
        is_cut = True
        while is_cut:
            page = self._do(path, lambda _: getattr(self._client, operation)(**arguments, **last))
            yield page
            is_cut = page.get("IsTruncated", False)
            following = {name: page[said] for name, said in _NEXT[operation].items() if page.get(said)}
            if is_cut and following in ({}, last):
                raise OSError(errno.EIO, "the listing does not go on", path)
            last = following

    def _content(self, path: str) -> tuple[bytes, Mapping[str, str]]:
        """An object's bytes and metadata. The client does not repeat an answer that breaks off; this does."""
        from botocore.exceptions import BotoCoreError

        for left in reversed(range(self._patience.attempts)):
            found = no_page(self._do(path, lambda at: self._client.get_object(**at)), path)
            try:
                return found["Body"].read(), found["Metadata"]
            except BotoCoreError as broken:
                if not left:
                    raise failure(broken, path) from broken
            self._clock.sleep_ms(_BROKEN_WAIT_MS)
        raise OSError(errno.EINVAL, "no attempts", path)

    def _do(self, path: str, request: Callable[[dict[str, str]], Any], by: S3Client | None = None) -> Any:
        """Make a request about the object of this path. Failures are raised as the OSError that a disk would give.

        by: the client by which it is made, when it is not that of most requests. When its keys are no longer taken and
        there are others, the request is made once more: the refused one has done nothing.
        """
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError
        from urllib3.exceptions import HTTPError

        by = by or self._of_most
        for left in reversed(range(self._patience.attempts)):
            try:
                return self._made(path, request, by)
            except ClientError as failed:
                raise refusal(failed, path, by.whose_keys()) from failed
            except HTTPError as broken:
                # The answer of an error that breaks off, such as "no such key": boto3 neither repeats nor wraps that.
                if not left:
                    raise failure(broken, path) from broken
            except (BotoCoreError, ResponseParserError, *OF_PROVIDERS) as failed:
                raise failure(failed, path) from failed
            self._clock.sleep_ms(_BROKEN_WAIT_MS)
        raise OSError(errno.EINVAL, "no attempts", path)

    def _made(self, path: str, request: Callable[[dict[str, str]], Any], by: S3Client) -> Any:
        """The answer to the request, which is made again when there are other keys than those that were refused."""
        from botocore.exceptions import ClientError

        bucket, key = _split(path)
        at = {"Bucket": bucket, "Key": key}
        used = by.now
        try:
            return request(at)
        except ClientError as failed:
            told = self._reason(failed, at)
            if not is_about_keys(told) or not by.renew(used):
                raise told from None
        return request(at)

    def _reason(self, failed: Any, at: dict[str, str]) -> Any:
        """The ClientError that says why, for one of a HEAD, whose answer has no body: a GET is refused likewise."""
        from botocore.exceptions import ClientError

        if not tells_nothing(failed):
            return failed
        try:
            self._client.get_object(Range="bytes=0-0", **at)
        except ClientError as told:
            return told if is_refused(told) or is_of_another_service(told) else failed
        return failed


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
