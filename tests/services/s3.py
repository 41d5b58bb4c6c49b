"""A real S3 server with atomic conditional writes: SeaweedFS, from its Python wheel."""

import http.client
import json
import sys
from pathlib import Path

from tests.services.ports import LOOPBACK
from tests.services.server import Server

ACCESS_KEY, SECRET_KEY, REGION = "test", "testtest", "us-east-1"
READER = ("reader", "readerreader")  # the keys of somebody who may only read and list
# Keys without the right Admin: at a write of somebody who has it this server makes a missing bucket by itself.
WRITER = ("writer", "writerwriter")
ALLOWED = ["Admin", "Read", "Write", "List", "Tagging"]
IDENTITIES = {
    "identities": [
        {"name": ACCESS_KEY, "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}], "actions": ALLOWED},
        {
            "name": READER[0],
            "credentials": [{"accessKey": READER[0], "secretKey": READER[1]}],
            "actions": ["Read", "List"],
        },
        {
            "name": WRITER[0],
            "credentials": [{"accessKey": WRITER[0], "secretKey": WRITER[1]}],
            "actions": ["Read", "Write", "List", "Tagging"],
        },
    ]
}


class S3Server(Server):
    """SeaweedFS with its master, volume, filer and S3 servers in one process."""

    ports = 8
    bucket = "lake"

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self._ports[0]}"

    @property
    def options(self) -> dict[str, str]:
        """The `store_options` of a table here."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.region": REGION,
            "s3.access-key": ACCESS_KEY,
            "s3.secret-key": SECRET_KEY,
            "s3.path-style-access": "true",
        }

    def client(self):
        """A boto3 client with this server's credentials."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name=REGION,
            config=Config(s3={"addressing_style": "path"}),
        )

    def prepare(self):
        (self.data_dir / "data").mkdir(exist_ok=True)
        (self.data_dir / "s3.json").write_text(json.dumps(IDENTITIES))

    def command(self):
        s3, master, *others = self._ports
        # Every port is given: the default of a second one is the first plus 10,000, which may be taken.
        names = ("master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc", "s3.port.grpc")
        folder = self.data_dir
        command = [
            str(Path(sys.executable).with_name("weed")),
            "-logtostderr=true",
            "server",
            f"-dir={folder / 'data'}",
        ]
        command += [
            f"-ip={LOOPBACK}",
            f"-ip.bind={LOOPBACK}",
            f"-master.port={master}",
            "-filer",
            "-s3",
            f"-s3.port={s3}",
        ]
        command += [f"-{name}={port}" for name, port in zip(names, others)]
        command += [f"-filer.localSocket={folder / 'filer.sock'}", f"-s3.localSocket={folder / 's3.sock'}"]
        command += [f"-s3.config={folder / 's3.json'}", "-s3.iam=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        # The master would otherwise report this cluster to its maker.
        command += [
            "-master.telemetry=false",
            "-master.volumeSizeLimitMB=64",
            "-volume.max=1000",
            "-volume.preStopSeconds=0",
        ]
        return command

    def answers(self):
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
