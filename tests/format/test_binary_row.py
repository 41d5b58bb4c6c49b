"""BinaryRow: the bytes of Java's worked examples, round trips, and bytes that are not a row."""

import datetime
import decimal

import pytest

from streamsink.errors import Corrupt, Misuse
from streamsink.format.binary_row import EMPTY_ROW, decode_row, encode_row
from streamsink.format.types import ArrayType, parse_ddl, parse_type

ONE = "00000001 0000000000000000 "
NULL = "00000001 0001000000000000 "
EXAMPLES = [
    ("INT", 1, ONE + "0100000000000000"),
    ("INT", -1, ONE + "ffffffff00000000"),
    ("INT", None, NULL + "0000000000000000"),
    ("BIGINT", 42, ONE + "2a00000000000000"),
    ("BOOLEAN", True, ONE + "0100000000000000"),
    ("TINYINT", -2, ONE + "fe00000000000000"),
    ("FLOAT", 1.5, ONE + "0000c03f00000000"),
    ("DOUBLE", -2.5, ONE + "00000000000004c0"),
    ("DATE", datetime.date(2024, 1, 2), ONE + "0c4d000000000000"),
    ("STRING", "", ONE + "0000000000000080"),
    ("STRING", "abc", ONE + "6162630000000083"),
    ("STRING", "abcdefg", ONE + "6162636465666787"),
    ("STRING", "abcdefgh", ONE + "0800000010000000 6162636465666768"),
    ("STRING", "2024-01-01", ONE + "0a00000010000000 323032342d30312d 3031000000000000"),
    ("TIMESTAMP(3)", datetime.datetime(2024, 1, 2, 3, 4, 5, 123000), ONE + "03d920c88c010000"),
    ("TIMESTAMP(6)", datetime.datetime(2024, 1, 2, 3, 4, 5, 123456), ONE + "40f5060010000000 03d920c88c010000"),
    ("TIMESTAMP(6)", None, NULL + "0000000010000000 0000000000000000"),
    ("DECIMAL(10,2)", decimal.Decimal("-123.45"), ONE + "c7cfffffffffffff"),
    ("DECIMAL(38,10)", decimal.Decimal("-1.5"), ONE + "0500000010000000 fc81ee2a00000000 0000000000000000"),
    ("DECIMAL(38,10)", None, NULL + "0000000010000000 0000000000000000 0000000000000000"),
    ("ARRAY<INT>", [1, None, 3], ONE + "1800000010000000 0300000002000000 0100000000000000 0300000000000000"),
    (
        "MAP<STRING, BIGINT>",
        {"k": 7},
        ONE + "2400000010000000 10000000 01000000000000006b00000000000081 01000000000000000700000000000000 00000000",
    ),
]


def column(text):
    return parse_ddl(f"c {text}")[0].type


@pytest.mark.parametrize("text,value,wanted", EXAMPLES, ids=[f"{t}-{v}" for t, v, _ in EXAMPLES])
def test_worked_examples_to_the_byte(text, value, wanted):
    """A row of one field has Java's bytes and reads back as the value."""
    data = encode_row([value], [column(text)])
    assert data.hex() == wanted.replace(" ", "")
    assert decode_row(data, [column(text)]) == (value,)


def test_rows_of_none_two_and_many_fields():
    """The empty row, offsets behind two slots, and 16 bytes of null bits from 57 fields on."""
    assert encode_row([], []) == EMPTY_ROW == bytes(12)
    two = [parse_type("STRING"), parse_type("INT")]
    assert encode_row(["2024-01-01", 7], two).hex() == (
        "0000000200000000000000000a000000180000000700000000000000323032342d30312d3031000000000000"
    )
    for arity, null_bytes in ((56, 8), (57, 16), (120, 16), (121, 24)):
        row = encode_row([None] * arity, [parse_type("INT")] * arity)
        assert len(row) == 4 + null_bytes + 8 * arity
        assert sum(bin(b).count("1") for b in row[4 : 4 + null_bytes]) == arity and row[4] == 0
        assert decode_row(row, [parse_type("INT")] * arity) == (None,) * arity


def random_value(pick, text):
    if pick.random() < 0.2:
        return None
    utc = datetime.timezone.utc
    moment = datetime.datetime(2000, 1, 1) + datetime.timedelta(microseconds=pick.randrange(-6 * 10**16, 10**16))
    return {
        "BOOLEAN": lambda: pick.random() < 0.5,
        "BIGINT": lambda: pick.randrange(-(2**63), 2**63),
        "STRING": lambda: "\u00e9" * pick.randrange(12),
        "BYTES": lambda: bytes(pick.randrange(20)),
        "DECIMAL(38,3)": lambda: decimal.Decimal(pick.randrange(-(10**30), 10**30)).scaleb(
            -3, decimal.Context(prec=60)
        ),
        "DECIMAL(18,3)": lambda: decimal.Decimal(pick.randrange(-(10**17), 10**17)).scaleb(-3),
        "DATE": moment.date,
        "TIME(3)": lambda: datetime.time(3, 4, 5, pick.randrange(1000) * 1000),
        "TIMESTAMP(6)": lambda: moment,
        "TIMESTAMP_LTZ(6)": lambda: moment.replace(tzinfo=utc),
        "TIMESTAMP(3)": lambda: moment.replace(microsecond=pick.randrange(1000) * 1000),
        "TIMESTAMP(9)": lambda: pick.randrange(-(2**62), 2**62),
        "ARRAY<STRING>": lambda: ["x" * pick.randrange(12), None],
        "MAP<INT, DECIMAL(30,1)>": lambda: {1: decimal.Decimal("2.5"), pick.randrange(9): None},
        "ROW<a INT, b ARRAY<TIMESTAMP(6)>>": lambda: (None, [moment, None]),
    }[text]()


ROUND_TRIP = [
    "BOOLEAN",
    "BIGINT",
    "STRING",
    "BYTES",
    "DECIMAL(38,3)",
    "DECIMAL(18,3)",
    "DATE",
    "TIME(3)",
    "TIMESTAMP(6)",
    "TIMESTAMP_LTZ(6)",
    "TIMESTAMP(3)",
    "TIMESTAMP(9)",
    "ARRAY<STRING>",
    "MAP<INT, DECIMAL(30,1)>",
    "ROW<a INT, b ARRAY<TIMESTAMP(6)>>",
]


def test_random_rows_come_back(rng):
    """What is encoded decodes to itself, for random rows of random types."""
    for _ in range(300):
        texts = [rng.choice(ROUND_TRIP) for _ in range(rng.randrange(70))]
        values = [random_value(rng, text) for text in texts]
        types = [column(text) for text in texts]
        data = encode_row(values, types)
        assert decode_row(data, types) == tuple(values)
        assert len(data) % 8 == 4


def test_bytes_that_are_no_row_are_corrupt(rng):
    """Cut or altered rows raise Corrupt, never anything else."""
    types = [column(text) for text in ROUND_TRIP]
    whole = encode_row([random_value(rng, text) for text in ROUND_TRIP], types)
    for cut in range(12 + 8 * len(types)):
        with pytest.raises(Corrupt):
            decode_row(whole[:cut], types)
    for _ in range(3000):
        altered = bytearray(whole)
        altered[rng.randrange(len(altered))] = rng.randrange(256)
        try:
            decode_row(bytes(altered), types)
        except Corrupt:
            continue


@pytest.mark.parametrize(
    "text,value",
    [
        ("INT", "1"),
        ("INT", 2**31),
        ("TINYINT", 128),
        ("STRING", b"x"),
        ("DECIMAL(3,1)", decimal.Decimal("100")),
        ("DECIMAL(3,1)", decimal.Decimal("1.25")),
        ("BOOLEAN", 1),
        ("DATE", "2024"),
        ("INT", True),
        ("DECIMAL(3,1)", decimal.Decimal("NaN")),
        ("STRING", "\ud800"),
    ],
)
def test_values_that_do_not_fit_are_misuse(text, value):
    """A wrong value is refused, and the message does not show it."""
    with pytest.raises(Misuse) as caught:
        encode_row([value], [column(text)])
    assert caught.value.kind == "row.bad-value"


def test_nested_array_reads_its_element_type():
    assert decode_row(encode_row([[True, None]], [ArrayType(column("BOOLEAN"))]), [ArrayType(column("BOOLEAN"))]) == (
        [True, None],
    )
