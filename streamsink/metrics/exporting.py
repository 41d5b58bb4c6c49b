"""Metrics for Prometheus: an endpoint that it scrapes, or a file for drivers that it cannot reach.

Needs ``prometheus_client`` (``pip install 'streamsink[prometheus]'``), which is imported when it is used.
"""

import atexit
import errno
import fcntl
import hashlib
import os
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any

from streamsink.errors import Misuse
from streamsink.events import log
from streamsink.metrics.families import COUNTER, GAUGE, PREFIX
from streamsink.metrics.listener import Metrics
from streamsink.metrics.registry import Distribution, Family

DEFAULT_EVERY_MS = 15_000
# Tries to lock a file that others remove.
_ATTEMPTS = 5
# So long ``close`` waits for a file that is being written.
_PATIENCE_S = 10.0

# Of the digest of a label.
_DIGITS = 8
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_LOCK = threading.Lock()
# By address, what this process serves there.
_SERVED: "dict[str, Endpoint]" = {}
# By path, what this process writes there.
_WRITTEN: "dict[str, TextFile]" = {}


class _Collector:
    """What ``prometheus_client`` asks at each scrape."""

    def __init__(self, metrics: Metrics):
        self._metrics = metrics

    def collect(self) -> Iterator[Any]:
        """The metrics as families of ``prometheus_client``."""
        core = _client("metrics_core")
        for family in self._metrics.collect():
            yield _family(core, family)

    def describe(self) -> list[Any]:
        """Nothing: the names are known without asking for the values."""
        return []


def _family(core: Any, family: Family) -> Any:
    metric = family.metric
    name, labels = PREFIX + metric.name, metric.labels
    if metric.kind in (COUNTER, GAUGE):
        kind = core.CounterMetricFamily if metric.kind == COUNTER else core.GaugeMetricFamily
        made = kind(name, metric.help, labels=labels)
    else:
        made = core.HistogramMetricFamily(name, metric.help, labels=labels)
    for key, value in family.values.items():
        if isinstance(value, Distribution):
            made.add_metric(key, list(value.buckets), value.total)
        else:
            made.add_metric(key, value)
    return made


def _registry(metrics: Metrics) -> Any:
    registry = _client("registry").CollectorRegistry(auto_describe=False)
    registry.register(_Collector(metrics))
    return registry


def _client(module: str) -> Any:
    """A module of ``prometheus_client``. Raises Misuse where it is not installed."""
    import importlib

    try:
        return importlib.import_module(f"prometheus_client.{module}")
    except ImportError as missing:
        raise Misuse(
            "metrics for Prometheus need the package prometheus_client, which is not installed. Install "
            "'streamsink[prometheus]'. Nothing was started",
            kind="metrics.no-client",
        ) from missing


class Endpoint:
    """What ``serve`` returns. address: host and port, the port that was taken where 0 was asked for."""

    def __init__(self, metrics: Metrics, address: str, close: Callable[[], None]):
        self.metrics = metrics
        self.address = address
        self._close = close

    @property
    def url(self) -> str:
        """What Prometheus is told to scrape."""
        return f"http://{self.address}/metrics"

    def close(self) -> None:
        """Stop serving, and free the port. Idempotent."""
        with _LOCK:
            if _SERVED.pop(self.address, None) is not None:
                self._close()


def serve(metrics: Metrics, address: str) -> Endpoint:
    """Serve these metrics at ``http://ADDRESS/metrics``. Call it before the query starts.

    address: ``HOST:PORT``; port 0 takes a free one. The address is yours to choose: whoever reaches it reads paths of
    tables and names of queries. A call for the same metrics at an address that this process serves returns what is
    there. The endpoint lives in daemon threads until ``close`` or the end of the process. Raises Misuse, and nothing is
    served: kind 'metrics.address' for an address of another form, 'metrics.address-in-use' where another process, or
    other metrics of this one, have it, 'metrics.no-client' without prometheus_client.
    """
    host, port = _parts(address)
    registry = _registry(metrics)
    start = _client("exposition").start_http_server
    with _LOCK:
        known = _SERVED.get(address)
        if known is not None:
            if known.metrics is metrics:
                return known
            raise _in_use(address, "other metrics of this driver are served there. Give all of its queries one Metrics")
        try:
            server, thread = start(port, addr=host, registry=registry)
        except (OSError, UnicodeError) as failed:
            if getattr(failed, "errno", None) != errno.EADDRINUSE:
                raise _no_address(address, f" ({getattr(failed, 'strerror', None) or failed})") from failed
            why = "another driver or program has it. Give each driver its own"
            raise _in_use(address, why) from failed

        def close() -> None:
            server.shutdown()
            server.server_close()
            thread.join(_PATIENCE_S)

        shown = f"[{host}]" if ":" in host else host
        made = Endpoint(metrics, f"{shown}:{server.server_port}", close)
        _SERVED[made.address] = made
        return made


def _parts(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise _no_address(address, "")
    return host, int(port)


def _no_address(address: str, why: str) -> Misuse:
    return Misuse(
        f"the address of the metrics is {address!r}{why}, expected HOST:PORT with a host of this machine and a port "
        "that this user may open, such as '127.0.0.1:9464', or port 0 for a free one. Nothing was started",
        kind="metrics.address",
    )


def _in_use(address: str, why: str) -> Misuse:
    return Misuse(
        f"the metrics cannot be served at {address}: {why}, or port 0 for a free one. Nothing was started",
        kind="metrics.address-in-use",
    )


def text(metrics: Metrics) -> str:
    """The metrics as Prometheus reads them, in its text format. Raises Misuse without prometheus_client."""
    return str(_client("exposition").generate_latest(_registry(metrics)).decode())


def flat(metrics: Metrics) -> Iterator[tuple[str, float]]:
    """All numbers by names without labels, as registries have them that know none: the labels, then the metric.

    What is no letter, digit, '-' or '_' in a label becomes '_'. Labels that are alike then have a digest behind them,
    so that no number hides another one. Of a histogram there are count and sum.
    """
    families = metrics.collect()
    alike: dict[tuple[str, str], set[str]] = {}  # by the label's name, and its value as it is written
    for family in families:
        for labels in family.values:
            for of, label in zip(family.metric.labels, labels):
                alike.setdefault((of, _plain(label)), set()).add(label)
    for family in families:
        for labels, value in family.values.items():
            parts = [_told_apart(label, alike[of, _plain(label)]) for of, label in zip(family.metric.labels, labels)]
            name = ".".join((*parts, family.metric.name))
            if isinstance(value, Distribution):
                yield f"{name}_count", float(sum(value.counts))
                yield f"{name}_sum", value.total
            else:
                yield name, value


def _plain(label: str) -> str:
    return _NO_NAME.sub("_", label).strip("_") or "_"


def _told_apart(label: str, alike: Collection[str]) -> str:
    """How the label is written beside others. alike: those that are written as it is, itself among them."""
    if len(alike) == 1:
        return _plain(label)
    return f"{_plain(label)}-{hashlib.sha256(label.encode()).hexdigest()[:_DIGITS]}"


class TextFile:
    """Writes the metrics into a file now and then, for a driver that cannot be scraped: the textfile collector of
    Prometheus' node exporter reads ``*.prom`` in one folder.

    The file is replaced at once, so that nobody reads half of it. A failing write is logged once and counted, and ends
    no query. What the driver has at its end is written by ``close``, or when the interpreter exits.
    """

    def __init__(self, metrics: Metrics, path: "str | os.PathLike[str]", every_ms: int = DEFAULT_EVERY_MS):
        """path: of the file, whose name ends with '.prom', in a folder that is there. Raises Misuse otherwise, and
        where another driver of this machine, or this one with other metrics, writes it. Another object for the same
        metrics takes the place of the earlier one.
        """
        self.path = os.path.abspath(os.fspath(path))
        if not self.path.endswith(".prom") or not os.path.isdir(os.path.dirname(self.path)):
            raise Misuse(
                f"the file of the metrics is {self.path!r}, expected a name that ends with '.prom' in a folder that is "
                "there, as the node exporter's --collector.textfile.directory. Nothing was written",
                kind="metrics.textfile",
            )
        _client("exposition")
        self._metrics, self._every_s = metrics, max(every_ms, 1) / 1000
        self._has_failed = False
        self._held: int | None = None  # the file whose lock says that this driver writes
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamsink-metrics-file", daemon=True)
        self._take_place()
        self._thread.start()
        atexit.register(self._at_exit)

    def close(self) -> None:
        """Write once more, and stop. Idempotent."""
        atexit.unregister(self._at_exit)
        with _LOCK:
            if _WRITTEN.get(self.path) is self:
                del _WRITTEN[self.path]
        if not self._ending.is_set():
            self._ending.set()
            self._thread.join(_PATIENCE_S)
            self._release()

    def _take_place(self) -> None:
        """Two that wrote one file would take turns with it, and its counters would go back and forth."""
        with _LOCK:
            known = _WRITTEN.get(self.path)
            if known is not None and known._metrics is not self._metrics:
                raise Misuse(
                    f"other metrics of this driver are written to {self.path}. Give all of its queries one Metrics, or "
                    "close the other TextFile before. Nothing was written",
                    kind="metrics.textfile-in-use",
                )
        if known is not None:
            known.close()
        with _LOCK:
            self._hold()
            _WRITTEN[self.path] = self

    def _hold(self) -> None:
        """Keep other drivers of this machine from the file, until ``close`` or the end of the process.

        By a record lock, which forked children do not share, of a file beside it: the file itself is replaced. Where
        none can be made, as in a full folder, there is no such check. Raises Misuse.
        """
        for _ in range(_ATTEMPTS):
            try:
                held = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError:
                return
            try:
                fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(held), os.stat(self._lock_path)):
                    self._held = held
                    return
                os.close(held)
            except FileNotFoundError:  # who had it has removed it meanwhile
                os.close(held)
            except (BlockingIOError, PermissionError) as other:
                os.close(held)
                raise Misuse(
                    f"another driver writes metrics to {self.path}: one would hide what the other writes. Give each "
                    "driver a file of its own, or end the other one. Nothing was written",
                    kind="metrics.textfile-in-use",
                ) from other
            except OSError:
                os.close(held)
                return

    def _release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            with suppress(OSError):
                os.remove(self._lock_path)
            os.close(held)

    @property
    def _lock_path(self) -> str:
        return os.path.join(os.path.dirname(self.path), f".{os.path.basename(self.path)}.lock")

    def _at_exit(self) -> None:
        """What is pending is published first, and counted then."""
        runs = sys.modules.get("streamsink.spark.runs")  # where a query has run in this process
        try:
            if runs is not None:
                runs.finish_all()
        finally:
            self.close()

    def _run(self) -> None:
        while not self._ending.wait(self._every_s):
            self._write()
        self._write()

    def _write(self) -> None:
        made = f"{self.path}.{os.getpid()}.tmp"
        try:
            with open(made, "w", encoding="utf-8") as file:
                file.write(text(self._metrics))
            os.replace(made, self.path)
        except (OSError, ValueError) as failed:
            self._metrics.registry.add("exporter_errors", ("textfile",), 1.0)
            if not self._has_failed:
                self._has_failed = True
                log.warning(
                    "the metrics could not be written to %s: %s. Queries go on, and it is tried again; further errors "
                    "are counted, and not logged",
                    self.path,
                    failed,
                )
            with suppress(OSError):
                os.remove(made)
