"""Requests of this process say in their User-Agent, which no signature covers, which thread wanted them, and how many
round trips it had waited for. Then those that are made at once can be told from those that need each other's answers,
also on a busy machine, where one of the former may begin after another has ended.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import current_thread, local
from typing import Any

from benchmarks.s3.account import round_trips, spans
from streamsink.spark.gateway.collecting import Collecting
from streamsink.storage.s3_calls import S3Calls
from tests.services.s3_requests import Request

_TRIP, _THREAD = "bench-trip/", "bench-thread/"


class _Asking:
    """What one thread asks. by: the thread for which it does so, or ''. trip: the number of its last round trip.

    is_asking_at_once: whether it has others ask for it, and goes on behind the last of their answers.
    """

    def __init__(self, by: str = "", trip: int = 0):
        self.by, self.trip, self.is_asking_at_once = by, trip, False


class _Here(local):
    def __init__(self) -> None:
        self.asking = _Asking()


_HERE = _Here()


def thread_of(request: Request) -> str:
    """The name of our thread that made it, or that had it made by a pool; '' for requests of others."""
    return _agent(request).partition(_THREAD)[2].replace("~", " ")


def trip_of(request: Request) -> int:
    """Its number among the round trips of its thread, from 1; 0 for requests of others."""
    return int(_agent(request).partition(_TRIP)[2].partition(" ")[0] or 0)


def trips(requests: Iterable[Request]) -> int:
    """How many round trips these are, one after another: ours as they are numbered, those of others by their times."""
    requests = list(requests)
    ours = {(thread_of(request), trip_of(request)) for request in requests if trip_of(request)}
    return len(ours) + round_trips(spans(request for request in requests if not trip_of(request)))


def _agent(request: Request) -> str:
    return request.headers.get("user-agent", "")


@contextlib.contextmanager
def marked() -> Iterator[list[float]]:
    """Within it requests are marked. What a thread has done by a pool is the thread's own.

    Yields the times at which rows of a batch were asked for, which Spark plans and then computes in a job.
    """
    from botocore.httpsession import URLLib3Session

    asked = list[float]()

    def collecting(collect: Callable[..., None]) -> Callable[..., None]:
        def collected(self, df) -> None:
            asked.append(time.time())
            collect(self, df)

        return collected

    with contextlib.ExitStack() as replaced:
        for owner, name, around in (
            (URLLib3Session, "send", _sending),
            (ThreadPoolExecutor, "submit", _submitting),
            (S3Calls, "at_once", _asking_at_once),
            (Collecting, "__init__", collecting),
        ):
            was = getattr(owner, name)
            replaced.callback(setattr, owner, name, was)
            setattr(owner, name, around(was))
        yield asked


def _sending(send: Callable[..., Any]) -> Callable[..., Any]:
    """Around the client's request, also one that it makes once more."""

    def sent(self, request):
        asking = _HERE.asking
        asking.trip += 1
        agent = request.headers.get("User-Agent", "")
        agent = agent.decode() if isinstance(agent, bytes) else agent
        by = (asking.by or current_thread().name).replace(" ", "~")
        request.headers["User-Agent"] = f"{agent} {_TRIP}{asking.trip} {_THREAD}{by}"
        return send(self, request)

    return sent


def _submitting(submit: Callable[..., Any]) -> Callable[..., Any]:
    """Around a pool: what it does begins where the thread is that asks for it, and that one goes on behind it."""

    def submitted(self, function, /, *given, **named):
        asking = _HERE.asking
        by, trip, is_one_of_many = asking.by or current_thread().name, asking.trip, asking.is_asking_at_once

        def run(*given, **named):
            _HERE.asking = mine = _Asking(by, trip)
            try:
                return function(*given, **named)
            finally:
                _HERE.asking = _Asking()
                if not is_one_of_many:
                    asking.trip = max(asking.trip, mine.trip)

        return submit(self, run, *given, **named)

    return submitted


def _asking_at_once(at_once: Callable[..., None]) -> Callable[..., None]:
    """Around requests that are made at once: all of them begin where the thread is, which goes on behind the last."""

    def asked_at_once(self, actions: Sequence[Callable[[], Any]]) -> None:
        asking, before = _HERE.asking, _HERE.asking.is_asking_at_once
        begun, ends = asking.trip, [asking.trip]

        def from_the_beginning(action: Callable[[], Any]) -> Callable[[], None]:
            def run() -> None:
                _HERE.asking.trip = begun
                try:
                    action()
                finally:
                    ends.append(_HERE.asking.trip)

            return run

        asking.is_asking_at_once = True
        try:
            at_once(self, [from_the_beginning(action) for action in actions])
        finally:
            asking.is_asking_at_once, asking.trip = before, max(ends)

    return asked_at_once
