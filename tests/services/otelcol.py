"""A collector of OpenTelemetry, made of its own modules for Go: it takes OTLP over HTTP and writes it into a file."""

import hashlib
import http.client
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.services.ports import LOOPBACK
from tests.services.server import Server, ServerError, made_once

SOURCES = Path(__file__).parent / "collector"
# Its modules are downloaded and compiled once for each machine.
BUILD_TIMEOUT_S = 1_800


def _digest() -> str:
    """Other sources are another program."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir()))).hexdigest()[:12]


def _build(made: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise ServerError("no go is installed, by which the collector is built")
    # Vet's version stamps ask git, of which a copy in a cache knows nothing.
    command = [go, "build", "-buildvcs=false", "-o", str(made), "."]
    environment = os.environ | {"CGO_ENABLED": "0"}
    done = subprocess.run(
        command, cwd=SOURCES, env=environment, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S
    )
    if done.returncode:
        raise ServerError(f"building the collector: {done.stderr[-2000:]}")


class OpenTelemetryCollector(Server):
    """A receiver of OTLP over HTTP, and an exporter into ``file``."""

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def file(self) -> Path:
        return self.data_dir / "told.json"

    def prepare(self):
        pipeline = {"receivers": ["otlp"], "exporters": ["file"]}
        config = {
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"{LOOPBACK}:{self.port}"}}}},
            "exporters": {"file": {"path": str(self.file), "flush_interval": "100ms"}},
            "service": {
                "pipelines": {"traces": pipeline, "metrics": pipeline},
                "telemetry": {"metrics": {"level": "none"}},
            },
        }
        (self.data_dir / "otelcol.yaml").write_text(json.dumps(config))  # JSON is YAML

    def command(self):
        return [str(made_once(f"otelcol-{_digest()}", _build)), f"--config={self.data_dir / 'otelcol.yaml'}"]

    def answers(self):
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=5)
        try:
            connection.request("POST", "/v1/traces", b"{}", {"Content-Type": "application/json"})
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def told(self) -> list[dict[str, Any]]:
        """Each request that has come, in OTLP's form as JSON."""
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []

    def spans(self) -> Iterator[dict[str, Any]]:
        for request in self.told():
            for resource in request.get("resourceSpans", ()):
                for scope in resource.get("scopeSpans", ()):
                    yield from scope.get("spans", ())

    def metrics(self) -> Iterator[dict[str, Any]]:
        for request in self.told():
            for resource in request.get("resourceMetrics", ()):
                for scope in resource.get("scopeMetrics", ()):
                    yield from scope.get("metrics", ())
