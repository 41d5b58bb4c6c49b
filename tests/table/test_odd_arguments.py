"""Arguments of any kind are accepted,
or refused by an error that names the table and the argument, never by Python's own error."""

import dataclasses
from datetime import datetime, timezone
from pathlib import Path

import pytest

import streamsink
from streamsink import maintenance
from streamsink.errors import Misuse
from streamsink.options import SinkOptions, words_of

ODD = (
    None,
    5,
    -1,
    1.5,
    True,
    "",
    "x",
    b"x",
    (),
    [],
    {},
    ["x"],
    (1, 2),
    ("a", "a"),
    {"x": 1},
    {"a": None},
    [["x"]],
    float("nan"),
    object(),
)
_NAMES = [field.name for field in dataclasses.fields(SinkOptions)]


def _refused_or_done(call, *words: str) -> None:
    for value in ODD:
        try:
            call(value)
        except Misuse as refused:
            for word in words:
                assert word in str(refused), (value, str(refused))


@pytest.mark.parametrize("name", _NAMES)
def test_options(name):
    def given(value):
        options = SinkOptions.of("lake/t", {name: value})
        words_of(options.accept_as_new), words_of(options.accept_as_seen)

    _refused_or_done(given, "lake/t", name.removesuffix("_options"))


@pytest.mark.parametrize("name", ["expire_snapshots", "expire_tags", "remove_orphan_files"])
@pytest.mark.parametrize("given", [datetime(2026, 11, 1), "2026-11-01T00:00:00+00:00", 1793491200000])
def test_a_moment_without_a_zone_deletes_nothing(tmp_path, name, given):
    """It was taken for a local one: where UTC was meant, hours too much were deleted."""
    path = streamsink.create_table(tmp_path / "orders", "id BIGINT")
    call = getattr(maintenance, name)
    with pytest.raises(Misuse, match="its time zone.*Nothing was deleted") as refused:
        call(path, older_than=given)
    assert refused.value.kind == "option.value" and path in str(refused.value)
    assert call(path, older_than=datetime(2026, 11, 1, tzinfo=timezone.utc))


def test_a_path_may_be_a_path(tmp_path):
    """As everywhere in Python, each function that takes a path takes its text as well, with the same meaning."""
    text, path = str(tmp_path / "lake" / "orders"), tmp_path / "lake" / "orders"
    assert streamsink.create_table(path, "id BIGINT") == text
    assert streamsink.read_arrow(path).num_rows == 0 and streamsink.verify(path).ok
    for call in (
        streamsink.starting_offsets,
        streamsink.give_up,
        streamsink.drop_missing,
        lambda path: streamsink.retire(path, "never"),
    ):
        ends = []
        for given in (text, path):
            try:
                ends.append(str(call(given)))
            except Misuse as refused:
                ends.append(str(refused))
        assert ends[0] == ends[1]
    for sink in (streamsink.to_table(path), streamsink.to_table(path, dead_letters="rejected")):
        assert text in repr(vars(sink))
    moved = {"path": Path("elsewhere", "orders")}
    routed = streamsink.to_tables(path.parent, route="kind", tables={"orders": moved})
    assert str(path.parent) in repr(vars(routed)) and "elsewhere/orders" in repr(vars(routed.sink))


@pytest.mark.parametrize(
    "name, call",
    [
        ("schema", lambda table, value: streamsink.create_table(table, value)),
        (
            "partition_by",
            lambda table, value: streamsink.create_table(table, "id BIGINT, x STRING, a STRING", partition_by=value),
        ),
        ("options", lambda table, value: streamsink.create_table(table, "id BIGINT", options=value)),
        ("application", lambda table, value: streamsink.retire(table, value)),
        ("application", lambda table, value: streamsink.give_up(table, application=value)),
        ("partitions", lambda table, value: streamsink.starting_offsets(table, partitions=value)),
        ("from_beginning", lambda table, value: streamsink.starting_offsets(table, from_beginning=value)),
        ("without", lambda table, value: streamsink.starting_offsets(table, without=value)),
    ],
)
def test_functions(tmp_path, name, call):
    tables = (str(tmp_path / str(number)) for number in range(len(ODD)))
    _refused_or_done(lambda value: call(next(tables), value), str(tmp_path))
