"""The world of a walk: one table, the queries and jobs that write it, and their users. Its methods are what happens; they know no order."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from tests.walks.looking import Looking
from tests.walks.machine import Fault
from tests.walks.model import GONE, Causes, Version, Wrong
from tests.walks.queries import SCHEMA, Job, Query, Run, check_kept, halves, is_bad, part_of
from tests.walks.sources import Checkpoint, Folder, Topic
from tests.walks.store import Process

JOBS = "batch"


@dataclass
class World(Looking):
    """seconds: sinks that have written the second part of one batch, and will not come again. schema: of what the queries write."""

    jobs: list[Job] = field(default_factory=list)
    rows: int = 0
    seconds: list[Query] = field(default_factory=list)
    schema: pa.Schema = SCHEMA

    def add_query(self, name: str, source: Topic | Folder | None, **options) -> None:
        self.queries[name] = Query(name, source, options, Checkpoint(self.new_id()), Causes())

    def new_rows(self, count: int) -> list[int]:
        """Numbers that no row has yet."""
        self.rows += count
        return list(range(self.rows - count, self.rows))

    def journal_of(self, query: Query) -> str:
        return f"{self.root}/streamsink/{query.name}"

    # -- what a user does --------------------------------------------------------------------------------------------

    def batch(self, query: Query, most: int, fault: Fault | None = None) -> bool:
        """The next batch, by the run that is open or by a new one. Whether a batch was written or taken for done."""
        checkpoint = query.checkpoint
        if len(checkpoint.planned) == checkpoint.committed:
            planned = query.source.plan(checkpoint, 1 if query.one_each else most)
            if planned is None:
                return False
            checkpoint.planned.append(planned)
        batch_id, topic_id = checkpoint.committed, query.source.topic_id

        def read() -> list[int]:
            return query.source.rows(checkpoint, batch_id)

        def work(run: Run) -> None:
            if query.halves:
                run.batch_in_two(query, (checkpoint, batch_id), read)
            else:
                run.batch(query, (checkpoint, batch_id), read)

        run = self.attempt(query, work, fault)
        self.may_have_written(query)
        if run is None or not self._spark_commits(query, run, checkpoint, batch_id):
            return False
        query.topic_id = topic_id
        return True

    def second_half(self, second: Query) -> bool:
        """A sink of another name writes the second part of the batch that comes, but for what its user sees there. Whether it did."""
        checkpoint, batch_id = second.checkpoint, second.checkpoint.committed
        visible = self.visible()
        ids = [row for row in halves(second.source.rows(checkpoint, batch_id))[1] if not self.is_done(row, visible)]
        run = self.attempt(second, lambda run: run.batch(second, (checkpoint, batch_id), lambda: ids), None)
        if run is not None:
            self.close(second, run)
            second.rows_of_job = ids
            self.seconds.append(second)
        return run is not None

    def _spark_commits(self, query: Query, run: Run, checkpoint: Checkpoint, batch_id: int) -> bool:
        """Spark's commit log; its driver dies when another one has been there."""
        if query.checkpoint is not checkpoint or checkpoint.committed != batch_id or query.live not in (run, None):
            self.close(query, run)
            return False
        checkpoint.committed += 1
        query.live, query.said, query.afterwards = run, None, ""
        if not run.slept and self._is_there(query, batch_id):
            # A batch that its first name has written is skipped, and nothing is recorded. What befell the table it may find out under the other one.
            is_recorded = self.others.is_table() and any(name.partition("@")[0] == query.name for name in self.others.applications())
            query.causes.settled(keep=(*(() if is_recorded else ("renamed",)), *(("table",) if query.causes.knows("renamed-ever") else ())))
        query.source.put_back()
        return True

    def _is_there(self, query: Query, batch_id: int) -> bool:
        """One that is pending has not met what has happened to the table."""
        visible = self.visible()
        return all(self.is_done(row, visible) for row in query.rows(batch_id))

    def job(self, job: Job, fault: Fault | None = None) -> bool:
        """``streamsink.write``: a new driver each time. Whether it returned."""
        query = self.queries[JOBS]
        before = self.in_table()
        self.model.job_tried(job.rows)
        query.live, query.rows_of_job = None, job
        run = self.attempt(query, lambda run: run.job(job), fault, lambda: self.start_job(query, job))
        after = self.in_table()
        replaced = [each for each in self.jobs if each.options]
        if replaced:  # what an earlier call left pending is published by this one
            parts = {part_of(each.rows[0], self.parts) for each in replaced}
            others = {row for each in self.jobs if each is not job for row in each.rows if self.model.fate.get(row) != GONE}
            perhaps = [row for row in others - set(after) - set(before) if part_of(row, self.parts) in parts]
            gone = [row for row in before - after if part_of(row, self.parts) in parts]
            # What a power failure forgets of a run that did not return comes back until it is repeated.
            self.overwritten(*((gone, perhaps) if run is not None else ((), perhaps + gone)))
        if not job.options and not any(name.startswith("accept") for name in query.options):
            check_kept(replaced, before, before - after, self.parts)
        job.seen = {*job.seen, *before, *after} if run is None else set()
        if run is None:
            return False
        if job.options and not before[job.rows[0]] and after[job.rows[0]]:
            kept = [row for row in before & after if part_of(row, self.parts) == part_of(job.rows[0], self.parts)]
            if kept:
                raise Wrong("not replaced", f"rows {kept}")
        self.model.job_done(job.rows)
        query.said = None
        if not run.slept:
            query.causes.settled()
        self.close(query, run)
        return True

    def start_job(self, query: Query, job: Job) -> Run:
        """A driver for it."""
        self.serial += 1
        return Run(Process(self.store), self.root, query.settings(self.root, job.options), job.name, self.parts, 0)

    def overwritten(self, rows: Iterable[int], perhaps: Iterable[int] = ()) -> None:
        """Somebody replaced them in the table. Those that are dead letters as well, which a table that went back forgot, stay beside it."""
        letters = set(self.others.letters())
        rows = set(rows)
        self.model.overwritten(rows - letters, {*perhaps, *rows & letters})

    def new_checkpoint(self, query: Query, given: dict | None = None) -> None:
        """Nothing is left of the one before. given: startingOffsets."""
        self.put_checkpoint(query, self.checkpoint_of(query, given))

    def put_checkpoint(self, query: Query, checkpoint: Checkpoint) -> None:
        """Another one is in the place of the query's."""
        if query.halves:  # what of a batch was not written is behind the recorded positions, as the error has said
            self.model.unsure(row for row in query.source.all_rows() if not self.visible()[row])
        behind = () if query.source.reads_again else query.source.rows_before(checkpoint)
        self.model.may_be_read(set(query.source.all_rows()).difference(behind))
        query.checkpoint, query.said = checkpoint, None
        self.accident("checkpoint", "checkpoint-ever", query=query)

    def move(self, query: Query) -> None:
        """Its checkpoint's folder is another one."""
        query.place += 1

    def checkpoint_of(self, query: Query, given: dict | None) -> Checkpoint:
        return Checkpoint(self.new_id(), given)

    def went_back(self, to: Version) -> None:
        """The table is another one than a moment ago."""
        self.model.went_back(to := self.whole(to))
        self.seconds_end(to.visible)
        self.model.may_come_again(self.others.letters())
        for query in self.queries.values():
            if query.letters and query.causes.asleep and len(query.checkpoint.planned) > query.checkpoint.committed:
                # What a paused driver is about to put there.
                self.model.may_come_again(filter(is_bad, query.rows(query.checkpoint.committed)))
        for query in self.queries.values():
            if query.source is not None and query.source.numeric and query.checkpoint.given and not query.checkpoint.committed:
                # It begins behind what the table had when its user asked, and its first batch is nobody's second one.
                self.model.unsure(row for row in query.source.before(query.checkpoint.given) if not to.visible[row])
            if query.source is not None and not query.source.numeric:
                self.model.unsure(row for row in query.source.moved if not to.visible[row])
        visible = self.visible()
        self.model.unsure(row for query in self.queries.values() for row in query.rows_adopted() if not visible[row])
        self.others.changes += 1
        newest = max(self.others.snapshot_ids(), default=0)
        versions = self.versions if to.earlier is None else to.earlier
        self.versions = {number: version for number, version in versions.items() if number <= newest}

    def of_message(self, rows: list[int], said: str, letters: bool) -> list[int]:
        """Those of the table of which a message speaks. letters: whether those that do not fit are beside it."""
        if "are in the table" not in said:
            return rows
        beside = self.others.letters()
        return [row for row in rows if row not in beside and not (letters and is_bad(row))]

    def whole(self, to: Version) -> Version:
        """Of all tables that there are, when this one is at that version."""
        return to

    def lost_journal(self, query: Query) -> None:
        """Or it is an older one: dead letters of a record that it does not know come again, beside their rows."""
        checkpoint, letters = query.checkpoint, self.others.letters()
        if query.source is not None and len(checkpoint.planned) > checkpoint.committed:
            self.model.may_come_again(row for row in query.rows(checkpoint.committed) if row in letters)
        if query.causes.knows("raced"):  # a snapshot of its own was replaced, and another one is built on that
            self._may_come_again(query)
        self.accident("journal", "journal-ever", query=query)

    def older_journal(self, query: Query) -> None:
        """It may be older than the table is now."""
        self.lost_journal(query)
        query.causes.add("older-journal")
        if query.causes.asleep:  # its driver goes on with a journal that its successor's records are not in
            self._may_come_again(query)
        self.forget_journals()

    def forget_journals(self) -> None:
        """Of records that an older journal does not know, and that no snapshot names any more, nobody knows."""
        if self.others.is_table():
            known = {name.partition("@")[0] for name in self.others.applications()}
            for query in self.queries.values():
                if query.causes.knows("older-journal") and query.name not in known:
                    self._may_come_again(query)

    def _may_come_again(self, query: Query) -> None:
        visible = self.visible()
        self.model.may_come_again(row for row in self._rows_of(query) if visible[row])

    def _rows_of(self, query: Query) -> list[int]:
        return query.source.all_rows() if query.source is not None else [row for job in self.jobs for row in job.rows]

    def seconds_end(self, visible: Counter) -> None:
        """Nobody starts those sinks again, to be told that what they wrote is gone."""
        for second in self.seconds:
            self.model.unsure(row for row in second.rows_of_job if not visible[row])

    def rolled_back(self, snapshot_id: int, before: Counter) -> None:
        """The table has gone back to this snapshot, also by a copy that ends with it; its journals have not. An application finds out when it
        starts, by what stands behind that snapshot."""
        lost = before - self.in_table()
        for query in self.queries.values():
            query.causes.rollbacks.append((self.others.root, snapshot_id, [row for row in self._rows_of(query) if lost[row]]))
        if self.has_lost_power:
            self.forget_rollbacks()

    def replaced(self, snapshot_id: int, before: Counter) -> None:
        """Another writer's rename has replaced this snapshot, which an application finds out by what stands in its place."""
        self.versions.pop(snapshot_id, None)
        self.rolled_back(snapshot_id - 1, before)
        self.raced_at = (self.others.root, snapshot_id)
        for query in self.queries.values():  # and a third writer may have built on what its journal does not know
            if query.causes.knows("older-journal"):
                self._may_come_again(query)

    def go_back_to(self, snapshot_id: int, clean: bool = True) -> None:
        """The table is rolled back."""
        version, before = self.version_at(snapshot_id), self.in_table()
        self.others.roll_back(snapshot_id, clean=clean)
        self.went_back(version)
        self.rolled_back(snapshot_id, before)
        self.accident("table")

    def forget_rollbacks(self) -> None:
        """Snapshots have expired. Of a rollback of which nothing is left an application that has not written since finds nothing. A mark that a
        power failure tore does not say where its snapshot was: then any that has expired may be one that would tell."""
        first = min(self.others.snapshot_ids(), default=1)
        rollbacks = [each for query in self.queries.values() for each in query.causes.rollbacks]
        is_torn, is_hidden = self.has_lost_power and first > 1, self.raced_at[0] == self.others.root and first > self.raced_at[1]
        unseen = [each for each in rollbacks if each[0] == self.others.root and (is_torn or is_hidden or first > each[1] + 1)]
        self.model.unsure(row for _, _, lost in unseen for row in lost)
        if is_hidden:  # rows that a third writer had built on before
            for query in self.queries.values():
                if query.causes.knows("raced"):
                    self._may_come_again(query)
        self.forget_journals()
