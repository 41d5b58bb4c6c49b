"""The world of a walk: one table, the queries and jobs that write it, and their users. Its methods are what can happen;
they do not know in which order."""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from tests.walks.checkpoints import Checkpoint
from tests.walks.gone_back import GoneBack
from tests.walks.machine import Fault
from tests.walks.model import GONE, Causes, Wrong
from tests.walks.queries import RENAMED, SCHEMA, Job, Query, Run, check_kept, halves, is_bad, part_of
from tests.walks.sources import Folder, Topic
from tests.walks.store import Process

JOBS = "batch"


@dataclass
class World(GoneBack):
    """rows: how many numbers have been given to rows. schema: of what the queries write."""

    rows: int = 0
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
        """Write the next batch, by the open run or by a new one.
        Returns whether a batch was written or taken for done."""
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

        is_unknown = self._adopts_another_topic(query)
        run = self.attempt(query, work, fault)
        self._begins(query, checkpoint, batch_id, is_unknown)
        self.may_have_written(query)
        if run is None or not self._spark_commits(query, run, checkpoint, batch_id):
            return False
        query.topic_id = topic_id
        return True

    def _adopts_another_topic(self, query: Query) -> bool:
        """Whether the batch that comes is adopted, its topic is not the one of the batch before,
        and nobody has recorded which one that was."""
        return (
            query.options.get("adopt_from_batch", 0) == query.checkpoint.committed > 0
            and query.source.topic_id not in (query.topic_id, query.asked_of)
            and query.topic_id
            and not self.is_known(query)
            and not {query.name, query.name.removesuffix(RENAMED)} & self._known_by_name()
        )

    def _begins(self, query: Query, checkpoint: Checkpoint, batch_id: int, is_unknown: bool) -> None:
        """Remember where the batch began, if it was recorded. is_unknown: what ``_adopts_another_topic`` said."""
        if is_unknown and self.is_known(query):
            query.begun_before = (checkpoint.query, checkpoint.before(batch_id))

    def second_half(self, second: Query) -> bool:
        """A sink of another name writes the second part of the next batch,
        without the rows that its user sees in the table. Returns whether it did."""
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
        """Spark writes its commit log. The driver dies when another one has written there."""
        if query.checkpoint is not checkpoint or checkpoint.committed != batch_id or query.live not in (run, None):
            self.close(query, run)
            return False
        checkpoint.committed += 1
        query.live, query.said, query.afterwards = run, None, ""
        if not run.slept and self._is_there(query, batch_id):
            query.causes.settled(keep=self._kept(query))
        query.source.put_back()
        return True

    def _kept(self, query: Query) -> list[str]:
        """Accidents that a batch does not settle: a batch that the first name has written is skipped, and nothing is
        recorded under this name; and what befell the table under one name may be found out under the other."""
        kept = [] if query.name in self._known_by_name() else ["renamed"]
        return [*kept, "table"] if query.causes.knows("renamed-ever") else kept

    def _is_there(self, query: Query, batch_id: int) -> bool:
        """Whether the batch's rows are there. A batch that is pending has not met what has happened to the table."""
        visible = self.visible()
        return all(self.is_done(row, visible) for row in query.rows(batch_id))

    def job(self, job: Job, fault: Fault | None = None) -> bool:
        """Call ``streamsink.write``, each time with a new driver. Returns whether it returned."""
        query = self.queries[JOBS]
        before = self.in_table()
        self.model.job_tried(job.rows)
        query.live, query.rows_of_job = None, job
        run = self.attempt(query, lambda run: run.job(job), fault, lambda: self.start_job(query, job))
        after = self.in_table()
        replaced = [each for each in self.jobs if each.options]
        if replaced:  # This call publishes what an earlier one left pending.
            parts = {part_of(each.rows[0], self.parts) for each in replaced}
            others = {
                row for each in self.jobs if each is not job for row in each.rows if self.model.fate.get(row) != GONE
            }
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
        """Start a driver for the job."""
        self.serial += 1
        return Run(
            Process(self.store, self.root), self.root, query.settings(self.root, job.options), job.name, self.parts, 0
        )

    def overwritten(self, rows: Iterable[int], perhaps: Iterable[int] = ()) -> None:
        """Somebody replaced these rows in the table. Dead letters stay: rows that are dead letters as well because a
        table that went back had forgotten them."""
        letters = set(self.others.letters())
        rows = set(rows)
        self.model.overwritten(rows - letters, {*perhaps, *rows & letters})

    def new_checkpoint(self, query: Query, given: dict | None = None) -> None:
        """Begin a new checkpoint; nothing is left of the one before. given: startingOffsets."""
        self.put_checkpoint(query, self.checkpoint_of(query, given))

    def put_checkpoint(self, query: Query, checkpoint: Checkpoint) -> None:
        """Put another checkpoint in the place of the query's."""
        if query.halves:  # What was not written of a batch is behind the recorded positions, as the error has said.
            self.model.unsure(row for row in query.source.all_rows() if not self.visible()[row])
        behind = () if query.source.reads_again else query.source.rows_before(checkpoint)
        self.model.may_be_read(set(query.source.all_rows()).difference(behind))
        query.checkpoint, query.said = checkpoint, None
        self.accident("checkpoint", "checkpoint-ever", query=query)

    def move(self, query: Query) -> None:
        """The checkpoint's folder is another one from now on."""
        query.place += 1

    def checkpoint_of(self, query: Query, given: dict | None) -> Checkpoint:
        return Checkpoint(self.new_id(), given)

    def of_message(self, rows: list[int], said: str, letters: bool) -> list[int]:
        """The rows that belong in the table of which the message speaks.
        letters: whether rows that do not fit the table are dead letters."""
        if "are in the table" not in said:
            return rows
        beside = self.others.letters()
        return [row for row in rows if row not in beside and not (letters and is_bad(row))]
