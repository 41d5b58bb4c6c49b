"""Paimon's own locks, and its writers under them, through py4j in Spark's JVM."""

import contextlib

from tests.compat.java import JavaPaimon

DRIVERS = {"postgresql": "org.postgresql.Driver", "mysql": "com.mysql.cj.jdbc.Driver", "sqlite": "org.sqlite.JDBC"}
HIVE_LOCK = "org.apache.paimon.hive.HiveCatalogLock"


class JavaLocks:
    """The code with which Paimon's catalogs take and give back their locks."""

    def __init__(self, java: JavaPaimon):
        self.java = java
        self.jvm = java._jvm
        for driver in DRIVERS.values():
            self.jvm.java.lang.Class.forName(driver)  # it makes itself known to java.sql

    @property
    def zone(self) -> str:
        """The JVM's time zone, which PostgreSQL's driver makes the session's."""
        return self.jvm.java.util.TimeZone.getDefault().getID()

    @contextlib.contextmanager
    def in_zone(self, name: str):
        """Let the JVM be in another zone."""
        before = self.jvm.java.util.TimeZone.getDefault()
        self.jvm.java.util.TimeZone.setDefault(self.jvm.java.util.TimeZone.getTimeZone(name))
        try:
            yield
        finally:
            self.jvm.java.util.TimeZone.setDefault(before)

    def options(self, **values):
        """Paimon's options."""
        made = self.jvm.org.apache.paimon.options.Options()
        for name, value in values.items():
            made.set(name.replace("__", ".").replace("_", "-"), value)
        return made

    def database(self, url: str, user: str, password: str) -> "JdbcSide":
        """JdbcCatalog's lock."""
        given = self.jvm.java.util.HashMap()
        for name, value in (("jdbc.user", user), ("jdbc.password", password)):
            if value:
                given.put(name, value)
        pool = self.jvm.org.apache.paimon.jdbc.JdbcClientPool(1, url, given)
        self.jvm.org.apache.paimon.jdbc.JdbcUtils.createDistributedLockTable(pool, self.options())
        return JdbcSide(self.jvm.org.apache.paimon.jdbc.JdbcUtils, pool)

    def hive(self, port: int, acquire_timeout_ms: int) -> "HiveSide":
        """HiveCatalog's lock."""
        conf = self.jvm.org.apache.hadoop.hive.conf.HiveConf()
        conf.set("hive.metastore.uris", f"thrift://127.0.0.1:{port}")
        conf.set("hive.metastore.warehouse.dir", "file:///tmp")
        pool = self.jvm.org.apache.paimon.hive.pool.HiveClientPool(
            1, conf, "org.apache.hadoop.hive.metastore.HiveMetaStoreClient"
        )
        lock = self.jvm.org.apache.paimon.hive.HiveCatalogLock(pool, 1000, acquire_timeout_ms)
        return HiveSide(self.java, lock)

    def catalog(self, warehouse: str, url: str, user: str, password: str):
        """JdbcCatalog whose tables commit under the lock."""
        options = self.options(
            metastore="jdbc",
            uri=url,
            warehouse=f"file:{warehouse}",
            lock__enabled="true",
            lock_check_max_sleep="100 ms",
        )
        for name, value in (("jdbc.user", user), ("jdbc.password", password)):
            if value:
                options.set(name, value)
        context = self.jvm.org.apache.paimon.catalog.CatalogContext.create(options)
        return self.jvm.org.apache.paimon.catalog.CatalogFactory.createCatalog(context, self.java._loader)


class JdbcSide:
    """What JdbcCatalogLock.runWithLock does, in its two halves."""

    def __init__(self, utils, pool):
        self._utils, self._pool = utils, pool

    def acquire(self, lock_id: str, timeout_ms: int = 480_000) -> bool:
        """Try once."""
        return self._utils.acquire(self._pool, lock_id, timeout_ms)

    def release(self, lock_id: str) -> None:
        self._utils.release(self._pool, lock_id)

    def close(self) -> None:
        self._pool.close()


class HiveSide:
    """What HiveCatalogLock.runWithLock does, in its two halves, which are private."""

    def __init__(self, java: JavaPaimon, lock):
        self._java, self._lock = java, lock

    def acquire(self, database: str, table: str) -> int:
        """Returns Hive's id of the lock. Raises Py4JJavaError when the time is over."""
        return self._call("lock", (("java.lang.String", database), ("java.lang.String", table)))

    def release(self, lock_id: int) -> None:
        self._call("unlock", (("long", lock_id),))

    def _call(self, name, arguments):
        jvm = self._java._jvm
        kinds = self._java._gateway.new_array(jvm.java.lang.Class, len(arguments))
        values = self._java._gateway.new_array(jvm.java.lang.Object, len(arguments))
        for at, (kind, value) in enumerate(arguments):
            kinds[at] = jvm.java.lang.Long.TYPE if kind == "long" else jvm.java.lang.Class.forName(kind)
            values[at] = jvm.java.lang.Long(str(value)) if kind == "long" else value
        method = self._lock.getClass().getDeclaredMethod(name, kinds)
        method.setAccessible(True)
        return method.invoke(self._lock, values)


class LockedPaimon(JavaPaimon):
    """Reads and writes one table of a catalog with a lock."""

    def __init__(self, spark, catalog, database: str, table: str):
        super().__init__(spark)
        self._catalog = catalog
        self._identifier = self._paimon.catalog.Identifier.create(database, table)

    def make(self, fields, options) -> None:
        """Make the database and the table, as the catalog does."""
        builder = self._paimon.schema.Schema.newBuilder()
        for field in fields:
            builder.column(field.name, self.data_type(field.type))
        for name, value in options.items():
            builder.option(name, value)
        self._catalog.createDatabase(self._identifier.getDatabaseName(), True)
        self._catalog.createTable(self._identifier, builder.build(), False)

    def _open(self, path):
        _, schema = super()._open(path)
        return self._catalog.getTable(self._identifier), schema
