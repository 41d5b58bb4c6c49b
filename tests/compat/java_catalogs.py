"""Paimon's own catalogs, over a Hive Metastore and over a REST server, through py4j in Spark's JVM."""

from tests.compat.java import JavaPaimon


class JavaCatalog:
    """A catalog as Flink and Spark use it."""

    def __init__(self, java: JavaPaimon, options: dict[str, str]):
        self.java, self._jvm = java, java._jvm
        made = self._jvm.org.apache.paimon.options.Options()
        for name, value in {"cache-enabled": "false", **options}.items():
            made.set(name, value)
        context = self._jvm.org.apache.paimon.catalog.CatalogContext.create(made)
        self._catalog = self._jvm.org.apache.paimon.catalog.CatalogFactory.createCatalog(context, java._loader)

    def create(self, database, table, schema) -> None:
        """Create a table with the columns, partitions, options and comment of a schema of ours."""
        self._catalog.createDatabase(database, True)
        builder = self._jvm.org.apache.paimon.schema.Schema.newBuilder()
        for field in schema.fields:
            builder.column(field.name, self.java.data_type(field.type), field.description)
        keys, options = self._jvm.java.util.ArrayList(), self._jvm.java.util.HashMap()
        for name in schema.partition_keys:
            keys.add(name)
        for name, value in schema.options.items():
            options.put(name, value)
        builder.partitionKeys(keys).options(options).comment(schema.comment)
        self._catalog.createTable(self._name(database, table), builder.build(), False)

    def add_column(self, database, table, name, t) -> None:
        changes = self._jvm.java.util.ArrayList()
        changes.add(self._jvm.org.apache.paimon.schema.SchemaChange.addColumn(name, self.java.data_type(t)))
        self._catalog.alterTable(self._name(database, table), changes, False)

    def columns(self, database, table) -> list[str]:
        """Names of the columns of the table that it finds under this name."""
        found = self._catalog.getTable(self._name(database, table))
        return list(self.java._call("table.Table", found, "rowType").getFieldNames())

    def rows(self, database, table) -> int:
        """How many rows a plan of a read of the table has that it finds under this name."""
        found = self._catalog.getTable(self._name(database, table))
        builder = self.java._call("table.Table", found, "newReadBuilder")
        scan = self.java._call("table.source.ReadBuilder", builder, "newScan")
        plan = self.java._call("table.source.TableScan", scan, "plan")
        return sum(each.rowCount() for each in self.java._call("table.source.TableScan$Plan", plan, "splits"))

    def location(self, database, table) -> str:
        return str(self._catalog.getTableLocation(self._name(database, table)).toString())

    def drop(self, database, table) -> None:
        self._catalog.dropTable(self._name(database, table), False)

    def rename(self, database, table, to) -> None:
        self._catalog.renameTable(self._name(database, table), self._name(database, to), False)

    def repair(self, database, table) -> None:
        """Let the catalog write again what it would have the metastore say of the table."""
        self._catalog.repairTable(self._name(database, table))

    def close(self) -> None:
        self._catalog.close()

    def _name(self, database, table):
        return self._jvm.org.apache.paimon.catalog.Identifier.create(database, table)


def java_hive(
    java: JavaPaimon, uri: str, warehouse, kind: str = "managed", in_properties: str = "false"
) -> JavaCatalog:
    """HiveCatalog over this metastore."""
    given = {"metastore": "hive", "uri": uri, "warehouse": f"file:{warehouse}", "table.type": kind}
    return JavaCatalog(java, {**given, "location-in-properties": in_properties})
