"""What the requests of one batch amount to. Nothing here measures: requests come in, numbers come out."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from tests.services.s3_requests import Request

# (begin, end) in seconds of time.time().
Interval = tuple[float, float]
KINDS = ("PUT", "COPY", "GET", "HEAD", "LIST", "DELETE", "POST")
# What the proxy tells apart and a price list does not. POST is the begin and the end of an upload in parts.
_SHOWN_AS = {
    "PART": "PUT",
    "PART_COPY": "COPY",
    "LIST_UPLOADS": "LIST",
    "LIST_PARTS": "LIST",
    "DELETE_MANY": "DELETE",
    "CREATE_UPLOAD": "POST",
    "COMPLETE": "POST",
}
DEAR = ("PUT", "COPY", "LIST", "POST")
# Dollars for a million requests by Amazon's list price (S3 Standard, us-east-1); DELETE is free.
_PRICES = {**dict.fromkeys(DEAR, 5.00), "GET": 0.40, "HEAD": 0.40, "DELETE": 0.0}


@dataclass(frozen=True)
class Batch:
    """One trigger of a query: from when to when it lasted, what it asked of the store, and when Spark computed.

    number: the batch's id. took: Spark's durationMs. A run's first batch begins with the query's start. jobs: Spark's,
    each with its plan where it is known when that began.
    """

    number: int
    span: Interval
    took: dict[str, int]
    requests: Sequence[Request]
    jobs: Sequence[Interval] = ()


def kind_of(request: Request) -> str:
    """One of ``KINDS``."""
    found = _SHOWN_AS.get(request.kind, request.kind)
    return found if found in KINDS else {"GET": "GET", "HEAD": "HEAD", "DELETE": "DELETE"}.get(request.method, "PUT")


def by_kind(requests: Iterable[Request]) -> dict[str, int]:
    """How many there are of each of ``KINDS``, in that order."""
    counted = Counter(kind_of(request) for request in requests)
    return {kind: counted[kind] for kind in KINDS}


def dear(requests: Iterable[Request]) -> int:
    """How many are of the kinds that cost as much as a PUT."""
    return sum(kind_of(request) in DEAR for request in requests)


def dollars(requests: Iterable[Request]) -> float:
    """The price of a million batches like this one."""
    return sum(_PRICES[kind_of(request)] for request in requests)


def spans(requests: Iterable[Request]) -> list[Interval]:
    """When they were under way; without those that were never answered."""
    return [(request.start_s, request.end_s) for request in requests if request.end_s]


def round_trips(intervals: Iterable[Interval]) -> int:
    """The longest chain of intervals of which each begins after the one before it has ended."""
    chain, free_from = 0, float("-inf")
    for begin, end in sorted(intervals, key=lambda interval: interval[1]):
        if begin >= free_from:
            chain, free_from = chain + 1, end
    return chain


def union_ms(intervals: Iterable[Interval]) -> float:
    """Milliseconds that at least one of them covers."""
    return sum(end - begin for begin, end in _merged(intervals)) * 1000


def uncovered_ms(intervals: Iterable[Interval], covers: Iterable[Interval]) -> float:
    """Milliseconds that at least one of ``intervals`` covers and none of ``covers``."""
    intervals, covers = list(intervals), list(covers)
    return union_ms([*intervals, *covers]) - union_ms(covers)


def beside(request: Request, jobs: Iterable[Interval]) -> bool:
    """Whether it begins while a job of Spark runs. With slow answers it may end later; that part is waited for."""
    return any(begin <= request.start_s < end for begin, end in _merged(jobs))


def copied_bytes(requests: Sequence[Request]) -> int:
    """Bytes that were copied within the store. requests: since before the first of the copied objects was written."""
    sizes: dict[str, int] = {}
    parts: Counter[str] = Counter()
    copied = 0
    for request in requests:
        upload = "".join(parse_qs(urlsplit(request.target).query).get("uploadId", []))
        if request.kind == "PUT":
            sizes[request.key] = request.up_bytes
        elif request.kind == "PART":
            parts[upload] += request.up_bytes
        elif request.kind == "COMPLETE":
            sizes[request.key] = parts.pop(upload, 0)
        elif request.kind == "PART_COPY" and upload not in parts:
            copied += sizes.get(_source(request), 0)  # the parts together are the whole source
            parts[upload] = sizes.get(_source(request), 0)
        elif request.kind == "COPY":
            sizes[request.key] = sizes.get(_source(request), request.copied_bytes)
            copied += sizes[request.key]
    return copied


def _source(request: Request) -> str:
    """The key of what it copies."""
    return unquote(request.headers["x-amz-copy-source"]).lstrip("/").partition("/")[2]


def _merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The same, in order and without overlap."""
    found: list[Interval] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif end > begin:
            found.append((begin, end))
    return found
