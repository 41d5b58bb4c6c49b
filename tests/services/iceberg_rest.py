"""A REST catalog of Iceberg tables: Iceberg's own handlers of requests, over its JDBC catalog in SQLite.

``IcebergRest.java`` beside this file leads requests to them. It needs a Java that has a compiler.
"""

import hashlib
import http.client
import sys
from pathlib import Path

import pytest

from tests.services.ports import LOOPBACK
from tests.services.server import Server, made_once, run
from tools.cds import OF_SERVERS
from tools.jars import jars, pyspark_of
from tools.java import find_java

SOURCE = Path(__file__).with_name("IcebergRest.java")
JVM = ["-Xms64m", "-Xmx512m", *OF_SERVERS, "-Djava.net.preferIPv4Stack=true"]
ANSWER_TIMEOUT_S = 5


class IcebergRest(Server):
    """A second start on the same folder knows the tables, and no token that was given before."""

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the catalog for pyiceberg."""
        uri = f"http://{LOOPBACK}:{self.port}"
        tokens = {"credential": "somebody:secret", "oauth2-server-uri": f"{uri}/v1/oauth/tokens"}
        return {"type": "rest", "uri": uri, **tokens}

    def command(self):
        [iceberg], (_, spark) = jars("iceberg"), pyspark_of(sys.executable)
        path = ":".join([iceberg, *jars("jdbc"), f"{spark}/*"])
        compiler = Path(find_java().java).with_name("javac")
        if not compiler.exists():
            pytest.skip("this Java has no compiler")

        def make(folder: Path) -> None:
            folder.mkdir()
            run("the REST catalog", [compiler, "-cp", path, "-d", folder, SOURCE])

        key = hashlib.sha256(SOURCE.read_bytes() + path.encode()).hexdigest()[:10]
        made = made_once(f"iceberg-rest-{key}", make)
        command = [find_java().java, *JVM, "-cp", f"{made}:{path}", SOURCE.stem, str(self.port)]
        return [*command, str(self.data_dir / "catalog.db"), str(self.data_dir / "tables")]

    def answers(self):
        try:
            return self._asked("GET", "/v1/config") == 200
        except (OSError, http.client.HTTPException):
            return False

    def ask(self, accident: str) -> None:
        """What becomes of the reply to the next commit: 'cut', or a status; of all tokens that were given: 'expire'."""
        self._asked("POST", f"/test/{accident}")

    def _asked(self, method: str, path: str) -> int:
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=ANSWER_TIMEOUT_S)
        try:
            connection.request(method, path)
            return connection.getresponse().status
        finally:
            connection.close()
