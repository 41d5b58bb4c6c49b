"""A second S3 server, of other people and in another language: S3Proxy, which keeps objects as files."""

import http.client

from tests.services.ports import LOOPBACK
from tests.services.s3 import ACCESS_KEY, SECRET_KEY, S3Server
from tools.cds import OF_SERVERS
from tools.jars import jars
from tools.java import find_java

JVM = ["-Xms64m", "-Xmx256m", *OF_SERVERS, "-DLOG_LEVEL=WARN"]


class FilesS3Server(S3Server):
    """S3Proxy over a folder. It heeds ``If-None-Match``; of ``If-Match`` it lets two racers win, which nobody needs."""

    ports = 1

    def prepare(self):
        data = self.data_dir / "data"
        data.mkdir(exist_ok=True)
        settings = {
            "s3proxy.endpoint": self.endpoint,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": ACCESS_KEY,
            "s3proxy.credential": SECRET_KEY,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.identity": "of-no-use",
            "jclouds.credential": "of-no-use",
            "jclouds.filesystem.basedir": data,
        }
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        (self.data_dir / "s3proxy.conf").write_text(text)

    def command(self):
        command = [find_java().java, *JVM, "-cp", ":".join(jars("s3proxy")), "org.gaul.s3proxy.Main"]
        return [*command, "--properties", str(self.data_dir / "s3proxy.conf")]

    def answers(self):
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=5)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status == 403
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
