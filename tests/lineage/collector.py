"""A collector of OpenLineage's events for the tests: an HTTP server that takes what the specification's schemas allow.

It refuses everything else with 400, and what is wrong stands in ``refused``.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

SPEC = Path(__file__).parent / "spec"
PATH = "/api/v1/lineage"


class Schemas:
    """The specification: its event, and the facets that name their schema."""

    def __init__(self) -> None:
        referencing = pytest.importorskip("referencing")
        self._validator = pytest.importorskip("jsonschema").Draft202012Validator
        texts = [json.loads(path.read_text()) for path in sorted(SPEC.glob("*.json"))]
        self.ids = {text["$id"] for text in texts}
        self._registry = referencing.Registry().with_contents((text["$id"], text) for text in texts)

    def faults(self, event: Any) -> list[str]:
        """What the schemas find wrong with an event, and with each facet that one of them describes."""
        found = self._of(event, event["schemaURL"])
        for name, facet in facets(event):
            if facet["_schemaURL"].partition("#")[0] not in self.ids:
                found.append(f"{name}: an unknown schema {facet['_schemaURL']}")
            else:
                found += [f"{name}: {fault}" for fault in self._of(facet, facet["_schemaURL"])]
        return found

    def _of(self, value: Any, schema: str) -> list[str]:
        checked = self._validator({"$ref": schema}, registry=self._registry)
        return [f"{each.json_path}: {each.message}" for each in checked.iter_errors(value)]


def facets(event: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """All facets of an event, with their names."""
    holders = [event["run"]["facets"], event["job"]["facets"]]
    for dataset in (*event["inputs"], *event["outputs"]):
        holders += [dataset[key] for key in ("facets", "inputFacets", "outputFacets") if key in dataset]
    for holder in holders:
        yield from holder.items()


class Collector:
    """What has come. status: what it answers instead of taking an event; None for taking it. free: it answers only
    while this is set.
    """

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.refused: list[str] = []
        self.status: int | None = None
        self.requests = 0
        self.free = threading.Event()
        self.free.set()
        self.url = ""
        self._schemas = Schemas()

    def take(self, text: bytes) -> int:
        self.requests += 1
        self.free.wait(60)
        if self.status is not None:
            return self.status
        event = json.loads(text)
        faults = self._schemas.faults(event)
        self.refused += faults
        if not faults:
            self.events.append(event)
        return 400 if faults else 201

    def of(self, *states: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["eventType"] in states]

    @property
    def states(self) -> list[str]:
        return [event["eventType"] for event in self.events]


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens on a port of this machine."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"]))
            status = collector.take(text) if self.path == PATH else 404
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing: pytest shows what a test prints."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield collector
    finally:
        collector.free.set()
        server.shutdown()
        server.server_close()
        thread.join()


def transport(url: str, retries: int = 0) -> dict[str, Any]:
    """The configuration of the client."""
    http = {"type": "http", "url": url, "timeout": 20, "retry": {"total": retries, "backoff_factor": 0}}
    return {"transport": http}
