"""Types, DDL, schema files, evolution, supported features."""

import json

import pytest

from streamsink.errors import Corrupt, Misuse
from streamsink.format.arrow_types import from_arrow_schema, needs_int96, to_arrow_schema
from streamsink.format.evolution import evolve
from streamsink.format.schema import TableSchema
from streamsink.format.supported import check_readable, check_writable
from streamsink.format.types import field_from_json, field_to_json, parse_ddl, parse_type, type_to_json

NORMAL = [
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT NOT NULL",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "CHAR(3)",
    "VARCHAR(5)",
    "STRING",
    "BINARY(3)",
    "VARBINARY(5)",
    "BYTES",
    "DECIMAL(10, 2) NOT NULL",
    "DATE",
    "TIME(3)",
    "TIMESTAMP(6)",
    "TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL",
    "VARIANT",
    "BLOB",
    "GEOMETRY(OGC:CRS84)",
]


@pytest.mark.parametrize("text", NORMAL)
def test_type_strings_come_back_as_java_writes_them(text):
    assert type_to_json(parse_type(text)) == text
    assert type_to_json(parse_type(text.lower())).upper() == text.upper()


@pytest.mark.parametrize(
    "text,wanted",
    [
        ("integer", "INT"),
        ("NUMERIC(5)", "DECIMAL(5, 0)"),
        ("DEC", "DECIMAL(10, 0)"),
        ("double precision", "DOUBLE"),
        ("TIMESTAMP_LTZ(9)", "TIMESTAMP(9) WITH LOCAL TIME ZONE"),
        ("TIMESTAMP", "TIMESTAMP(6)"),
        ("TIME", "TIME(0)"),
        ("TIMESTAMP_NTZ", "TIMESTAMP(6)"),
        ("LONG", "BIGINT"),
        ("SHORT", "SMALLINT"),
        ("BYTE", "TINYINT"),
        ("CHAR", "CHAR(1)"),
        ("INT NULL", "INT"),
        ("VARCHAR(2147483647)", "STRING"),
        ("TIMESTAMP WITHOUT TIME ZONE", "TIMESTAMP(6)"),
    ],
)
def test_other_spellings(text, wanted):
    assert type_to_json(parse_type(text)) == wanted


def test_ddl_in_both_dialects():
    """Flink's and Spark's spelling of one list give equal columns."""
    flink = (
        "id BIGINT NOT NULL COMMENT 'it''s', `a b` STRING, t ARRAY<INT>, m MAP<STRING, BIGINT>, r ROW<a INT, b STRING>"
    )
    spark = (
        'id LONG not null comment "it\'s", `a b` string, t array<int>, m map<string,long>, r struct<a: int, b: string>'
    )
    assert parse_ddl(flink) == parse_ddl(spark)
    assert [f.name for f in parse_ddl(flink)] == ["id", "a b", "t", "m", "r"]
    assert parse_ddl(flink)[0].description == "it's"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "id",
        "id INT,",
        "id INT x",
        "id FOO",
        "id DECIMAL(39)",
        "id ARRAY<INT",
        "1 INT",
        "id VARCHAR(0)",
        "id TIMESTAMP(10)",
        "a " + "ARRAY<" * 500,
        "id INT; DROP",
        "id TIME WITH LOCAL TIME ZONE",
    ],
)
def test_bad_ddl_is_misuse(text):
    with pytest.raises(Misuse):
        parse_ddl(text)


def test_ids_are_assigned_depth_first():
    """A field comes first, then its nested fields, then the next column, as in Java."""
    schema = TableSchema.create(parse_ddl("x INT, r ROW<a INT, b ARRAY<ROW<c INT>>>, y INT"), (), {}, None, 1)
    row = schema.field("r").type
    assert [f.id for f in schema.fields] == [0, 1, 5] and [f.id for f in row.fields] == [2, 3]
    assert row.fields[1].type.element.fields[0].id == 4 and schema.highest_field_id == 5


def test_schema_files_come_back():
    fields = parse_ddl(
        "p STRING, x DECIMAL(5,2) NOT NULL COMMENT '\u00e9', m MAP<STRING, ARRAY<ROW<a INT>>>, v MULTISET<INT>"
    )
    schema = TableSchema.create(fields, ("p",), {"a": "b"}, "c", 5)
    data = schema.to_json()
    assert TableSchema.from_json(data, "schema-0") == schema
    assert list(json.loads(data)) == [
        "version",
        "id",
        "fields",
        "highestFieldId",
        "partitionKeys",
        "primaryKeys",
        "options",
        "comment",
        "timeMillis",
    ]
    for field in schema.fields:
        assert field_from_json(field_to_json(field)) == field
    foreign = {**json.loads(data), "comment": None, "future": 1, "options": {"a": True, "n": 3}}
    assert TableSchema.from_json(json.dumps(foreign).encode(), "s").options == {"a": "true", "n": "3"}


def test_old_schema_versions_have_their_defaults():
    found = json.loads(TableSchema.create(parse_ddl("x INT"), (), {}, None, 1).to_json())
    del found["version"]
    old = TableSchema.from_json(json.dumps(found).encode(), "s")
    assert old.version == 1 and old.options == {"bucket": "1", "file.format": "orc"}


def test_broken_schema_files_are_corrupt_and_named():
    data = TableSchema.create(parse_ddl("x INT, r ROW<a INT>"), ("x",), {}, None, 1).to_json()
    whole = json.loads(data)
    bad = [data[:i] for i in range(len(data))] + [b"[]", b"\xff", b"[" * 100000]
    bad += [
        json.dumps({k: v for k, v in whole.items() if k != key}).encode()
        for key in ("id", "fields", "highestFieldId", "partitionKeys", "primaryKeys", "options")
    ]
    bad += [json.dumps({**whole, key: 1.5}).encode() for key in whole]
    bad.append(json.dumps({**whole, "partitionKeys": ["nope"]}).encode())
    for broken in bad:
        with pytest.raises(Corrupt) as caught:
            TableSchema.from_json(broken, "schema-9")
        assert "schema-9" in str(caught.value)


@pytest.mark.parametrize(
    "ddl,more",
    [
        ("_ROW_ID INT", {}),
        ("_KEY_a INT", {}),
        ("rowkind INT", {}),
        ("a INT, a INT", {}),
        ("r ROW<a INT, a INT>", {}),
        ("a INT", {"partition_keys": ("b",)}),
        ("a ARRAY<INT>", {"partition_keys": ("a",)}),
        ("a INT", {"partition_keys": ("a", "a")}),
        ("a INT", {"partition_keys": ("a",), "primary_keys": ("a",)}),
        ("a INT", {"options": {"bucket": "4"}}),
        ("a INT", {"options": {"bucket": "0"}}),
        ("a INT", {"options": {"bucket": "x"}}),
        ("a INT", {"options": {"bucket": "2", "bucket-key": "z"}}),
        ("a INT", {"options": {"k": 1}}),
        ("a INT", {"options": {"bucket-key": "a"}}),
    ],
)
def test_creation_refuses_what_paimon_does(ddl, more):
    with pytest.raises(Misuse) as caught:
        TableSchema.create(
            parse_ddl(ddl), **{"partition_keys": (), "options": {}, "comment": None, "time_millis": 1, **more}
        )
    assert caught.value.kind.startswith("schema.")


def test_primary_keys_become_not_null():
    schema = TableSchema.create(parse_ddl("a INT, b INT"), (), {}, None, 1, primary_keys=("a",))
    assert [f.type.nullable for f in schema.fields] == [False, True]


def table(ddl, partition=()):
    return TableSchema.create(parse_ddl(ddl), partition, {}, None, 1)


def grown(ddl, wanted, add=True, widen=True, partition=()):
    return evolve(table(ddl, partition), parse_ddl(wanted), add_columns=add, widen_types=widen, time_millis=9)


def test_nothing_new_is_the_same_schema():
    schema = table("a BIGINT, b STRING NOT NULL, r ROW<x INT>")
    for wanted in ("a BIGINT, b STRING NOT NULL, r ROW<x INT>", "b STRING NOT NULL", "a INT, b VARCHAR(3) NOT NULL"):
        assert evolve(schema, parse_ddl(wanted), add_columns=True, widen_types=True, time_millis=9) is schema
    assert evolve(schema, parse_ddl("b STRING"), add_columns=False, widen_types=False, time_millis=9) is schema


def test_new_columns_and_nested_fields_get_fresh_ids():
    new = grown(
        "a INT, r ROW<x INT>, l ARRAY<ROW<y INT>>", "n ROW<q INT>, r ROW<x INT, z INT>, l ARRAY<ROW<y INT, w INT>>"
    )
    assert new.field_names == ("a", "r", "l", "n") and (new.id, new.time_millis, new.highest_field_id) == (1, 9, 8)
    assert [f.id for f in new.field("r").type.fields] == [2, 5]
    assert [f.id for f in new.field("l").type.element.fields] == [4, 6]
    assert new.field("n").id == 7 and new.field("n").type.fields[0].id == 8


def test_not_null_is_relaxed_only_when_widening():
    assert grown("a INT NOT NULL", "a INT").fields[0].type.nullable


@pytest.mark.parametrize(
    "ddl,wanted,add,widen,partition,hint",
    [
        ("a INT", "b INT", False, True, (), "add_columns=True"),
        ("a INT", "a BIGINT", True, False, (), "widen_types=True"),
        ("a INT", "b INT NOT NULL", True, True, (), "nullable"),
        ("a INT", "A INT", True, True, (), "case"),
        ("a INT", "a STRING", True, True, (), "no option"),
        ("a BIGINT", "a DOUBLE", True, True, (), "no option"),
        ("a CHAR(3)", "a CHAR(4)", True, True, (), "no option"),
        ("a BINARY(3)", "a BINARY(4)", True, True, (), "no option"),
        ("a TIMESTAMP(3)", "a TIMESTAMP(6)", True, True, (), "no option"),
        ("a DATE", "a TIMESTAMP(3)", True, True, (), "no option"),
        ("a TIMESTAMP(6)", "a TIMESTAMP_LTZ(6)", True, True, (), "no option"),
        ("a STRING", "a BYTES", True, True, (), "no option"),
        ("a DECIMAL(5,2)", "a DECIMAL(9,3)", True, True, (), "no option"),
        ("a INT, b INT", "a BIGINT", True, True, ("a",), "partition"),
        ("m MAP<INT, INT>", "m MAP<BIGINT, INT>", True, True, (), "m.key"),
        ("r ROW<x INT>", "r INT", True, True, (), "'r'"),
        ("r ROW<x INT>", "r ROW<x STRING>", True, True, (), "'r.x'"),
    ],
)
def test_every_other_change_is_refused_and_explained(ddl, wanted, add, widen, partition, hint):
    with pytest.raises(Misuse) as caught:
        grown(ddl, wanted, add, widen, partition)
    assert hint in str(caught.value) and caught.value.kind == "schema.evolution"


@pytest.mark.parametrize(
    "ddl, wanted, partition, hints",
    [
        (
            "a INT",
            "b INT, c INT NOT NULL, d INT NOT NULL",
            (),
            ("column 'b'", "add_columns=True", "'c', 'd'", "if(`c` IS NULL, NULL, `c`)"),
        ),
        ("r ROW<x INT>", "r ROW<x INT, y INT NOT NULL>", (), ("column 'r.y'", "add_columns=True", "CAST(`r` AS ...)")),
        ("m MAP<INT, INT>", "m MAP<BIGINT, INT>", (), ("m.key", "can never change")),
        ("m MAP<ROW<x INT>, INT>", "m MAP<ROW<x INT, y INT>, INT>", (), ("m.key", "can never change")),
        ("a INT, b INT", "a BIGINT", ("a",), ("'a'", "can never change")),
    ],
)
def test_a_change_that_no_option_alone_allows_says_so_at_once(ddl, wanted, partition, hints):
    """Formerly the first error named an option, and only the next error said what else was wrong,
    or that the change could never be allowed."""
    errors = []
    for options in (False, True):
        with pytest.raises(Misuse) as caught:
            grown(ddl, wanted, options, options, partition)
        errors.append(str(caught.value))
    assert errors[0] == errors[1] and all(hint in errors[0] for hint in hints), errors


def test_arrow_both_ways():
    """Every supported type survives the trip, with Paimon's units; unsupported ones name the column."""
    import pyarrow as pa

    ddl = (
        "a BOOLEAN, b TINYINT NOT NULL, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h STRING, i BYTES, "
        "j DECIMAL(9,2), k DATE, l TIME(3), m TIMESTAMP(3), n TIMESTAMP(6), o TIMESTAMP(9), p TIMESTAMP_LTZ(6), "
        "q ARRAY<INT NOT NULL>, r MAP<STRING NOT NULL, ROW<x INT>>"
    )
    assert from_arrow_schema(to_arrow_schema(parse_ddl(ddl))) == parse_ddl(ddl)
    units = to_arrow_schema(parse_ddl("a TIMESTAMP(0), b TIMESTAMP(5), c TIMESTAMP(7), d TIMESTAMP_LTZ(1), e TIME(9)"))
    assert [str(t) for t in units.types] == [
        "timestamp[ms]",
        "timestamp[us]",
        "timestamp[ns]",
        "timestamp[ms, tz=UTC]",
        "time32[ms]",
    ]
    lenient = pa.schema([("s", pa.dictionary(pa.int8(), pa.large_string())), ("l", pa.large_list(pa.int32()))])
    assert from_arrow_schema(lenient) == parse_ddl("s STRING, l ARRAY<INT>")
    for bad in (pa.uint8(), pa.null(), pa.float16(), pa.time64("us"), pa.decimal256(50, 2), pa.duration("s")):
        with pytest.raises(Misuse, match="'c.x'"):
            from_arrow_schema(pa.schema([("c", pa.struct([("x", bad)]))]))
    with pytest.raises(Misuse, match="'v'"):
        to_arrow_schema(parse_ddl("v VARIANT"))
    assert needs_int96(parse_ddl("a ARRAY<ROW<x TIMESTAMP_LTZ(7)>>")) and not needs_int96(parse_ddl("a TIMESTAMP(6)"))


@pytest.mark.parametrize(
    "options",
    [
        {"bucket": "4"},
        {"bucket": "-2"},
        {"row-tracking.enabled": "TRUE"},
        {"deletion-vectors.enabled": "true"},
        {"file.format": "orc"},
        {"file.format.per.level": "0:avro"},
        {"data-file.external-paths": "s3://x"},
        {"commit.callbacks": "x.Y"},
        {"type": "format-table"},
        {"branch": "b"},
        {"query-auth.enabled": "true"},
        {"metastore.partitioned-table": "true"},
        {"metastore.other": "x"},
        {"chain-table.enabled": "true"},
        {"metadata.iceberg.storage": "hive-catalog"},
        {"metadata.iceberg.format-version": "3", "metadata.iceberg.storage": "table-location"},
        {"sequence.field": "x"},
        {"bucket-key": "a"},
        {"file.suffix.include.compression": "true"},
        {"data-evolution.enabled": "true"},
        {"blob-field": "a"},
        {"file.compression": "lzo"},
        {"file.compression.zstd-level": "fast"},
    ],
)
def test_features_of_other_writers_are_refused_by_name(options):
    fields = table("a INT").fields
    schema = TableSchema(3, 0, fields, 0, options=options)
    with pytest.raises(Misuse, match=next(iter(options)).replace(".", r"\.")):
        check_writable(schema)


def test_harmless_options_pass():
    options = {
        "file.format": "PARQUET",
        "bucket": "-1",
        "deletion-vectors.enabled": "FALSE",
        "whatever": "1",
        "merge-engine": "deduplicate",
        "write-only": "true",
        "metadata.iceberg.storage": "table-location",
        "metastore.partitioned-table": "false",
        "manifest.compression": "zstd",
        "file.compression": "Snappy",
        "file.compression.zstd-level": "-3",
    }
    check_writable(TableSchema(3, 0, table("a INT, r ROW<b ARRAY<INT>>").fields, 3, options=options))
    check_readable(TableSchema(3, 0, table("a INT").fields, 0, options={"row-tracking.enabled": "true"}))


@pytest.mark.parametrize("ddl", ["v VARIANT", "r ROW<b BLOB>", "m MAP<INT, MULTISET<INT>>", "x VECTOR<FLOAT, 3>"])
def test_columns_that_no_reader_shares_are_refused(ddl):
    for check in (check_readable, check_writable):
        with pytest.raises(Misuse, match=f"'{ddl[0]}'"):
            check(table(ddl))
    with pytest.raises(Misuse, match="primary key"):
        check_writable(TableSchema.create(parse_ddl("a INT"), (), {}, None, 1, primary_keys=("a",)))


def test_random_text_is_never_another_error(rng):
    words = [
        "a",
        "INT",
        "ARRAY",
        "<",
        ">",
        "(",
        ")",
        ",",
        "3",
        "NOT",
        "NULL",
        "ROW",
        "MAP",
        ":",
        "`x`",
        "COMMENT",
        "'c'",
    ]
    for _ in range(3000):
        try:
            parse_ddl(" ".join(rng.choice(words) for _ in range(rng.randrange(9))))
        except Misuse:
            continue
