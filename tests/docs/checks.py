"""What blocks of pages have done, looked at behind them. Each function is called with the ``World`` and what the block
has printed.
"""

from pathlib import Path

import streamsink
from tests.cli.lakes import PENDING
from tests.docs.given import FILES, LETTERS_AND_ORDERS, ROWS_OF_A_FILE, World, run_into, ten_more

_ALL = list(range(FILES * ROWS_OF_A_FILE))
_ORDERS = "lake/shop.db/orders"


def _column(path, name: str, **store) -> list:
    return sorted(streamsink.read_arrow(path, columns=[name], **store)[name].to_pylist())


def each_row_goes_to_its_table(world: World, said: str) -> None:
    """The row's kind is the name of its table; rows of no kind are dead letters, once."""
    kind = "CASE WHEN id < 8 THEN 'orders' WHEN id < 15 THEN 'audit_x' END AS kind"
    run_into(world, world.names["sink"], world.names["orders"].selectExpr("id AS order", "dt", kind), "ckpt/several")
    assert _column(_ORDERS, "order") == _ALL[:8] and _column("lake/shop.db/audit_x", "order") == _ALL[8:15]
    rejected = streamsink.read_arrow("lake/shop.db/rejected").to_pylist()
    assert len(rejected) == len(_ALL[15:]) and all(row["reason"] for row in rejected)


def no_message_is_read_twice(world: World, said: str) -> None:
    """Spark has read the messages alone that the table did not have."""
    assert _column(_ORDERS, "order") == sorted(map(str, _ALL))
    assert sum(each["numInputRows"] for each in world.names["query"].recentProgress) == ROWS_OF_A_FILE


def a_batch_of_old_and_new_files(world: World, said: str) -> None:
    """The checkpoint is lost while a file comes: the batch behind that has both, and each order is there once."""
    sink, orders = world.names["sink"], world.names["orders"]
    run_into(world, sink, orders, "ckpt/lost")
    ten_more(world)
    run_into(world, sink, orders, "ckpt/new")
    assert world.ids() == list(range((FILES + 1) * ROWS_OF_A_FILE))


def each_store_has_the_orders(world: World, said: str) -> None:
    options = {"on_hdfs": {}, "on_s3": world.servers["s3_server"].options}
    for name, of_store in options.items():
        sink = world.names[name]
        run_into(world, sink, world.names["orders"], f"ckpt/{name}")
        assert _column(sink.path, "id", store_options=of_store) == world.ids(), sink.path


def nothing_is_left_to_mend(world: World, said: str) -> None:
    """What was recorded is published, and each order that was a dead letter is in its table, once."""
    assert world.ids() == list(range(LETTERS_AND_ORDERS)) and world.words["word"] in said
    assert (world.folder / "orders-report.html").is_file()


def each_order_is_there(world: World, said: str) -> None:
    assert world.ids() == list(range(PENDING))


def it_prints_paths(world: World, said: str) -> None:
    """Of the dashboard and the rules, in this order."""
    assert [Path(path).suffix for path in said.split()] == [".json", ".yml"]
    assert all(Path(path).is_file() for path in said.split())


def a_page_is_written(world: World, said: str) -> None:
    assert "<html" in (world.folder / "orders-report.html").read_text()


def a_page_of_the_table_on_s3(world: World, said: str) -> None:
    """The settings are not in it, nor the keys."""
    shown = (world.folder / "orders.html").read_text()
    assert f"{world.words['s3']}/{_ORDERS}" in shown and "store.json" in shown
    assert world.servers["s3_server"].options["s3.secret-key"] not in shown


def both_are_in_the_metastore(world: World, said: str) -> None:
    """With the columns that they have."""
    from tests.catalogs.world import columns, found

    run_into(world, world.names["sink"], world.names["orders"], "ckpt/orders")
    of = {
        name: found(f"thrift://{world.words['metastore']}", world.words["database"], name)
        for name in ("orders", "refunds")
    }
    assert columns(of["orders"]) == [("id", "bigint"), ("dt", "date"), ("amount", "double")]
    assert columns(of["refunds"]) == [("id", "bigint")]
    assert of["refunds"].sd.location.endswith(world.names["path"]) and of["orders"].sd.location.endswith("orders")
