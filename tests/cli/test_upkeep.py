"""What the care of a table reads: its options, consumers, tags by period; and who wanted something."""

import datetime
import json
from pathlib import Path

import pyarrow as pa

from streamsink.operations.table_options import change
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table
from tests.advice.following import follows, told
from tests.cli.conftest import run, said
from tests.compaction.test_by_hand import Query


def _consumer(orders: str, name: str, following: int) -> Path:
    path = Path(orders) / "consumer" / f"consumer-{name}"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"nextSnapshot": following}))
    return path


def test_options_are_shown_set_and_removed(orders):
    """A dry run shows before and after; the table's columns, rows and other options stay."""
    name = "snapshot.num-retained.max"
    assert said("set-options", orders)["options"] == {}
    would = said("set-options", orders, f"{name}=20", code=1)
    assert would["changed"] == {name: [None, "20"]} and said("set-options", orders)["options"] == {}
    assert said("set-options", orders, f"{name}=20", "tag.creation-delay=1 min", "--yes")["options"][name] == "20"
    assert said("set-options", orders, f"{name}=20")["changed"] == {}, "nothing to do"
    run("set-options", orders, "--remove", name, "--yes")
    assert said("set-options", orders)["options"] == {"tag.creation-delay": "1 min"}
    assert "tag.creation-delay" in run("set-options", orders).stdout
    assert said("verify", orders)["ok"] and said("files", orders)["rows"] == 30


@follows("set-options.fixed")
def test_options_that_say_what_the_files_are_stay(orders):
    table = open_table(local_file_io(False), orders, for_writing=True)
    told("set-options.fixed", lambda: change(table, {"bucket": "4"})).says("ALTER TABLE")
    assert change(table, {"snapshot.expire.limit": "4"}).changed


def test_consumers_are_listed_and_cleared(orders):
    """By names; they keep no snapshots then."""
    kept, gone = _consumer(orders, "daily", 1), _consumer(orders, "report-7", 2)
    found = said("consumer", "list", orders)["consumers"]
    assert [(each["consumer"], each["next_snapshot"]) for each in found] == [("daily", 1), ("report-7", 2)]
    assert "report-7" in run("consumer", "list", orders).stdout
    assert said("consumer", "clear", orders, "--including", "report-.*", code=1)["consumers"] == ["report-7"]
    assert said("consumer", "clear", orders, "--including", "report-.*", "--yes")["consumers"] == ["report-7"]
    assert kept.exists() and not gone.exists()


def test_consumers_that_are_silent_expire(orders):
    """As the table's option says, and not without it."""
    path = _consumer(orders, "daily", 1)
    assert said("consumer", "expire", orders, "--yes")["consumers"] == [] and path.exists()
    run("set-options", orders, "consumer.expiration-time=1 ms", "--yes")
    assert said("consumer", "expire", orders, code=1)["consumers"] == ["daily"] and path.exists()
    assert said("consumer", "expire", orders, "--yes")["consumers"] == ["daily"] and not path.exists()


def test_tags_that_are_due_are_made(orders):
    """By the table's options; a dry run names the same ones."""
    assert said("tag", "create-due", orders)["tags"] == []
    run("set-options", orders, "tag.automatic-creation=process-time", "tag.creation-period=hourly", "--yes")
    [due] = said("tag", "create-due", orders, code=1)["tags"]
    assert due not in {each["tag"] for each in said("tag", "list", orders)["tags"]}
    assert said("tag", "create-due", orders, "--yes")["tags"] == [due]
    assert due in {each["tag"] for each in said("tag", "list", orders)["tags"]}
    assert said("tag", "create-due", orders)["tags"] == []


def test_who_wanted_a_rollback_is_recorded(orders):
    run("rollback", orders, "--snapshot", "2", "--by", "Ada, ticket 4711", "--yes")
    newest = max(Path(orders).glob("snapshot/snapshot-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    assert json.loads(json.loads(newest.read_text())["properties"]["streamsink.rollback"])["by"] == "Ada, ticket 4711"


def test_a_partition_to_compact_is_given_by_values_of_its_columns(tmp_path):
    """Of every type, as text; null by the name that its folder has."""
    day, noon = datetime.date(2026, 11, 1), datetime.datetime(2026, 11, 1, 12, tzinfo=datetime.timezone.utc)
    schema = pa.schema(
        [("id", pa.int64()), ("day", pa.date32()), ("region", pa.int32()), ("at", pa.timestamp("us", "UTC"))]
    )
    path = str(tmp_path / "shop.db" / "orders")
    options = {"partition_by": ("day", "region", "at")}
    Query(path, schema, lambda n: (n, day, (7, None)[n % 2], noon), **options).write(5)
    given = "day=2026-11-01,region={},at=2026-11-01T12:00:00Z"
    for region in ("7", "__DEFAULT_PARTITION__"):
        done = said("compact", path, "--partition", given.format(region), "--yes")
        assert (done["files_before"], done["files_after"]) == (5, 1), region
    refused = run("compact", path, "--partition", given.format("north"), "--yes", code=2)
    assert "column 'region' is INT, and 'north' is no value" in refused.stderr
    refused = run("compact", path, "--partition", "day=2026-11-01,region=7,at=2026-11-01T12:00:00", code=2)
    assert "with its zone" in refused.stderr
