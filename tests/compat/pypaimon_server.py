"""Runs under the interpreter that has pypaimon:
reads one JSON request a line and writes one JSON answer a line, with rows in Arrow files."""

import datetime
import decimal
import json
import os
import sys
import traceback

import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from pypaimon.schema.data_types import PyarrowFieldParser

_LITERALS = {
    "decimal": decimal.Decimal,
    "date": datetime.date.fromisoformat,
    "timestamp": datetime.datetime.fromisoformat,
    "bytes": bytes.fromhex,
    "plain": lambda value: value,
}


def place(path):
    """The catalog and the name of the table in <warehouse>/<db>.db/<table>."""
    database, table = os.path.split(path)
    warehouse, folder = os.path.split(database)
    return CatalogFactory.create({"warehouse": warehouse}), f"{folder[:-3]}.{table}"


def load(path):
    with pa.ipc.open_file(path) as found:
        return found.read_all()


def read(request):
    catalog, name = place(request["path"])
    builder = catalog.get_table(name).new_read_builder()
    if request["columns"]:
        builder = builder.with_projection(request["columns"])
    predicates = (
        builder.new_predicate_builder()
        if not request["columns"]
        else catalog.get_table(name).new_read_builder().new_predicate_builder()
    )
    parts = []
    for function, column, value in request["where"]:
        literal = [] if value is None else [_LITERALS[value[0]](value[1])]
        parts.append(getattr(predicates, function)(column, *literal))
    if parts:
        builder = builder.with_filter(predicates.and_predicates(parts))
    splits = builder.new_scan().plan().splits()
    rows = builder.new_read().to_arrow(splits)
    with pa.ipc.new_file(request["out"], rows.schema) as out:
        out.write_table(rows)
    return {"rows": rows.num_rows, "files": sum(len(split.files) for split in splits)}


def append(request):
    catalog, name = place(request["path"])
    table = catalog.get_table(name)
    builder = table.new_batch_write_builder()
    write, commit = builder.new_write(), builder.new_commit()
    write.write_arrow(load(request["rows"]).cast(PyarrowFieldParser.from_paimon_schema(table.fields)))
    commit.commit(write.prepare_commit())
    write.close()
    commit.close()
    return {}


def create(request):
    catalog, name = place(request["path"])
    catalog.create_database(name.split(".")[0], True)
    schema = Schema.from_pyarrow_schema(load(request["rows"]).schema, partition_keys=request["partition_by"])
    catalog.create_table(name, schema, False)
    return {}


for line in sys.stdin:
    asked = json.loads(line)
    try:
        answer = {"read": read, "append": append, "create": create}[asked["do"]](asked)
    except Exception:  # This is the outermost edge: the text goes to the test.
        answer = {"error": traceback.format_exc()}
    print("ANSWER " + json.dumps(answer), flush=True)
