"""Our bytes are compared with Java Paimon's own for the same rows.
Needs STREAMSINK_PAIMON_JAR (paimon-bundle) and pyspark's jars."""

import datetime
import decimal
import glob
import os
from dataclasses import replace

import pytest

from streamsink.format.arrow_types import to_arrow_schema
from streamsink.format.binary_row import EMPTY_ROW, decode_row, encode_row
from streamsink.format.evolution import evolve
from streamsink.format.manifest import read_manifest, write_manifest
from streamsink.format.manifest_list import ManifestFileMeta, read_manifest_list, write_manifest_list
from streamsink.format.paths import bucket_dir, partition_path
from streamsink.format.schema import TableSchema
from streamsink.format.snapshot import Snapshot
from streamsink.format.stats import StatsCollector
from streamsink.format.types import parse_ddl, parse_type
from tools.cds import OF_SERVERS

JAR = os.environ.get("STREAMSINK_PAIMON_JAR")
pytestmark = pytest.mark.skipif(not JAR, reason="STREAMSINK_PAIMON_JAR is not set")

COLUMNS = """\
b BOOLEAN, t TINYINT, s SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, c CHAR(30), v VARCHAR(100), st STRING,
  bi BINARY(3), vb VARBINARY(9), by BYTES, d1 DECIMAL(5,2), d2 DECIMAL(18,4), d3 DECIMAL(38,10), dt DATE, ti TIME(3),
  ts0 TIMESTAMP(0), ts3 TIMESTAMP(3), ts6 TIMESTAMP(6), ts9 TIMESTAMP(9), lt3 TIMESTAMP_LTZ(3), lt6 TIMESTAMP_LTZ(6),
  lt9 TIMESTAMP_LTZ(9), a ARRAY<INT>, m MAP<STRING, BIGINT>, r ROW<x INT, y STRING>, e STRING"""
NESTED = ("a", "m", "r")


@pytest.fixture(scope="module")
def gateway():
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    pyspark = pytest.importorskip("pyspark")
    jars = os.path.join(os.path.dirname(pyspark.__file__), "jars")
    port, token = launch_gateway(
        classpath=os.pathsep.join([JAR, os.path.join(jars, "*")]),
        die_on_exit=True,
        jarpath=glob.glob(os.path.join(jars, "py4j*.jar"))[0],
        enable_auth=True,
        javaopts=OF_SERVERS,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    yield gateway
    gateway.shutdown()


class JavaTable:
    """A table whose schema file is ours and whose rows are written by Java."""

    def __init__(self, gateway, root, schema):
        jvm = gateway.jvm
        self.gateway, self.jvm, self.root, self.schema = gateway, jvm, str(root), schema
        os.makedirs(os.path.join(self.root, "schema"))
        with open(os.path.join(self.root, "schema", "schema-0"), "wb") as out:
            out.write(schema.to_json())
        path = jvm.org.apache.paimon.fs.Path(self.root)
        self.load(path)

    @classmethod
    def open(cls, gateway, root, schema):
        """The same table with the schema files as they are now."""
        self = cls.__new__(cls)
        self.gateway, self.jvm, self.root, self.schema = gateway, gateway.jvm, root, schema
        self.load(self.jvm.org.apache.paimon.fs.Path(root))
        return self

    def load(self, path):
        jvm = self.jvm
        self.table = jvm.org.apache.paimon.table.FileStoreTableFactory.create(
            jvm.org.apache.paimon.fs.local.LocalFileIO.create(), path
        )

    def write(self, rows):
        types = [f.type for f in self.schema.fields]
        builder = self.call("table.Table", self.table, "newBatchWriteBuilder")
        writer = self.call("table.sink.BatchWriteBuilder", builder, "newWrite")
        for row in rows:
            found = self.jvm.org.apache.paimon.utils.SerializationUtils.deserializeBinaryRow(encode_row(row, types))
            self.call("table.sink.TableWrite", writer, "write", ("data.InternalRow", found))
        messages = self.call("table.sink.BatchTableWrite", writer, "prepareCommit")
        commit = self.call("table.sink.BatchWriteBuilder", builder, "newCommit")
        self.call("table.sink.BatchTableCommit", commit, "commit", ("java.util.List", messages))
        self.call("table.sink.TableWrite", writer, "close")

    def read_rows(self, predicate=None):
        builder = self.call("table.Table", self.table, "newReadBuilder")
        kind = "table.source.ReadBuilder"
        if predicate is not None:
            self.call(kind, builder, "withFilter", ("predicate.Predicate", predicate))
        plan = self.call("table.source.TableScan", self.call(kind, builder, "newScan"), "plan")
        splits = self.call("table.source.TableScan$Plan", plan, "splits")
        reader = self.call(
            "table.source.TableRead", self.call(kind, builder, "newRead"), "createReader", ("java.util.List", splits)
        )
        rows, utils = [], self.jvm.org.apache.paimon.utils
        serializer = self.jvm.org.apache.paimon.data.serializer.InternalRowSerializer(
            self.call("table.Table", self.table, "rowType")
        )
        found = self.jvm.org.apache.paimon.reader.RecordReaderIterator(reader)
        while found.hasNext():
            rows.append(bytes(utils.SerializationUtils.serializeBinaryRow(serializer.toBinaryRow(found.next()))))
        return rows

    def call(self, interface, target, name, *arguments):
        """Call by Java's reflection over the interface,
        because py4j does not see methods of package-private classes."""
        classes = self.gateway.new_array(self.jvm.java.lang.Class, len(arguments))
        values = self.gateway.new_array(self.jvm.java.lang.Object, len(arguments))
        for i, (kind, value) in enumerate(arguments):
            classes[i] = self.java_class(kind)
            values[i] = value
        return self.java_class(interface).getMethod(name, classes).invoke(target, values)

    def java_class(self, name):
        return self.jvm.java.lang.Class.forName(name if name.startswith("java.") else "org.apache.paimon." + name)

    def read(self, name):
        with open(os.path.join(self.root, name), "rb") as found:
            return found.read()

    def delta(self):
        snapshot = Snapshot.from_json(self.read("snapshot/snapshot-1"), "snapshot-1")
        data = self.read("manifest/" + snapshot.delta_manifest_list)
        assert len(data) == snapshot.delta_manifest_list_size
        metas = read_manifest_list(data, "list")
        return metas, [read_manifest(self.read("manifest/" + m.file_name), m.file_name) for m in metas]


def collected(schema, rows):
    import pyarrow as pa

    types = to_arrow_schema(schema.fields)
    columns = []
    for i, field in enumerate(types):
        values = [row[i] for row in rows]
        if pa.types.is_time32(field.type):
            columns.append(pa.array(values, pa.int32()).cast(field.type))
        elif pa.types.is_timestamp(field.type) and any(isinstance(v, int) for v in values):
            columns.append(pa.array(values, pa.int64()).cast(field.type))
        elif pa.types.is_map(field.type):
            columns.append(pa.array([None if v is None else list(v.items()) for v in values], field.type))
        elif pa.types.is_struct(field.type):
            columns.append(pa.array([None if v is None else {"x": v[0], "y": v[1]} for v in values], field.type))
        else:
            columns.append(pa.array(values, field.type))
    collector = StatsCollector(schema.fields, schema.options)
    batch = pa.RecordBatch.from_arrays(columns, schema=types)
    half = len(rows) // 2
    for part in (batch.slice(0, half), batch.slice(half)):
        collector.update(part)
    return collector.finish()


def random_rows(random_source, count, null_share):
    pick = random_source
    texts = ["", "a", "abc\u00e9", "x" * 16, "x" * 17, "\U0001f600" * 20, "\U0010ffff" * 18, "m" + "\U0010ffff" * 20]

    def row():
        day = datetime.datetime(2024, 1, 2, 3, 4, 5) + datetime.timedelta(
            seconds=pick.randrange(-(10**10), 10**9), milliseconds=pick.randrange(1000)
        )
        micros = day + datetime.timedelta(microseconds=pick.randrange(1000))
        nanos = pick.randrange(-(2**60), 2**60)
        digits = pick.randrange(-(10**37), 10**37)
        out = [
            pick.random() < 0.5,
            pick.randrange(-128, 128),
            pick.randrange(-(2**15), 2**15),
            pick.randrange(-(2**31), 2**31),
            pick.randrange(-(2**63), 2**63),
            pick.choice([3.5, 1.5, -2.25]),
            pick.choice([1e300, -7.125, float("inf")]),
            pick.choice(texts[:6]),
            pick.choice(texts),
            pick.choice(texts[:5]),
            b"abc",
            b"xy",
            bytes(pick.randrange(30)),
            decimal.Decimal(pick.randrange(-99999, 100000)).scaleb(-2),
            decimal.Decimal(pick.randrange(-(10**17), 10**17)).scaleb(-4),
            decimal.Decimal(digits).scaleb(-10, decimal.Context(prec=50)),
            day.date(),
            pick.randrange(86_400_000),
            day.replace(microsecond=0),
            day,
            micros,
            nanos,
            day,
            micros,
            nanos,
            [1, None, 3],
            {"k": 7},
            (1, "y"),
            None,
        ]
        return [None if pick.random() < null_share else value for value in out]

    return [row() for _ in range(count)]


MODES = [
    {},
    {"metadata.stats-mode": "full"},
    {"metadata.stats-mode": "counts"},
    {"metadata.stats-mode": "none"},
    {"metadata.stats-mode": "truncate(3)", "fields.i.stats-mode": "none", "fields.v.stats-mode": "full"},
    {"metadata.stats-keep-first-n-columns": "9"},
    {"metadata.stats-keep-first-n-columns": "3", "fields.st.stats-mode": "full"},
    {"metadata.stats-dense-store": "false"},
    {"metadata.stats-dense-store": "false", "metadata.stats-mode": "none"},
]


@pytest.mark.in_turn("statistics of Java", 3)
@pytest.mark.parametrize("options", MODES, ids=[",".join(m.values()) or "default" for m in MODES])
@pytest.mark.parametrize("nulls", [0.0, 0.3])
def test_value_stats_are_the_bytes_java_writes(gateway, tmp_path, options, nulls, rng):
    """For every type and stats mode, _VALUE_STATS and _VALUE_STATS_COLS equal Java's."""
    schema = TableSchema.create(parse_ddl(COLUMNS), (), options, None, 1)
    rows = random_rows(rng, 30, nulls)
    table = JavaTable(gateway, tmp_path / "t", schema)
    table.write(rows)
    (_,), ((entry,),) = table.delta()
    stats, cols = collected(schema, rows)
    java = entry.file
    assert cols == java.value_stats_cols
    types = [schema.field(name).type for name in (cols if cols is not None else schema.field_names)]
    if types and not any(name in NESTED for name in (cols if cols is not None else schema.field_names)):
        assert decode_row(stats.min_values, types) == decode_row(java.value_stats.min_values, types)
        assert decode_row(stats.max_values, types) == decode_row(java.value_stats.max_values, types)
    assert stats == java.value_stats
    assert (entry.partition, entry.bucket, entry.total_buckets) == (EMPTY_ROW, 0, -1)
    assert (java.min_sequence_number, java.max_sequence_number, java.level) == (0, 29, 0)


@pytest.mark.parametrize(
    "column,values",
    [
        ("f FLOAT", [0.0, -0.0]),
        ("d DOUBLE", [float("-inf"), -0.0, 0.0]),
        ("s STRING", ["\U0010ffff" * 17]),
        ("s STRING", ["a" * 15 + "\U0010ffff" * 2]),
        ("s STRING", [None, None]),
        ("s STRING", ["a" * 15 + "\ue000z", "b"]),
        ("i INT", [None]),
        ("b BYTES", [None]),
        ("t TIMESTAMP(9)", [None]),
    ],
)
def test_awkward_values_have_java_s_stats(gateway, tmp_path, column, values):
    """The values are zeros, truncation that overflows, and only nulls.
    Where we go further than Java is tested in test_stats_and_paths.py."""
    schema = TableSchema.create(parse_ddl(column), (), {}, None, 1)
    table = JavaTable(gateway, tmp_path / "t", schema)
    table.write([[v] for v in values])
    (_,), ((entry,),) = table.delta()
    assert collected(schema, [[v] for v in values]) == (entry.file.value_stats, entry.file.value_stats_cols)


PARTITIONS = [
    ("p STRING", ["a/b=c%d:e", None, "", " ", "..", "\u00e9\u4e2d", "\u00a0", "\u2003"]),
    ("p INT", [1, -1, None]),
    ("p DATE", [datetime.date(2024, 1, 2), datetime.date(1900, 12, 31)]),
    ("p BOOLEAN", [True, False]),
    ("p DECIMAL(5,2)", [decimal.Decimal("5.10"), decimal.Decimal("-0.01")]),
    ("p DECIMAL(38,10)", [decimal.Decimal("0.0000000001"), decimal.Decimal(0), None]),
    ("p TIME(3)", [3600000, 3600120, 1]),
    ("p DOUBLE", [1.5, 1e10, 1e7, 9999999.0, 0.001, 0.0001, -0.0, 123456.789, 1e22]),
    ("p FLOAT", [1.5, 16777216.0, 0.25, 1e-5]),
    ("p TIMESTAMP(3)", [datetime.datetime(2024, 1, 2, 3, 4, 5, 123000), datetime.datetime(2024, 1, 2, 3, 4)]),
    (
        "p TIMESTAMP(6)",
        [datetime.datetime(2024, 1, 2, 3, 4, 5, 123456), datetime.datetime(1969, 1, 2, 3, 4, 0, 1), None],
    ),
    ("p TIMESTAMP(9)", [1, 1_700_000_000_123_456_789, -1]),
]


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("ddl,values", PARTITIONS, ids=[p[0] for p in PARTITIONS])
def test_partition_bytes_paths_and_stats_are_java_s(gateway, tmp_path, ddl, values, legacy):
    """The partition's bytes, its directory and the manifest list's stats equal Java's, for every key type."""
    options = {"partition.legacy-name": str(legacy).lower()}
    schema = TableSchema.create(parse_ddl(f"x INT, {ddl}"), ("p",), options, None, 1)
    table = JavaTable(gateway, tmp_path / "t", schema)
    table.write([[i, v] for i, v in enumerate(values)])
    metas, manifests = table.delta()
    types = [f.type for f in schema.partition_fields]
    entries = [e for manifest in manifests for e in manifest]
    assert {e.partition for e in entries} == {encode_row([v], types) for v in values}
    for entry in entries:
        path = partition_path(decode_row(entry.partition, types), schema.partition_fields, legacy=legacy)
        assert os.path.isfile(os.path.join(table.root, bucket_dir(path, entry.bucket), entry.file.file_name)), path
    for meta, found in zip(metas, manifests):
        assert ManifestFileMeta.of(meta.file_name, meta.file_size, found, types) == meta


def test_java_re_encodes_our_rows_to_the_same_bytes(gateway, rng):
    """A row that Java builds field by field has the bytes of ours, nulls of wide decimals and timestamps included."""
    jvm = gateway.jvm
    schema = TableSchema.create(parse_ddl(COLUMNS + ", " + ", ".join(f"w{i} INT" for i in range(40))), (), {}, None, 1)
    types = [f.type for f in schema.fields]
    row_type = jvm.org.apache.paimon.schema.TableSchema.fromJson(schema.to_json().decode()).logicalRowType()
    utils = jvm.org.apache.paimon.utils
    serializer = jvm.org.apache.paimon.data.serializer.InternalRowSerializer(row_type)
    order = jvm.java.util.stream.IntStream.range(0, len(types)).toArray()
    for row in random_rows(rng, 50, 0.3):
        ours = encode_row(row + [None, 7] * 20, types)
        again = serializer.toBinaryRow(
            getattr(utils.ProjectedRow, "from")(order).replaceRow(utils.SerializationUtils.deserializeBinaryRow(ours))
        )
        assert bytes(utils.SerializationUtils.serializeBinaryRow(again)) == ours


WIDENINGS = [
    ("TINYINT", "SMALLINT"),
    ("SMALLINT", "INT"),
    ("INT", "BIGINT"),
    ("TINYINT", "BIGINT"),
    ("FLOAT", "DOUBLE"),
    ("DECIMAL(5, 2)", "DECIMAL(30, 2)"),
    ("VARCHAR(3)", "STRING"),
    ("CHAR(3)", "VARCHAR(9)"),
    ("CHAR(3)", "STRING"),
    ("BINARY(3)", "BYTES"),
    ("VARBINARY(3)", "VARBINARY(9)"),
    ("TIMESTAMP(4)", "TIMESTAMP(6)"),
    ("TIMESTAMP_LTZ(0)", "TIMESTAMP_LTZ(3)"),
    ("TIMESTAMP(7)", "TIMESTAMP(9)"),
]


@pytest.mark.parametrize("narrow,wide", WIDENINGS, ids=[f"{a}-{b}" for a, b in WIDENINGS])
def test_java_reads_a_widened_column(gateway, tmp_path, narrow, wide):
    """A file written before the widening is read by Java with the new type, bounds and values intact."""
    values = {
        "DEC": decimal.Decimal("-1.25"),
        "VAR": "abc",
        "CHA": "abc",
        "BIN": b"abc",
        "FLO": 1.5,
        "TIM": datetime.datetime(2024, 1, 2, 3, 4, 5),
    }
    value = b"abc" if "BINARY" in narrow else values.get(narrow[:3], -7)
    old = TableSchema.create(parse_ddl(f"c {narrow}"), (), {}, None, 1)
    table = JavaTable(gateway, tmp_path / "t", old)
    table.write([[value]])
    new = evolve(old, parse_ddl(f"c {wide}, x INT"), add_columns=True, widen_types=True, time_millis=2)
    assert (new.id, str(new.fields[0].type)) == (1, str(parse_type(wide)))
    with open(os.path.join(table.root, "schema", "schema-1"), "wb") as out:
        out.write(new.to_json())
    again = JavaTable.open(gateway, table.root, new)
    assert again.read_rows() == [encode_row([value, None], [f.type for f in new.fields])]


@pytest.mark.parametrize("function", ["greaterThan", "lessThan", "equal", "greaterOrEqual"])
def test_java_prunes_nothing_without_bounds(gateway, tmp_path, function):
    """Stats with a null count but no bounds (our answer to NaN) leave the file in a filtered scan."""
    schema = TableSchema.create(parse_ddl("d DOUBLE, i INT"), (), {}, None, 1)
    rows = [[float("nan"), 1], [10.0, 2]]
    table = JavaTable(gateway, tmp_path / "t", schema)
    table.write(rows)
    metas, ((entry,),) = table.delta()
    stats, cols = collected(schema, rows)
    assert cols is None
    changed = replace(entry, file=replace(entry.file, value_stats=stats))
    data = write_manifest([changed])
    with open(os.path.join(table.root, "manifest", "ours"), "wb") as out:
        out.write(data)
    lists = write_manifest_list([ManifestFileMeta.of("ours", len(data), [changed], [])])
    with open(os.path.join(table.root, "manifest", "our-list"), "wb") as out:
        out.write(lists)
    old = Snapshot.from_json(table.read("snapshot/snapshot-1"), "snapshot-1")
    new = replace(old, delta_manifest_list="our-list", delta_manifest_list_size=len(lists))
    with open(os.path.join(table.root, "snapshot", "snapshot-1"), "wb") as out:
        out.write(new.to_json())
    again = JavaTable.open(gateway, table.root, schema)
    builder = gateway.jvm.org.apache.paimon.predicate.PredicateBuilder(
        again.call("table.Table", again.table, "rowType")
    )
    predicate = getattr(builder, function)(0, gateway.jvm.java.lang.Double.parseDouble("5.0"))
    assert len(again.read_rows(predicate)) == 2
