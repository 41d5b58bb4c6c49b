"""Paimon's Java API as a reader and writer of a table, through py4j in Spark's JVM."""

import json
import struct

from streamsink.format.binary_row import decode_physical, encode_row
from streamsink.format.schema import TableSchema
from streamsink.format.types import AtomicType, type_to_json

_BOXED = {
    "BOOLEAN": "Boolean",
    "TINYINT": "Byte",
    "SMALLINT": "Short",
    "INT": "Integer",
    "DATE": "Integer",
    "TIME": "Integer",
    "BIGINT": "Long",
    "FLOAT": "Float",
    "DOUBLE": "Double",
}
_FUNCTIONS = {
    "equal": "equal",
    "not_equal": "notEqual",
    "greater_than": "greaterThan",
    "less_than": "lessThan",
    "greater_or_equal": "greaterOrEqual",
    "less_or_equal": "lessOrEqual",
    "is_null": "isNull",
    "is_not_null": "isNotNull",
}
_COMPACT = 3


class JavaPaimon:
    """Every call opens the table anew, so it sees what others did meanwhile."""

    def __init__(self, spark, on=None):
        """on: the URI of the HDFS with the tables; None for the local disk."""
        self._gateway = spark.sparkContext._gateway
        self._jvm = spark._jvm
        self._paimon = spark._jvm.org.apache.paimon
        self._io = self._paimon.fs.local.LocalFileIO.create() if on is None else self._hadoop(on)
        self._loader = self._io.getClass().getClassLoader()

    def _hadoop(self, uri):
        """The FileIO that Paimon itself chooses for this scheme: over Hadoop's client, which Spark brings."""
        path = self._paimon.fs.Path(uri)
        return self._paimon.fs.FileIO.get(path, self._paimon.catalog.CatalogContext.create(path))

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(self, path, where=(), columns=None) -> list[tuple]:
        """The physical rows, in these columns,
        for which all of ``where`` holds (pushed down and applied row by row)."""
        table, schema = self._open(path)
        builder = self._call("table.Table", table, "newReadBuilder")
        kind, names = "table.source.ReadBuilder", schema.field_names
        predicate = self._predicate(table, schema, where)
        if predicate is not None:
            self._call(kind, builder, "withFilter", ("predicate.Predicate", predicate))
        if columns is not None:
            wanted = self._gateway.new_array(self._jvm.int, len(columns))
            for i, name in enumerate(columns):
                wanted[i] = names.index(name)
            method = self._class(kind).getMethod("withProjection", self._classes("[I"))
            method.invoke(builder, self._objects(wanted))
        plan = self._call("table.source.TableScan", self._call(kind, builder, "newScan"), "plan")
        splits = self._call("table.source.TableScan$Plan", plan, "splits")
        read = self._call(kind, builder, "newRead")
        if predicate is not None:
            read = self._call("table.source.TableRead", read, "executeFilter")
        reader = self._call("table.source.TableRead", read, "createReader", ("java.util.List", splits))
        serializer = self._paimon.data.serializer.InternalRowSerializer(self._call(kind, builder, "readType"))
        types = [schema.field(name).type for name in (names if columns is None else columns)]
        return [decode_physical(row, types) for row in self._drain(reader, serializer)]

    def file_count(self, path, where=()) -> int:
        """How many data files a filtered scan would open."""
        table, schema = self._open(path)
        builder = self._call("table.Table", table, "newReadBuilder")
        predicate = self._predicate(table, schema, where)
        if predicate is not None:
            self._call("table.source.ReadBuilder", builder, "withFilter", ("predicate.Predicate", predicate))
        plan = self._call("table.source.TableScan", self._call("table.source.ReadBuilder", builder, "newScan"), "plan")
        splits = self._call("table.source.TableScan$Plan", plan, "splits")
        return sum(split.dataFiles().size() for split in splits)

    def _drain(self, reader, serializer) -> list[bytes]:
        """All rows in one trip, each with its length before it."""
        held = self._jvm.java.io.ByteArrayOutputStream()
        out = self._jvm.java.io.DataOutputStream(held)
        utils = self._paimon.utils.SerializationUtils
        found = self._paimon.reader.RecordReaderIterator(reader)
        while found.hasNext():
            row = utils.serializeBinaryRow(serializer.toBinaryRow(found.next()))
            out.writeInt(len(row))
            out.write(row)
        found.close()
        data, at, rows = bytes(held.toByteArray()), 0, []
        while at < len(data):
            size = struct.unpack_from(">i", data, at)[0]
            rows.append(data[at + 4 : at + 4 + size])
            at += 4 + size
        return rows

    def _predicate(self, table, schema, where):
        if not where:
            return None
        builder = self._paimon.predicate.PredicateBuilder(self._call("table.Table", table, "rowType"))
        made = self._jvm.java.util.ArrayList()
        for function, column, value in where:
            arguments = self._jvm.java.util.ArrayList()
            arguments.add(schema.field_names.index(column))
            kinds = ["int"]
            if value is not None:
                arguments.addAll(self._literal(schema.field(column).type, value))
                kinds.append("java.lang.Object")
            method = builder.getClass().getMethod(_FUNCTIONS[function], self._classes(*kinds))
            made.add(method.invoke(builder, arguments.toArray()))
        return getattr(self._paimon.predicate.PredicateBuilder, "and")(made)

    def _literal(self, t: AtomicType, value):
        """A Java list with the value as Paimon holds it.
        It is boxed in Java, because py4j would choose a width by itself."""
        held = self._jvm.java.util.ArrayList()
        if t.root in _BOXED:
            mapper = self._jvm.com.fasterxml.jackson.databind.ObjectMapper()
            kinds = (self._class("java.util.ArrayList"), self._class(f"java.lang.{_BOXED[t.root]}"))
            return mapper.readValue(json.dumps([value]), mapper.getTypeFactory().constructCollectionType(*kinds))
        if t.root in ("CHAR", "VARCHAR"):
            held.add(self._paimon.data.BinaryString.fromString(value))
        elif t.root == "DECIMAL":
            number = self._jvm.java.math.BigDecimal(format(value, "f"))
            held.add(self._paimon.data.Decimal.fromBigDecimal(number, t.precision, t.scale))
        elif t.root in ("BINARY", "VARBINARY"):
            held.add(value)
        else:
            millis, rest = divmod(value, 10**6)
            held.add(self._paimon.data.Timestamp.fromEpochMillis(millis, rest))
        return held

    # -- writing ---------------------------------------------------------------------------------------------------

    def create(self, path, fields, partition_by=(), options=None) -> None:
        """Create a table whose schema file Java writes."""
        builder = self._paimon.schema.Schema.newBuilder()
        for field in fields:
            builder.column(field.name, self.data_type(field.type))
        keys, given = self._jvm.java.util.ArrayList(), self._jvm.java.util.HashMap()
        for name in partition_by:
            keys.add(name)
        for name, value in (options or {}).items():
            given.put(name, value)
        builder.partitionKeys(keys)
        builder.options(given)
        self._manager(path).createTable(builder.build())

    def append(self, path, rows) -> None:
        """Make one commit with these physical rows."""
        self._commit(path, rows)

    def overwrite(self, path, rows, partition=None) -> None:
        """Make one OVERWRITE commit: of one partition, or by default of the partitions that the rows are in."""
        given = self._jvm.java.util.HashMap()
        for name, value in (partition or {}).items():
            given.put(name, value)
        self._commit(path, rows, given)

    def copy_index_manifest(self, path, name) -> str:
        """Java reads an index manifest and writes its entries as a new one, whose name is returned."""
        table, _ = self._open(path)
        manifest = table.store().indexManifestFileFactory().create()
        entries = manifest.read(name)
        mode = self._jvm.java.lang.Enum.valueOf(self._class("table.BucketMode"), "HASH_FIXED")
        return manifest.writeIndexFiles(None, entries, mode)

    def drop_partition(self, path, partition) -> None:
        """Delete all rows of one partition, given as text."""
        given, wanted = self._jvm.java.util.HashMap(), self._jvm.java.util.ArrayList()
        for name, value in partition.items():
            given.put(name, value)
        wanted.add(given)
        table, _ = self._open(path)
        builder = self._call("table.Table", table, "newBatchWriteBuilder")
        commit = self._call("table.sink.BatchWriteBuilder", builder, "newCommit")
        self._call("table.sink.BatchTableCommit", commit, "truncatePartitions", ("java.util.List", wanted))

    def compact(self, path) -> int:
        """Compact as Paimon's own job does. Returns the number of tasks."""
        table, _ = self._open(path)
        tasks = self._paimon.append.AppendCompactCoordinator(table, False).run()
        user = "compactor"
        write = table.store().newWrite(user)
        messages = self._jvm.java.util.ArrayList()
        for task in tasks:
            messages.add(task.doCompact(table, write))
        commit = table.newCommit(user)
        commit.commit(0, messages)
        commit.close()
        write.close()
        return len(tasks)

    def change(self, path, *changes) -> None:
        """Make schema changes: (name of SchemaChange's method, arguments...).
        Types are given as ``DataType``s of ours."""
        made = self._jvm.java.util.ArrayList()
        for name, *arguments in changes:
            given = [
                a if isinstance(a, (str, bool)) or not hasattr(a, "nullable") else self.data_type(a) for a in arguments
            ]
            made.add(getattr(self._paimon.schema.SchemaChange, name)(*given))
        self._manager(path).commitChanges(made)

    def add_nested(self, path, names, t) -> None:
        """Add a field to a ROW column, by its path."""
        array = self._gateway.new_array(self._jvm.java.lang.String, len(names))
        for i, name in enumerate(names):
            array[i] = name
        change = self._paimon.schema.SchemaChange.addColumn(array, self.data_type(t), None, None)
        made = self._jvm.java.util.ArrayList()
        made.add(change)
        self._manager(path).commitChanges(made)

    def data_type(self, t):
        """Java's type object for a type of ours."""
        mapper = self._paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper()
        return self._paimon.types.DataTypeJsonParser.parseDataType(mapper.readTree(json.dumps(type_to_json(t))))

    def _commit(self, path, rows, overwrite=None) -> None:
        table, schema = self._open(path)
        types = [f.type for f in schema.fields]
        kind = "table.sink.BatchWriteBuilder"
        builder = self._call("table.Table", table, "newBatchWriteBuilder")
        if overwrite is not None:
            self._call(kind, builder, "withOverwrite", ("java.util.Map", overwrite))
        writer = self._call(kind, builder, "newWrite")
        for row in rows:
            found = self._paimon.utils.SerializationUtils.deserializeBinaryRow(encode_row(row, types))
            self._call("table.sink.TableWrite", writer, "write", ("data.InternalRow", found))
        messages = self._call("table.sink.BatchTableWrite", writer, "prepareCommit")
        commit = self._call(kind, builder, "newCommit")
        self._call("table.sink.BatchTableCommit", commit, "commit", ("java.util.List", messages))
        self._call("table.sink.TableWrite", writer, "close")

    # -- the way into Java -----------------------------------------------------------------------------------------

    def _manager(self, path):
        return self._paimon.schema.SchemaManager(self._io, self._paimon.fs.Path(str(path)))

    def _open(self, path):
        table = self._paimon.table.FileStoreTableFactory.create(self._io, self._paimon.fs.Path(str(path)))
        schema = self._manager(path).latest().get()
        return table, TableSchema.from_json(schema.toString().encode(), "Java's schema")

    def _call(self, interface, target, name, *arguments):
        """Call by Java's reflection over the interface,
        because py4j does not see methods of package-private classes."""
        method = self._class(interface).getMethod(name, self._classes(*[kind for kind, _ in arguments]))
        return method.invoke(target, self._objects(*[value for _, value in arguments]))

    def _classes(self, *names):
        array = self._gateway.new_array(self._jvm.java.lang.Class, len(names))
        for i, name in enumerate(names):
            array[i] = self._class(name)
        return array

    def _objects(self, *values):
        array = self._gateway.new_array(self._jvm.java.lang.Object, len(values))
        for i, value in enumerate(values):
            array[i] = value
        return array

    def _class(self, name):
        if name == "int":
            return self._jvm.java.lang.Integer.TYPE
        if name == "[I":
            return self._gateway.new_array(self._jvm.int, 0).getClass()
        return self._loader.loadClass(name if name.startswith("java.") else "org.apache.paimon." + name)
