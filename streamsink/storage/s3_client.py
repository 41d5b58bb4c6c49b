"""Clients of S3 through ``boto3``: how they are set, how long they wait, their credentials, and what their errors mean.

What bounds a request: ``Patience``. What happens to keys that are no longer taken: ``S3Client.renew``.
"""

import contextlib
import errno
import functools
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamsink.errors import Misuse
from streamsink.storage.store_failures import EKEYEXPIRED, EKEYREJECTED, ENOKEY

# Our options, named as in Paimon and Flink, and what boto3 calls them.
_CLIENT_OPTIONS = {
    "s3.endpoint": "endpoint_url",
    "s3.region": "region_name",
    "s3.access-key": "aws_access_key_id",
    "s3.secret-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
}
_KEYS = ("s3.access-key", "s3.secret-key", "s3.session-token")
_PATH_STYLE = "s3.path-style-access"
OPTIONS = (*_CLIENT_OPTIONS, _PATH_STYLE)
# A driver makes up to 16 requests at once, beside those of its publishing thread and its hold, and the queries of one
# process share a client. A connection beyond these is closed after one request, and the next one begins with a new
# handshake. Those that are never needed are never opened.
CONNECTIONS = 32


@dataclass(frozen=True)
class Patience:
    """How long a request may take.

    connect_s: for connecting, and for sending each 16 KiB of a body. read_s: without a byte of the answer. attempts: in
    all; boto3 repeats what no answer came to, what the store calls its own failure, and what it throttles.

    A request that is never answered ends after ``attempts * read_s``, and one without a connection after ``attempts *
    connect_s``. The waits between the attempts add at most 15 s when the store throttles.
    """

    connect_s: float = 10
    read_s: float = 20
    attempts: int = 5


PATIENCE = Patience()
# Before the store answers it copies up to 5 GiB, or puts an object of that size together.
LONG_PATIENCE = Patience(read_s=120, attempts=3)


@functools.lru_cache(maxsize=16)
def client_of(options: frozenset[tuple[str, str]], patience: Patience, process: int) -> "S3Client":
    """One client per process and settings, because making one takes a tenth of a second. Threads may share it.

    process: its id, because a forked child must not share its parent's connections.
    """
    return S3Client(dict(options), patience)


class S3Client:
    """A client of boto3, which another one replaces when its keys are no longer taken. Threads may share it."""

    def __init__(self, options: Mapping[str, str], patience: Patience):
        """Raises: Misuse for a missing package or settings that boto3 refuses."""
        self._options = options
        self._patience = patience
        self._lock = threading.Lock()
        self._made: tuple[Any, Any] | None = None
        with contextlib.suppress(OSError):  # no keys: the first request tries it again, and says for what
            self._made = _made(options, patience)

    @property
    def now(self) -> Any:
        """The client to use. Raises: OSError when what gives the keys fails."""
        made = self._made
        if made is None:
            with self._lock:
                made = self._made = self._made or _made(self._options, self._patience)
        return made[1]

    def renew(self, refused: Any) -> bool:
        """Replace the client ``refused``, whose keys the store no longer takes.

        boto3 renews keys of which it knows that they expire. But it does not read a file again, nor does it ask a
        program or a role again for keys that were withdrawn early.

        Returns whether there are other keys than those, so that asking again may help. Raises as ``now``.
        """
        if _has_keys(self._options):
            return False
        with self._lock:
            if self._made is None or self._made[1] is not refused:
                return True  # another thread was first
            made = _made(self._options, self._patience)
            if _keys_of(made[0]) == _keys_of(self._made[0]):
                return False
            self._made = made
            return True

    def whose_keys(self) -> str:
        """Where the keys come from, in words."""
        if _has_keys(self._options):
            return "the keys are those of store_options, which nothing renews"
        return "the keys are those that this machine's environment, files or roles give now"


def _keys_of(session: Any) -> object:
    """The keys that the environment, files or roles give. Raises: OSError when what gives them fails."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        found = session.get_credentials()
        return None if found is None else tuple(found.get_frozen_credentials())
    except ClientError as failed:
        raise refusal(failed, "", "") from failed
    except (BotoCoreError, *OF_PROVIDERS) as failed:
        raise failure(failed, "") from failed


def _made(options: Mapping[str, str], patience: Patience) -> tuple[Any, Any]:
    """(session, client). Raises as ``S3Client`` and ``_keys_of``."""
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as missing:
        raise Misuse(
            "tables on S3 need the package boto3: pip install 'streamsink[s3]', on executors too",
            kind="store.extra-missing",
        ) from missing
    more: dict[str, Any] = {}
    if "s3.endpoint" in options:
        # Not every server that speaks S3 knows the checksums that newer clients add by default.
        more = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
    if _PATH_STYLE in options:
        more["s3"] = {"addressing_style": "path" if options[_PATH_STYLE].lower() == "true" else "virtual"}
    config = Config(
        connect_timeout=patience.connect_s,
        read_timeout=patience.read_s,
        retries={"mode": "standard", "total_max_attempts": patience.attempts},
        max_pool_connections=CONNECTIONS,
        **more,
    )
    settings = {name: options[key] for key, name in _CLIENT_OPTIONS.items() if key in options}
    try:
        session = boto3.session.Session()
        if not _has_keys(options):
            _keys_of(session)
        client = session.client("s3", config=config, **settings)
    except (ValueError, BotoCoreError) as refused:
        raise Misuse(
            f"the S3 client refuses its settings: {refused}. Mend store_options ({', '.join(sorted(options))})",
            kind="store.options",
        ) from refused
    client.meta.events.register_last("before-call.s3", _send_the_body_at_once)
    return session, client


def _has_keys(options: Mapping[str, str]) -> bool:
    return any(name in options for name in _KEYS)


def _send_the_body_at_once(params: dict[str, Any], **_: Any) -> None:
    """Without the header by which boto3 asks before each body, and waits a round trip for the leave to send it."""
    params["headers"].pop("Expect", None)


# -- errors ------------------------------------------------------------------------------------------------------------

# What comes out of boto3 as it is when keys are fetched anew within a request: a program that is not there, or whose
# output is not JSON, or that gives keys which have expired already. Never is it about the object.
OF_PROVIDERS = (OSError, ValueError, RuntimeError)

# What is asked of S3. Errors of other operations are of services that give keys.
_OPERATIONS = frozenset(
    "GetObject HeadObject PutObject CopyObject DeleteObject DeleteObjects ListObjectsV2 CreateMultipartUpload "
    "UploadPart CompleteMultipartUpload AbortMultipartUpload ListMultipartUploads".split()
)
_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired")
_REJECTED = ("InvalidAccessKeyId", "InvalidClientTokenId", "InvalidToken", "InvalidSecurity", "SignatureDoesNotMatch")
_OTHER_REGION = ("AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException")
_THROTTLED = ("SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequestsException")
# S3's other error codes for which a disk has an errno of the same meaning.
_MEANING = {
    "KeyTooLongError": errno.ENAMETOOLONG,
    "InsufficientStorage": errno.ENOSPC,
    "XMinioStorageFull": errno.ENOSPC,
}


def is_about_keys(failed: Any) -> bool:
    """Whether the store has refused the keys themselves, and not what they may do. failed: a ClientError."""
    return failed.operation_name in _OPERATIONS and _code_of(failed) in (*_EXPIRED, *_REJECTED)


def is_refused(failed: Any) -> bool:
    """Whether the store has refused the request, whatever it is about. failed: a ClientError."""
    return _status_of(failed) in (400, 401, 403)


def tells_nothing(failed: Any) -> bool:
    """Whether the request was refused without a reason, because the answer to a HEAD has no body; or what is not there
    may be S3 itself.
    """
    without = _code_of(failed) in ("", str(_status_of(failed)))
    return without and (is_refused(failed) or failed.operation_name == "HeadObject" and _is_page(_headers_of(failed)))


def no_page(found: Any, path: str) -> Any:
    """The answer to a GET. Raises TimeoutError where it is a page of a web server, and no object."""
    if _is_page({"content-type": str(found.get("ContentType", ""))}):
        raise _no_s3(path, "its answer is a page")
    return found


def _no_s3(path: str, what: str) -> OSError:
    """The error for an answer that no S3 gives. what: the answer."""
    return TimeoutError(errno.ETIMEDOUT, f"what answers there is no S3: {what}", path)


def refusal(failed: Any, path: str, keys: str) -> Exception:
    """The error that a disk would give, for one of the store's. failed: a ClientError. keys: ``whose_keys``."""
    status, code = _status_of(failed), _code_of(failed)
    if failed.operation_name not in _OPERATIONS:  # keys were to be fetched anew within the request
        return OSError(ENOKEY, f"fetching keys failed: {failed.operation_name} said {status} {code}", path)
    said = f"S3 said {status} {code}".strip()
    if code == "NoSuchBucket":
        return Misuse(
            f"{path}: the bucket does not exist. Create it, or give the path of another one", kind="store.bucket"
        )
    if code in _EXPIRED:
        return OSError(EKEYEXPIRED, f"{said}; {keys}", path)
    if code in _REJECTED:
        return OSError(EKEYREJECTED, f"{said}; {keys}", path)
    if code in _OTHER_REGION:
        return Misuse(
            f"{path}: {said}: the bucket is in another region than s3.region in store_options says, or than this "
            "machine's AWS settings do. Give the bucket's in s3.region, and its s3.endpoint if that names a region",
            kind="store.options",
        )
    if code == "RequestTimeTooSkewed":
        return Misuse(
            f"{path}: {said}: the clock of {os.uname().nodename} is wrong, and S3 takes requests of the last 15 "
            "minutes alone. What is published stays as it is. Set the clock there, then start it again",
            kind="store.clock",
        )
    if is_of_another_service(failed):
        return _no_s3(path, f"HTTP {status} to {failed.operation_name}")
    if status == 404:
        return FileNotFoundError(errno.ENOENT, "no such object", path)
    if status == 412:
        return FileExistsError(errno.EEXIST, "object exists", path)
    if status == 409:
        return BlockingIOError(errno.EAGAIN, said, path)
    if status in (401, 403):
        return PermissionError(errno.EACCES, said, path)
    if code in _THROTTLED or status in (429, 500, 502, 503, 504):
        return OSError(errno.EBUSY, said, path)
    return OSError(_MEANING.get(code, errno.EIO), said, path)


def failure(failed: Exception, path: str) -> Exception:
    """The same for a failure of the client: no keys, no connection, no answer.

    failed: a BotoCoreError, an answer that boto3 cannot read, an HTTPError of urllib3, or one of ``OF_PROVIDERS``. No
    text of a provider is repeated: it may hold what the user's own program has printed.
    """
    from botocore import exceptions as of
    from botocore.parsers import ResponseParserError
    from urllib3.exceptions import HTTPError

    if isinstance(failed, ResponseParserError):
        return _no_s3(path, "its answer cannot be read")

    if isinstance(failed, (of.NoCredentialsError, of.PartialCredentialsError)):
        return Misuse(
            f"{path}: no credentials for S3 were found on {os.uname().nodename}. Give them there in the environment "
            "(that of Spark's executors: spark.executorEnv.*) or a file that every AWS client reads, or in "
            "store_options (s3.access-key, s3.secret-key)",
            kind="store.credentials",
        )
    if isinstance(failed, (of.HTTPClientError, of.ConnectionError, of.IncompleteReadError, HTTPError)):
        return TimeoutError(errno.ETIMEDOUT, str(failed), path)
    if isinstance(failed, (of.CredentialRetrievalError, of.MetadataRetrievalError)):
        named = failed.kwargs.get("provider", "the metadata service")
        return OSError(ENOKEY, f"fetching keys from {named} failed", path)
    if isinstance(failed, of.BotoCoreError):
        return OSError(errno.EIO, str(failed), path)
    if isinstance(failed, RuntimeError) and "expired" in str(failed):
        return OSError(EKEYEXPIRED, "the keys that were fetched anew have expired already", path)
    if isinstance(failed, OSError) and failed.errno in (ENOKEY, EKEYEXPIRED):
        return OSError(failed.errno, failed.strerror, path)
    return OSError(ENOKEY, f"fetching keys failed with {type(failed).__name__}", path)


def is_of_another_service(failed: Any) -> bool:
    """Whether the answer is no refusal of an S3, which gives each a code: the port is of something else, or expects
    TLS. The answer to a HEAD has no code; and some servers give none where an object is missing. failed: a ClientError.
    """
    status, operation = _status_of(failed), failed.operation_name
    if operation not in _OPERATIONS or _code_of(failed) not in ("", str(status)):
        return False
    if status in (405, 501):
        return True
    if operation == "HeadObject":
        return False
    return status == 400 or status == 404 and operation == "ListObjectsV2" or _is_page(_headers_of(failed))


def _is_page(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", "").startswith("text/html")


def _headers_of(failed: Any) -> Mapping[str, str]:
    found: Mapping[str, str] = failed.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return found


def _status_of(failed: Any) -> int:
    return int(failed.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code_of(failed: Any) -> str:
    return str(failed.response.get("Error", {}).get("Code", ""))
