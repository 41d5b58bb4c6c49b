"""Destinations that keep transactions, and one query over one of them, in memory."""

import json
from dataclasses import dataclass, field

from streamsink import events
from streamsink.clock import IdSource
from streamsink.options import SinkOptions
from streamsink.sink import TwoPhaseCommitSink
from streamsink.storage.file_io import FileIO
from streamsink.testing.conformance import SCHEMA
from streamsink.testing.crashing import dies_at
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.memory import MemoryCalls
from tests.sinks.lake import rows


@dataclass(frozen=True)
class Server(TwoPhaseCommitSink[dict]):
    """A server that keeps transactions open until somebody commits or aborts them, in files of the same store.

    They are not in the staging folder. ``refuses``: what the server refuses as long as it has a file of that name.
    """

    path: str = "/server"
    journal: str = "/journals"
    transaction_timeout_ms: int = 0
    ignore_failures_after_transaction_timeout: bool = False
    calls: list = field(default_factory=list, compare=False)

    def begin_transaction(self, context):
        self._ask(context, "begin")
        context.file_io.create_if_absent(f"{self.path}/open/{context.name}", b"")
        return {"name": context.name, "rows": []}

    def invoke(self, transaction, rows, context):
        self._ask(context, "invoke")
        transaction["rows"] += rows.column(0).to_pylist()

    def pre_commit(self, transaction, context):
        self._ask(context, "pre_commit")
        context.file_io.replace(
            f"{self.path}/open/{context.name}", json.dumps(transaction["rows"]).encode(), IdSource().new_id()
        )

    def encode(self, transaction):
        return transaction["name"]

    def decode(self, text):
        return {"name": text}

    def commit(self, transaction, context):
        self._ask(context, "commit")
        if transaction["name"] not in context.file_io.names(f"{self.path}/committed"):
            found = context.file_io.read(f"{self.path}/open/{transaction['name']}")
            context.file_io.create_if_absent(f"{self.path}/committed/{transaction['name']}", found)
        context.file_io.delete(f"{self.path}/open/{transaction['name']}")

    def recover_and_commit(self, transaction, context):
        self.calls.append("recover_and_commit")
        self.commit(transaction, context)

    def abort(self, transaction, context):
        self._ask(context, "abort")
        context.file_io.delete(f"{self.path}/open/{context.name}")

    def recover_and_abort(self, context):
        self._ask(context, "recover_and_abort")
        context.file_io.delete(f"{self.path}/open/{context.name}")

    def user_context(self, before, transactions):
        return {"count": before.get("count", 0) + len(transactions)}

    def _ask(self, context, what):
        self.calls.append(what)
        if context.file_io.exists(f"{self.path}/refuses/{what}"):
            raise ConnectionResetError(f"{what} was refused")


@dataclass(frozen=True)
class Remembering(TwoPhaseCommitSink[str]):
    """A destination that keeps the rows and the state of a checkpoint under one name, which is created once."""

    path: str
    journal: str
    io: list = field(default_factory=list, compare=False)  # what a connection would be
    remembers = True

    def begin_transaction(self, context):
        return f"{context.folder}/{context.name}"

    def invoke(self, transaction, rows, context):
        with context.file_io.flush_group() as group:
            group.write(transaction, json.dumps(rows.column(0).to_pylist()).encode())
            group.sync_dir(context.folder)
            group.flush()

    def pre_commit(self, transaction, context):
        """Nothing is left to do."""

    commit = abort = pre_commit

    def recover_and_abort(self, context):
        """The rows go with their folder."""

    def commit_checkpoint(self, checkpoint):
        io = self.io[0]
        last = self.last_committed(checkpoint.application, {})
        found = json.loads(last) if last else {"sequence": 0, "record_id": ""}
        if found["record_id"] == checkpoint.record_id:
            return
        if found["sequence"] != checkpoint.expect:
            raise checkpoint.superseded(found["sequence"])
        ids = [row for each in checkpoint.transactions for row in json.loads(io.read(each.transaction))]
        data = json.dumps({"rows": ids, "state": checkpoint.state}).encode()
        name = f"{self.path}/{checkpoint.application}/{checkpoint.number:010}"
        if not io.create_if_absent(name, data):
            raise checkpoint.superseded(checkpoint.number)

    def last_committed(self, application, session):
        names = [n for n in self.io[0].names(f"{self.path}/{application}") if not n.startswith(".")]
        if not names:
            return None
        self.io[0].sync_dir(f"{self.path}/{application}")  # what is said is durable
        return json.loads(self.io[0].read(f"{self.path}/{application}/{max(names)}"))["state"]

    def applications(self, session):
        return [each.name for each in self.io[0].entries(self.path) if each.is_dir and each.name != "forgotten"]

    def forget(self, application, session):
        """The rows stay, under names of which nobody asks."""
        io, folder = self.io[0], f"{self.path}/{application}"
        for name in sorted(name for name in io.names(folder) if not name.startswith(".")):
            io.create_if_absent(f"{self.path}/forgotten/{application}-{name}", io.read(f"{folder}/{name}"))
            io.delete(f"{folder}/{name}")
        io.sync_dir(folder)

    def identity(self, session):
        new_id = IdSource().new_id()
        self.io[0].create_if_absent(f"{self.path}/id", new_id.encode(), new_id)
        return self.io[0].read(f"{self.path}/id").decode()

    def open(self, file_io, *args):
        self.io[:] = [file_io]
        return super().open(file_io, *args)


def remembered(file_io, root: str) -> list[int]:
    found = []
    for application in file_io.entries(f"{root}/kept"):
        folder = f"{root}/kept/{application.name}"
        for name in (name for name in file_io.names(folder) if not name.startswith(".")):
            found += json.loads(file_io.read(f"{folder}/{name}"))["rows"]
    return found


class World:
    """One query over such a server, in memory."""

    def __init__(self, **changes):
        self.store, self.checkpoint = MemoryCalls(), SparkCheckpoint("query")
        self.sink = Server(**changes)
        self.events: list[events.Event] = []

    def io(self, calls=None) -> FileIO:
        return FileIO(calls or self.store, IdSource().new_id)

    def run(self, *ends, calls=None, restarts=True, **options):
        path = self.sink.path
        driver = MicroBatchDriver(
            path, SCHEMA, rows, SinkOptions.of(path, {"restore": "restore-and-continue", **options})
        )
        driver.destination = lambda: self.sink
        driver.events = self.events
        start = driver.run if restarts else driver._run_once
        start(self.io(calls), self.checkpoint, ends)

    def die(self, *ends, step, number=1):
        assert dies_at(step, number, self.store, lambda calls: self.run(*ends, calls=calls))
        self.store.process_death()

    def refuse(self, what, yes=True):
        path = f"/server/refuses/{what}"
        self.io().create_if_absent(path, b"") if yes else self.io().delete(path)

    @property
    def open(self) -> list[str]:
        return [name for name in self.io().names("/server/open") if not name.startswith(".")]  # a torn one is none

    @property
    def rows(self) -> list[int]:
        names = [name for name in self.io().names("/server/committed") if not name.startswith(".")]
        return sorted(row for name in names for row in json.loads(self.io().read(f"/server/committed/{name}")))
