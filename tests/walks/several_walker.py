"""Walks over several tables:
which kinds of events there are, and what an operator of such a query does; see ``several.py``."""

import re

from streamsink.faults import STEPS
from streamsink.table.creation import fields_of
from tests.walks.events import KINDS as OF_ONE_TABLE
from tests.walks.events import Kind, query_of
from tests.walks.machine import Fault
from tests.walks.model import Version
from tests.walks.operators import Operator
from tests.walks.queries import partitioned
from tests.walks.several import FOLDER, LETTERS, ROWS_FOR_ALL, SeveralTables
from tests.walks.sources import drawn
from tests.walks.walker import Walker
from tests.walks.words import WORDS

# Kinds that mean the same here.
_SAME = (
    "produce",
    "batch",
    "stop",
    "heal",
    "call",
    "pause",
    "pause_at",
    "wake",
    "kill",
    "power",
    "lose_checkpoint",
    "lose_checkpoint_behind",
    "begin_at_latest",
    "partition",
    "retention",
    "recreate",
    "ids",
    "upgrade",
    "move",
    "rename",
    "old_words",
    "rename_at_once",
    "copied_job",
)
# Kinds that befall one of the tables.
_OF_A_TABLE = {
    "foreign_append": 3,
    "foreign_overwrite": 1,
    "foreign_prepare": 2,
    "compaction": 3,
    "expiry": 3,
    "own_expiry": 2,
    "tag": 1,
    "rollback": 3,
    "own_rollback": 2,
}
KINDS: dict[str, Kind] = {name: OF_ONE_TABLE[name] for name in _SAME}
_STEPS = [step for step in STEPS if not step.startswith(("letters.", "spark.", "fan-out.", "iceberg."))]
_OPTIONS = (
    {"restore": "restore-and-continue"},
    {"restore": "restore-and-fail"},
    {"journal_retain": 2},
    {"journal_retain": 100},
    {"position_columns": ("topic", "partition", "offset")},
    {"position_columns": ()},
)
_MOST_STARTS = 4
_ONE_OF_SEVERAL = "one-of-several-ever"
_LOST_ROWS = ("are lost then", "go on without these rows")


def _kind(weight: int, size: int):
    def register(does):
        KINDS[does.__name__] = Kind(does.__name__, weight, size, does)
        return does

    return register


def _of_a_table(name: str, weight: int) -> Kind:
    kind = OF_ONE_TABLE[name]

    def does(walk, table, *numbers):
        world, before = walk.world, walk.world.rows
        world.focus(world.tables[table % len(world.tables)])
        if world.table == LETTERS and name.startswith("foreign_"):
            return  # Other writers write no dead letters.
        prepared = walk.prepared
        kind.does(walk, *numbers)
        if walk.prepared is not prepared:
            walk.prepared_in = world.table
        if name == "rollback":
            world.accident(_ONE_OF_SEVERAL)
        world.came(range(before, world.rows), world.table)

    return Kind(name, weight, kind.size + 1, does)


KINDS |= {name: _of_a_table(name, weight) for name, weight in _OF_A_TABLE.items()}


@_kind(3, 0)
def foreign_rename(walk):
    """The foreign writer renames the snapshot that it has prepared; see ``others.py``."""
    if walk.prepared is not None:
        walk.world.focus(walk.prepared_in)
        OF_ONE_TABLE["foreign_rename"].does(walk)
        walk.world.accident(_ONE_OF_SEVERAL)


@_kind(8, 4)
def crash(walk, which, most, step, occurrence):
    """The driver dies at a step of a batch."""
    fault = Fault(step=_STEPS[step % len(_STEPS)], occurrence=1 + occurrence % 3)
    walk.world.batch(query_of(walk.world, which), 1 + most % 8, fault)


@_kind(4, 3)
def half_published(walk, which, most, occurrence):
    """The driver dies between two tables of a batch with rows for several."""
    walk.produce(query_of(walk.world, which), 6)
    walk.world.batch(
        query_of(walk.world, which), 4 + most % 8, Fault(step="tables.table_published", occurrence=1 + occurrence % 2)
    )


@_kind(2, 2)
def option(walk, which, number):
    """The query comes back with another option."""
    query, given = query_of(walk.world, which), _OPTIONS[number % len(_OPTIONS)]
    if "position_columns" not in given or query.source.numeric:
        walk.world.stop(query)
        query.options.update(given)


@_kind(2, 1)
def lose_journal(walk, which):
    """The journal is deleted."""
    world, query = walk.world, query_of(walk.world, which)
    world.store.remove(world.journal_of(query))
    world.lost_journal(query)


@_kind(1, 2)
def drop(walk, table, again):
    """A table is dropped; or a tool drops it and creates it anew."""
    world = walk.world
    world.focus(world.tables[table % len(world.tables)])
    world.store.remove(world.others.root)
    world.went_back(Version())
    if again % 3 == 0 and world.table != LETTERS:
        world.others.create(fields_of(world.schema), partitioned(world.parts))
    world.accident("table", _ONE_OF_SEVERAL)


@_kind(3, 3)
def copy(walk, what, which, table):
    """A backup is made of a checkpoint, a journal, one table, or everything."""
    world, query = walk.world, query_of(walk.world, which)
    world.focus(world.tables[table % len(world.tables)])
    kind = ("checkpoint", "journal", "table", "all")[what % 4]
    path = {"journal": world.journal_of(query), "table": world.others.root, "all": world.root}.get(kind)
    versions = {}
    for name in world.tables:
        world.focus(name)
        versions[name] = world.backup()
    world.focus(world.tables[table % len(world.tables)])
    checkpoints = {each.name: each.checkpoint.copy() for each in world.queries.values()}
    walk.copies.append(
        (kind, query, query.name, world.table, (path, world.store.copy_of(path) if path else {}), checkpoints, versions)
    )


@_kind(4, 2)
def restore(walk, number, in_order):
    """A backup takes the place of what is there. in_order: drivers are stopped before; otherwise they are killed."""
    if not walk.copies:
        return
    world = walk.world
    kind, query, name, table, (path, tree), checkpoints, versions = walk.copies[number % len(walk.copies)]
    for each in world.queries.values():
        world.stop(each) if in_order % 2 else world.kill(each)
    if kind in ("checkpoint", "journal") and query.name != name:
        return
    if kind == "checkpoint":
        world.put_checkpoint(query, checkpoints[name].copy())
    elif tree:
        world.focus(table)
        before = world.in_table()
        world.store.put_back(path, tree)
        if kind == "journal":
            world.lost_journal(query)
            return
        for name in world.tables if kind == "all" else (table,):
            world.focus(name)
            world.went_back(versions[name])
        if kind == "table":  # The journal has not gone back.
            world.rolled_back(max(world.others.snapshot_ids(), default=0), before)
        world.accident("table", _ONE_OF_SEVERAL)
        if kind == "all":
            for each in world.queries.values():
                if each.name in checkpoints:
                    world.put_checkpoint(each, checkpoints[each.name].copy())
            world.accident("journal", "journal-ever", "checkpoint", "checkpoint-ever")


class SeveralOperator(Operator):
    """The operator of queries into several tables."""

    words = WORDS | {
        "another_name": r"set another application and adopt_from_batch=(\d+)",
        "accept_as_seen": r"(?<! and )accept_as_seen='([^']+)'",
        # Those words belong to the command before them.
        "restart": r"(?<!which forgets that record, and )" + WORDS["restart"],
        "behind": r"(let the query begin behind what is there)",
    }

    def _fits(self, query, way):
        if way == "republish":
            return False  # The message names it as what is right for a query of one table.
        if way in ("another_name", "adopt") and "If no row of one is there" in str(query.said):
            return not self._has_later(query, int(re.search(r"adopt_from_batch=(\d+)", str(query.said))[1]))
        if way == "behind" and "If no row of one is there" in str(query.said):
            return self._has_later(query, int(re.search(r"adopt_from_batch=(\d+)", str(query.said))[1]))
        if way == "roll_back":
            return "which publishes the record in the other tables" not in str(query.said)
        if way == "accept_as_seen" and any(words in str(query.said) for words in _LOST_ROWS):
            return True
        return super()._fits(query, way)

    def _accept_as_seen(self, query, token, text):
        """What a table has lost of a record stays lost."""
        if not any(words in text for words in _LOST_ROWS):
            return super()._accept_as_seen(query, token, text)
        self._stay_away(query, len(query.checkpoint.planned))
        query.options["accept_as_seen"] = token

    def _new_application(self, query, word, text):
        """What only some of the tables have of a batch is deleted there, and comes again."""
        super()._new_application(query, word, text)
        if not self._is_known_under_its_first_name(query):
            self._delete_what_only_some_have(query)

    def _delete_what_only_some_have(self, query):
        self._world.delete(set(query.source.all_rows()).difference(_never_read(query)))

    def _has_later(self, query, batches: int) -> bool:
        """Whether rows of the query are there that are in none of its first batches."""
        visible = self._world.visible()
        first = {row for batch in range(min(batches, len(query.checkpoint.planned))) for row in query.rows(batch)}
        return any(visible[row] for row in query.source.all_rows() if row not in first)

    def _behind(self, query, _, text):
        """Begin behind what is there, under another name where the text asks for one."""
        query.options.pop("adopt_from_batch", None)
        if "set another application and let" in text:
            self._rename(query)
        visible = self._world.visible()
        self._begin_anew(query, query.source.behind(lambda row: self._world.is_done(row, visible)))
        self._delete_what_only_some_have(query)

    def _another_name(self, query, batch, text):
        """What a table has lost of the batches before stays lost. No start under the first name is left."""
        self._adopt(query, batch, text)
        self._rename(query)

    def _rename(self, query):
        self._world.end_sleepers()
        query.name = f"{query.name.split('-')[0]}-{self._world.serial}"
        query.causes.add("renamed", "expiry-ever")

    def _adopt(self, query, batch_id, text):
        """This is right even without the journal, which could tell whether all tables have the batch before."""
        self._stay_away(query, int(batch_id))
        query.options["adopt_from_batch"] = int(batch_id)
        if word := re.search(r"adopt_from_batch=\d+ and accept_as_seen='(\w+)'", text):
            query.options["accept_as_seen"] = word[1]

    def _stay_away(self, query, batches: int) -> None:
        visible = self._world.visible()
        rows = [
            row for batch in range(min(batches, len(query.checkpoint.planned))) for row in query.rows(batch)
        ] + _never_read(query)
        self._world.model.unsure(row for row in rows if not visible[row])

    def _roll_back(self, query, path, text):
        """Roll back the tables that have a part of a record which can never be published whole."""
        world, batch_id = self._world, int(re.search(r"\(checkpoint (\d+)\)", text)[1])
        for each in re.search(r"or roll back (.*?) to the snapshot before", text)[1].split(" and "):
            world.focus(each.rpartition("/")[2])
            ids = world.others.snapshot_ids()
            mine = [
                s.id
                for s in map(world.others.table().snapshots.load, ids)
                if s.commit_identifier == batch_id and s.commit_user.startswith(f"{query.name}@")
            ]
            if mine[-1] == ids[0]:
                world.store.remove(each)
                world.went_back(Version())
            else:
                version, before = world.version_at(mine[-1] - 1), world.in_table()
                world.others.roll_back(mine[-1] - 1, clean=True)
                world.went_back(version)
                world.rolled_back(mine[-1] - 1, before)
            world.accident("table", _ONE_OF_SEVERAL)
        self._give_up(query, "", self._command)


def _never_read(query) -> list[int]:
    """Rows that are before the startingOffsets of the query's checkpoint."""
    return query.source.before(query.checkpoint.given) if query.source.numeric and query.checkpoint.given else []


class SeveralWalker(Walker):
    """Walks one walk over several tables."""

    kinds = KINDS
    setup = "several"

    def _set_up(self, parts, first, second, positions, way, restore):
        store = self.stores()
        self.world = SeveralTables(1 + parts % 4, store, root=store.beginning + FOLDER, has_letters=way % 3 == 1)
        self.operator = SeveralOperator(self.world)
        columns = {"position_columns": ("topic", "partition", "offset")} if positions % 4 else {}
        options = {
            "restore": "restore-and-continue" if restore % 2 else "restore-and-fail",
            "journal_retain": (2, 100)[restore % 3 > 0],
        }
        for name, kind in (("a", first), ("b", second)):
            source = drawn(kind, self.world.new_id)
            self.world.add_query(
                name,
                source,
                **options,
                **(columns if source.numeric else {"file_column": "file"} if columns and source.tells else {}),
            )
            self.world.queries[name].is_comparable = positions % 8 > 0

    def _settle(self):
        """A table that went back under a running query is noticed when it gets rows again, or by the next start; both
        come now. A hint that a sleeping driver left there is right again with the next snapshot, too."""
        for _ in range(_MOST_STARTS):
            before = self.world.went_back_times
            for query in self.world.queries.values():
                self.world.stop(query)
                self.produce(query, ROWS_FOR_ALL)
                self._finish(query)
            # Otherwise an operator has rolled back what another query had written.
            if self.world.went_back_times == before:
                break
        super()._settle()
