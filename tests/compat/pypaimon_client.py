"""pypaimon as a reader and writer of a table, in its own process."""

import datetime
import decimal
import json
import os
import subprocess
import uuid

import pyarrow as pa


class PyPaimon:
    """One process for a session; every call opens the table anew."""

    def __init__(self, python: str, folder):
        script = os.path.join(os.path.dirname(__file__), "pypaimon_server.py")
        self._folder = str(folder)
        self._log = open(os.path.join(self._folder, "stderr"), "wb")
        self._process = subprocess.Popen(
            [python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def read(self, path, where=(), columns=None) -> pa.Table:
        """The rows, in these columns, for which all of ``where`` holds."""
        out = self._file()
        literals = [(function, column, _literal(value)) for function, column, value in where]
        self._ask(do="read", path=str(path), where=literals, columns=columns, out=out)
        with pa.ipc.open_file(out) as found:
            return found.read_all()

    def append(self, path, rows: pa.Table) -> None:
        """Make one commit of pypaimon's."""
        self._ask(do="append", path=str(path), rows=self._put(rows))

    def create(self, path, schema: pa.Schema, partition_by=()) -> None:
        """Create a table whose schema file pypaimon writes."""
        self._ask(do="create", path=str(path), rows=self._put(schema.empty_table()), partition_by=list(partition_by))

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(120)
        self._process.stdout.close()
        self._log.close()

    def _ask(self, **request) -> dict:
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("ANSWER "):
                answer = json.loads(line[7:])
                assert "error" not in answer, answer["error"]
                return answer
        raise AssertionError(f"pypaimon's process ended with {self._process.wait(120)}; see {self._log.name}")

    def _file(self) -> str:
        return os.path.join(self._folder, uuid.uuid4().hex)

    def _put(self, rows: pa.Table) -> str:
        name = self._file()
        with pa.ipc.new_file(name, rows.schema) as out:
            out.write_table(rows)
        return name


def _literal(value):
    if value is None:
        return None
    if isinstance(value, decimal.Decimal):
        return ("decimal", str(value))
    if isinstance(value, datetime.datetime):
        return ("timestamp", value.isoformat())
    if isinstance(value, datetime.date):
        return ("date", value.isoformat())
    return ("bytes", value.hex()) if isinstance(value, bytes) else ("plain", value)
