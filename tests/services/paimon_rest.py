"""The REST catalog that Paimon's own tests use, in a bare JVM, started through py4j.

It keeps databases and tables in memory, and looks at the files of external tables never.
"""

import sys
from pathlib import Path
from urllib.parse import urlsplit

from py4j.java_gateway import GatewayParameters, JavaGateway

from tests.services.hive_metastore import listens
from tests.services.ports import LOOPBACK
from tests.services.server import Server
from tools.cds import OF_SERVERS
from tools.jars import jars, pyspark_of
from tools.java import find_java

JVM = ["-Xms64m", "-Xmx512m", *OF_SERVERS, "-Djava.net.preferIPv4Stack=true"]
TOKEN, WAREHOUSE, PREFIX = "a-token", "wh", "paimon"


class PaimonRest(Server):
    """http://127.0.0.1:<its own choice>/v1; a second start knows no table of the first."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self.uri = ""

    def command(self):
        _, spark = pyspark_of(sys.executable)
        path = ":".join([*jars("paimon-rest"), *jars("paimon"), f"{spark}/*"])
        self.uri = ""
        return [find_java().java, *JVM, "-cp", path, "py4j.GatewayServer", str(self.port)]

    def answers(self):
        if not listens(self.port):
            return False
        if not self.uri:
            self.uri = self._serve()
        return True

    def stop(self):
        self.kill()

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the catalog, as Paimon's CREATE CATALOG has them."""
        token = {"token.provider": "bear", "token": TOKEN}
        return {"metastore": "rest", "uri": self.uri, "warehouse": WAREHOUSE, **token}

    def _serve(self) -> str:
        # There is no memory management: nothing is sent to a killed JVM for objects that Python forgets later.
        at = GatewayParameters(address=LOOPBACK, port=self.port, auto_convert=True, enable_memory_management=False)
        java = JavaGateway(gateway_parameters=at).jvm
        rest = java.org.apache.paimon.rest
        config = rest.responses.ConfigResponse({"prefix": PREFIX}, {})
        made = rest.RESTCatalogServer(
            f"file:{self.data_dir / 'warehouse'}", rest.auth.BearTokenAuthProvider(TOKEN), config, WAREHOUSE
        )
        made.start()
        return f"http://{LOOPBACK}:{urlsplit(made.getUrl()).port}"
