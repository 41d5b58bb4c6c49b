"""A real S3 server with atomic conditional writes: SeaweedFS, from its Python wheel."""
import http.client
import json
import subprocess
import sys
import time
from pathlib import Path

from tests.services import process
from tests.services.ports import LOOPBACK, free_ports

READY_TIMEOUT_S = 90
START_ATTEMPTS = 3  # another process may take a free port before the server does
ACCESS_KEY, SECRET_KEY, REGION = "test", "testtest", "us-east-1"
ALLOWED = ["Admin", "Read", "Write", "List", "Tagging"]
IDENTITIES = {
    "identities": [{
        "name": ACCESS_KEY, "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}], "actions": ALLOWED,
    }]
}


class S3Error(Exception):
    """The server does not start; the message holds the end of its log."""


class S3Server:
    """A server whose data is in `data_dir`; a second start on the same folder keeps the objects.

    The port stays the same over restarts. As a context manager: started on entry, stopped on exit."""

    bucket = "lake"

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = Path(data_dir)
        self.log = self.data_dir / "s3.log"
        self._ports: list[int] = []
        self._process: subprocess.Popen | None = None

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self._ports[0]}"

    @property
    def options(self) -> dict[str, str]:
        """The `store_options` of a table here."""
        return {
            "s3.endpoint": self.endpoint, "s3.region": REGION, "s3.access-key": ACCESS_KEY, "s3.secret-key": SECRET_KEY,
            "s3.path-style-access": "true",
        }

    def client(self):
        """A boto3 client with this server's credentials."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3", endpoint_url=self.endpoint, aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY,
            region_name=REGION, config=Config(s3={"addressing_style": "path"}),
        )

    def start(self) -> "S3Server":
        """Returns when an object can be written. Raises: S3Error, with the end of the log."""
        (self.data_dir / "data").mkdir(parents=True, exist_ok=True)
        (self.data_dir / "s3.json").write_text(json.dumps(IDENTITIES))
        fresh = not self._ports
        for _ in range(START_ATTEMPTS if fresh else 1):
            if fresh:
                self._ports = free_ports(8)
            self._process = process.spawn(self._command(), self.log)
            if self._wait_until_ready():
                return self
            self.kill()
        raise S3Error(f"the S3 server does not start; the end of {self.log}:\n{process.tail(self.log)}")

    def stop(self) -> None:
        """An orderly end. Idempotent."""
        if self._process:
            process.stop(self._process)

    def kill(self) -> None:
        """SIGKILL. Idempotent."""
        if self._process:
            process.kill(self._process)

    def __enter__(self) -> "S3Server":
        return self.start()

    def __exit__(self, *_) -> None:
        self.stop()

    def _command(self) -> list[str]:
        s3, master, *others = self._ports
        # every port is given: the default of a second one is the first plus 10,000, which may be taken
        names = ("master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc", "s3.port.grpc")
        folder = self.data_dir
        command = [str(Path(sys.executable).with_name("weed")), "-logtostderr=true", "server", f"-dir={folder / 'data'}"]
        command += [f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}", f"-master.port={master}", "-filer", "-s3", f"-s3.port={s3}"]
        command += [f"-{name}={port}" for name, port in zip(names, others)]
        command += [f"-filer.localSocket={folder / 'filer.sock'}", f"-s3.localSocket={folder / 's3.sock'}"]
        command += [f"-s3.config={folder / 's3.json'}", "-s3.iam=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        # the master would tell its maker about this cluster
        command += ["-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-volume.max=1000", "-volume.preStopSeconds=0"]
        return command

    def _wait_until_ready(self) -> bool:
        end = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < end and self._process.poll() is None:
            if self._answers():
                return self._process.poll() is None
            time.sleep(0.1)
        return False

    def _answers(self) -> bool:
        """An open port says little: a volume must have joined, so that a file can be placed."""
        try:
            status, _ = _get(self._ports[0], "/")
            _, assigned = _get(self._ports[1], "/dir/assign")
            return status in (200, 403) and "fid" in json.loads(assigned)
        except (OSError, ValueError, http.client.HTTPException):
            return False


def _get(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
