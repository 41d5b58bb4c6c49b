"""A Hive Metastore 2.3 from the jars that PySpark ships, with its own Derby and working locks.

Its main class would listen on every interface, make no lock tables and need a compiler to be changed. So a bare JVM is
started, and what the main class does is done from here, through py4j.
"""

import shutil
import socket
import sys
import threading
import time
from pathlib import Path

from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError

from tests.services.ports import LOOPBACK
from tests.services.server import Server, ServerError, made_once
from tools.cds import OF_SERVERS
from tools.jars import pyspark_of
from tools.java import find_java

JVM = ["-Xms64m", "-Xmx512m", *OF_SERVERS, "-Djava.net.preferIPv4Stack=true"]
GATEWAY_TIMEOUT_S = 60
REAP_EVERY_S = 0.5
LOG4J = """status = warn
appender.c.type = Console
appender.c.name = c
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = %d %p %c{1.}: %m%n
rootLogger.level = error
rootLogger.appenderRef.c.ref = c
"""


class HiveMetastore(Server):
    """thrift://127.0.0.1:<port>. A lock without a heartbeat for `lock_timeout_s` is given to the next one."""

    ports = 2

    def __init__(self, data_dir: Path, lock_timeout_s: int = 300) -> None:
        super().__init__(data_dir)
        self.lock_timeout_s = lock_timeout_s
        self._made = False

    def prepare(self):
        if not (self.data_dir / "metastore_db").exists():
            template = made_once(f"hive-metastore-{pyspark_of(sys.executable)[0]}-tables", _make_schema)
            shutil.copytree(template / "metastore_db", self.data_dir / "metastore_db")

    def command(self):
        _, jars = pyspark_of(sys.executable)
        conf = self.data_dir / "conf"
        conf.mkdir(exist_ok=True)
        for name in ("log4j2.properties", "hive-log4j2.properties"):
            (conf / name).write_text(LOG4J)
        self._made = False
        options = [f"-Dderby.stream.error.file={self.data_dir / 'derby.log'}"]
        return [find_java().java, *JVM, *options, "-cp", f"{conf}:{jars}/*", "py4j.GatewayServer", str(self._ports[1])]

    def answers(self):
        if not listens(self._ports[1]):
            return False
        if not self._made:
            self._made = True
            self._make()
        return listens(self.port)

    def stop(self):
        self.kill()  # Its data are written when a call returns; an orderly end of a bare JVM does no more.

    def _make(self) -> None:
        """Do what HiveMetaStore.main does, but on one interface,
        with lock tables, and with a thread that ends the locks of the dead."""
        gateway = JavaGateway(gateway_parameters=_gateway_parameters(self._ports[1]))
        java = gateway.jvm
        conf, handler = _handler(java, self.data_dir, self.lock_timeout_s)
        store = java.org.apache.hadoop.hive.metastore.txn.TxnUtils.getTxnStore(conf)
        thrift = java.org.apache.thrift
        bound = thrift.transport.TServerSocket(java.java.net.InetSocketAddress(LOOPBACK, self.port))
        processor = java.org.apache.hadoop.hive.metastore.TSetIpAddressProcessor(handler)
        arguments = thrift.server.TThreadPoolServer.Args(bound)
        arguments.processor(processor)
        arguments.protocolFactory(thrift.protocol.TBinaryProtocol.Factory())
        arguments.transportFactory(thrift.transport.TTransportFactory())
        arguments.minWorkerThreads(4)
        arguments.maxWorkerThreads(200)
        server = thrift.server.TThreadPoolServer(arguments)
        for target in (server.serve, lambda: _reap(store)):
            threading.Thread(target=_until_the_end, args=(target,), daemon=True).start()


def _gateway_parameters(port: int) -> GatewayParameters:
    # There is no memory management: nothing is sent to a killed JVM for objects that Python forgets later.
    return GatewayParameters(address=LOOPBACK, port=port, auto_convert=True, enable_memory_management=False)


def _until_the_end(call) -> None:
    """A call that returns only when the JVM is gone."""
    try:
        call()
    except (Py4JError, OSError):
        return


def _reap(store) -> None:
    while True:
        time.sleep(REAP_EVERY_S)
        store.performTimeOuts()


def listens(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), 2).close()
    except OSError:
        return False
    return True


def _handler(java, folder: Path, lock_timeout_s: int):
    """The (configuration, handler of the metastore) on the database below `folder`."""
    metastore = java.org.apache.hadoop.hive.metastore
    conf = java.org.apache.hadoop.hive.conf.HiveConf()
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / 'metastore_db'};create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "datanucleus.connectionPoolingType": "hikaricp",  # The default one is not among PySpark's jars.
        # One call may hold two connections; with ten, the default, calls starve each other.
        "datanucleus.connectionPool.maxPoolSize": "100",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": f"file://{folder / 'warehouse'}",
        "hive.support.concurrency": "true",
        "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
        "hive.txn.timeout": f"{lock_timeout_s}s",
        "hive.async.log.enabled": "false",
    }
    for name, value in settings.items():
        conf.set(name, value)
    handler = metastore.HiveMetaStore.HMSHandler("metastore", conf, False)
    return conf, metastore.RetryingHMSHandler.getProxy(conf, handler, True)


class _SchemaMaker(HiveMetastore):
    """Makes the tables in an empty folder and serves nobody."""

    def prepare(self):
        (self.data_dir / "metastore_db").parent.mkdir(parents=True, exist_ok=True)

    def answers(self):
        return listens(self._ports[1])

    def make_schema(self) -> None:
        gateway = JavaGateway(gateway_parameters=_gateway_parameters(self._ports[1]))
        conf, handler = _handler(gateway.jvm, self.data_dir, self.lock_timeout_s)
        gateway.jvm.org.apache.hadoop.hive.metastore.txn.TxnDbUtil.prepDb(conf)
        handler.get_all_databases()
        try:
            gateway.jvm.java.sql.DriverManager.getConnection("jdbc:derby:;shutdown=true")
        except Py4JError:
            pass  # This is how Derby says that it has shut down.


def _make_schema(folder: Path) -> None:
    """Make the tables once, because they take seconds."""
    with _SchemaMaker(folder) as maker:
        maker.make_schema()
    if not (folder / "metastore_db").is_dir():
        raise ServerError(f"Hive's metastore made no tables in {folder}")
