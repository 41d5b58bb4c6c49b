"""What a database remembers beside its tables: who has committed what, and which database it is.

Tables in the schema of the target. ``streamsink_checkpoints`` has the last checkpoint of each application and
target, which is written in the transaction of its rows. ``streamsink_identity`` has one row, which is made once: a
database or schema that is dropped and created again has another one. ``streamsink_branches`` is that of branches.py.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.sinks.databases.dialect import BRANCHES, CHECKPOINTS, IDENTITY, Dialect, Run
from streamsink.sinks.transactions.function import PendingCheckpoint


@dataclass(frozen=True)
class Remembered:
    """The rows of one target. schema: of the tables. target: the name of the table that the sink writes."""

    dialect: Dialect
    schema: str
    target: str

    def identity(self, run: Run, new_id: str, *, branches: bool = False, path: str = "") -> str:
        """The identity of the database. The tables are made where they are missing; with branches also theirs.

        path: of the sink, where they are not to be made. Raises Misuse then.
        """
        if path and not self.dialect.exists(run, self.schema, IDENTITY):
            raise Misuse(
                f"{path}: the database has no table {IDENTITY}: it was dropped, or this is another database, or no "
                "query has written here. Nothing was changed: only a query makes that table. If it was dropped by "
                "mistake, restore it; else give the sink as the query has it",
                kind="table.missing",
            )
        for name, statement in self.dialect.our_tables(self.schema).items():
            if name == BRANCHES and not branches:
                continue
            if not self.dialect.exists(run, self.schema, name):  # the user may have no right to create tables
                run(statement)
        table, mark = self._table(IDENTITY), self.dialect.mark
        ask, (before, after) = f"SELECT id FROM {table} WHERE one = 1", self.dialect.insert_absent
        if run(ask).fetchone() is None:
            run(f"{before} {table} (one, id) VALUES (1, {mark}){after}", new_id)
        return str(run(ask).fetchone()[0])

    def check_spelling(self, run: Run, path: str) -> None:
        """Raises Misuse where the database has the table under a name that it takes for the same, in other letters.

        Under one of these names nothing is known of what was committed under the other. path: of the sink.
        """
        there = self.dialect.other_spelling(run, self.schema, self.target)
        if not there:
            return
        is_known = self.dialect.exists(run, self.schema, CHECKPOINTS) and self.applications(run)
        way_on = f"Give the sink the name as the database has it: table='{there}'"
        if is_known:
            way_on = (
                f"As '{self.target}' queries have written it ({', '.join(is_known)}), so it was renamed since: rename "
                "it back, by way of a third name, and start the query again"
            )
        raise Misuse(
            f"{path}: the database has the table as '{there}', and takes '{self.target}', whose letters are in another "
            f"case, for the same name. Nothing was written. {way_on}",
            kind="database.name",
        )

    def last(self, run: Run, application: str) -> str | None:
        """The state of the last checkpoint of an application; None where there is none."""
        mark = self.dialect.mark
        asked = f"SELECT state FROM {self._table(CHECKPOINTS)} WHERE target = {mark} AND application = {mark}"
        found = run(f"{asked} AND sequence > 0", self.target, application).fetchone()
        return None if found is None else str(found[0])

    def check_not_renamed(self, run: Run, application: str, path: str) -> None:
        """Raises Misuse where the application writes another table of the schema under this path, and nothing is
        remembered of this one: it is that one, or was given its name. path: of the sink.
        """
        mark, table = self.dialect.mark, self._table(CHECKPOINTS).replace("%%", "%")
        asked = f"SELECT target, state FROM {self._table(CHECKPOINTS)} WHERE application = {mark} AND sequence > 0"
        found = [str(of) for of, state in run(asked, application) if _table_id(str(state)).endswith(f"/{path}")]
        if found:
            same = f"WHERE target = {_text(found[0])} AND application = {_text(application)}"
            raise Misuse(
                f"{path}: the database remembers that application '{application}' writes the table '{found[0]}' under "
                f"this name, and knows nothing of the table '{self.target}'. Nothing was written. If the table was "
                f"renamed, execute UPDATE {table} SET target = {_text(self.target)} {same}; and start the query again. "
                "If it is another table, give the sink a name=... and a journal of its own",
                kind="database.renamed",
            )

    def applications(self, run: Run) -> list[str]:
        """The applications that have a checkpoint of this target."""
        asked = f"SELECT application FROM {self._table(CHECKPOINTS)} WHERE target = {self.dialect.mark}"
        return [str(row[0]) for row in run(f"{asked} AND sequence > 0 ORDER BY application", self.target)]

    def is_target_there(self, run: Run) -> bool:
        """Whether the table is there, or no checkpoint of it was committed."""
        return self.dialect.exists(run, self.schema, self.target) or not self.applications(run)

    def forget(self, run: Run, application: str) -> None:
        """Nothing is remembered of the application any more. Waits for who has locked its row."""
        mark = self.dialect.mark
        run(
            f"DELETE FROM {self._table(CHECKPOINTS)} WHERE target = {mark} AND application = {mark}",
            self.target,
            application,
        )

    def has_branches(self, run: Run) -> bool:
        """Whether some query has ever written this schema by several connections."""
        return self.dialect.prepared is not None and self.dialect.exists(run, self.schema, BRANCHES)

    def names_of(self, application: str) -> str:
        """How the names of what several writers make begin: 28 letters, whatever the application's name is."""
        of = [self.schema, self.target, application]
        return f"streamsink-{hashlib.sha256(json.dumps(of).encode()).hexdigest()[:16]}-"

    def attempt_of(self, application: str) -> str:
        """The same for one attempt, which no other has: a number is put behind it."""
        return f"{self.names_of(application)}{IdSource().new_id().replace('-', '')[:16]}-"

    def lock(self, run: Run, application: str) -> tuple[int, str]:
        """(number, id) of the record that was committed last; (0, '') for none.

        Until the transaction ends nobody else gets behind this call. So who was superseded sees here what its
        successor has committed.
        """
        mark, table = self.dialect.mark, self._table(CHECKPOINTS)
        asked = f"SELECT sequence, record_id FROM {table} WHERE target = {mark} AND application = {mark}"
        ask = asked + self.dialect.for_update
        found = run(ask, self.target, application).fetchone()
        if found is None:
            # A row that can be locked. Of two that insert it one waits, and sees what the other has made of it.
            before, after = self.dialect.insert_absent
            run(
                f"{before} {table} (target, application, sequence, record_id, epoch, state) "
                f"VALUES ({mark}, {mark}, 0, '', 0, ''){after}",
                self.target,
                application,
            )
            found = run(ask, self.target, application).fetchone()
        return int(found[0]), str(found[1])

    def store(self, run: Run, checkpoint: PendingCheckpoint[Any]) -> None:
        """The checkpoint is the last one of its application. The row is locked by ``lock``."""
        mark = self.dialect.mark
        run(
            f"UPDATE {self._table(CHECKPOINTS)} SET sequence = {mark}, record_id = {mark}, epoch = {mark}, "
            f"state = {mark} WHERE target = {mark} AND application = {mark}",
            *(checkpoint.number, checkpoint.record_id, checkpoint.epoch, checkpoint.state),
            *(self.target, checkpoint.application),
        )

    def _table(self, name: str) -> str:
        return self.dialect.quoted(self.schema, name)


def _table_id(state: str) -> str:
    """Where a checkpoint was committed, as its state says."""
    try:
        return str(json.loads(state)["table_id"])
    except (ValueError, KeyError, TypeError):
        return ""  # a start of that application says so


def _text(value: str) -> str:
    """A text as it stands in a statement, for messages."""
    return "'" + value.replace("'", "''") + "'"
