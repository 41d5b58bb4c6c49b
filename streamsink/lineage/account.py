"""What a query has read and written since it was told last: an account that events are added to.

It takes no time to add an event, and what is told late is told as a whole: a slow collector gets fewer, larger
accounts. Nothing here knows OpenLineage, Spark or threads.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from streamsink import events
from streamsink.protocol.ids import END_OF_INPUT

# So many files of a source are named, and so many checkpoints may wait to be published.
MOST_FILES, MOST_WAITING = 100, 10_000

START, RUNNING, COMPLETE, FAIL, ABORT = "START", "RUNNING", "COMPLETE", "FAIL", "ABORT"


@dataclass
class TopicRead:
    """Of one topic, by partition the first offset and the one behind the last; the first is None where Spark does not
    say it, because it is the beginning of the partition. cluster, topic_id: '' where the broker does not tell them.
    """

    cluster: str = ""
    topic_id: str = ""
    parts: dict[str, tuple[int | None, int]] = field(default_factory=dict)


@dataclass
class SourceRead:
    """What was read of one source. files: how many; None where it is no source of files. named: the first of them."""

    topics: dict[str, TopicRead] = field(default_factory=dict)
    files: int | None = None
    named: list[str] = field(default_factory=list)

    def add(self, source: Any) -> None:
        """A batch has read this range, which follows what was read before. source: a ``SourceRange``."""
        if source.numeric:
            for topic, ends in source.end.items():
                known = self.topics.setdefault(topic, TopicRead())
                known.cluster, known.topic_id = source.cluster, source.topic_id(topic)
                for part, end in ends.items():
                    first = known.parts[part][0] if part in known.parts else source.first(topic, part)
                    known.parts[part] = (first, end)
        if source.files is not None:
            self.files = (self.files or 0) + len(source.files)
            self.named += [each.path for each in source.files[: MOST_FILES - len(self.named)]]


@dataclass
class Written:
    """What was published at one place. version: the newest snapshot; '' where there is none. size: in bytes."""

    rows: int = 0
    files: int = 0
    size: int | None = 0
    version: str = ""

    def add(self, event: Any) -> None:
        """event: CheckpointPublished, or TablePublished, which does not tell bytes."""
        is_new = not getattr(event, "again", False)
        self.rows += event.rows if is_new else 0
        self.files += event.files if is_new else 0
        size = getattr(event, "bytes", None)
        self.size = None if size is None or self.size is None else self.size + size
        self.version = str(event.snapshot_id) if event.snapshot_id > 0 else self.version


@dataclass
class Window:
    """What has happened since the query was told last.

    read: by place of the source. written: by path. first, last: the checkpoints that were published; None for none.
    checkpoints: how many they are. began_ms: when the first of them was published, in milliseconds since the epoch.
    """

    read: dict[int, SourceRead] = field(default_factory=dict)
    written: dict[str, Written] = field(default_factory=dict)
    first: int | None = None
    last: int | None = None
    checkpoints: int = 0
    began_ms: int = 0


@dataclass(frozen=True)
class Told:
    """What is to be told. at_ms: milliseconds since the epoch. error, kind: why it has failed; '' otherwise."""

    state: str
    at_ms: int
    run: "RunSoFar"
    window: Window
    error: str = ""
    kind: str = ""


@dataclass
class RunSoFar:
    """One start of one query. run: the id that Spark gave it, or the user a bounded job. began_ms: when it was told.

    columns: (name, type) of what it writes, as far as they are known. sources: the last batch's, as ``BatchAdmitted``
    has them. versions: by path, the newest snapshot. about: what whoever keeps the account knows of the run besides.
    """

    table: str
    application: str
    query: str
    run: str
    is_bounded: bool
    began_ms: int
    columns: tuple[tuple[str, str], ...] = ()
    sources: tuple[Any, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    about: Any = None


class Account:
    """One query at a time, from its first batch to its end, and then perhaps its next start.

    ready: what is to be told at once. strangers: how many batches were of another query. Nothing of what such a query
    does is in the account.
    """

    def __init__(self) -> None:
        self.ready: deque[Told] = deque()
        self.strangers = 0
        self._table: str | None = None  # of the query, as it calls its destination
        self._run: RunSoFar | None = None
        self._window = Window()
        self._waiting: dict[int, tuple[Any, ...]] = {}  # by checkpoint, the sources of those that are not published
        self._failed: events.BatchFailed | events.PublishingFailed | None = None
        self._columns: tuple[tuple[str, str], ...] = ()
        self._others = set[tuple[str, str]]()  # (table, application) of other queries

    def add(self, event: events.Event, now_ms: int) -> None:
        """Add what has happened. now_ms: milliseconds since the epoch."""
        if self._is_of_another(event):
            self.strangers += isinstance(event, events.BatchAdmitted)
        elif isinstance(event, events.Claimed):
            self._claimed(event)
        elif isinstance(event, events.BatchAdmitted):
            self._admitted(event, now_ms)
        elif isinstance(event, events.CheckpointPublished):
            self._published(event, now_ms)
        elif isinstance(event, events.TablePublished):
            self._wrote(event)
        elif isinstance(event, (events.BatchFailed, events.PublishingFailed)):
            self._failed = event
        elif isinstance(event, events.BatchReturned):
            self._failed = None
        elif isinstance(event, events.ColumnsChanged):
            self._columns = event.columns
            if self._run is not None:
                self._run.columns = event.columns
        elif isinstance(event, events.RunEnded):
            self._ended(event, now_ms)

    @property
    def is_idle(self) -> bool:
        """Whether no query runs, and nothing is to be told: nothing comes before the next event."""
        return self._run is None and not self.ready

    @property
    def has_more(self) -> bool:
        """Whether anything was published that is not told."""
        return self._run is not None and self._window.checkpoints > 0

    def take(self, now_ms: int) -> Told | None:
        """What was published since the last time; None when nothing was."""
        if self._run is None or not self._window.checkpoints:
            return None
        return Told(RUNNING, now_ms, self._run, self._next_window(self._run))

    def stop(self, now_ms: int) -> None:
        """The process ends, and nobody will hear how the query does."""
        if self._run is not None:
            self._finish(self._run, ABORT, now_ms)

    def _is_of_another(self, event: events.Event) -> bool:
        """Whether another query tells this. One is known by its batches: destinations of a fan-out admit none."""
        of = (event.table, event.application)
        if isinstance(event, (events.Claimed, events.BatchAdmitted)):
            if self._run is None or of == (self._run.table, self._run.application):
                self._others.discard(of)
            elif isinstance(event, events.BatchAdmitted):
                self._others.add(of)
        return of in self._others

    def _claimed(self, event: events.Claimed) -> None:
        if self._run is None or self._table == event.table:
            self._table = event.table

    def _admitted(self, event: events.BatchAdmitted, now_ms: int) -> None:
        if self._run is not None and self._run.run != event.run:  # nobody has told its end
            self._finish(self._run, COMPLETE, now_ms)
        if self._run is None:
            is_bounded = event.checkpoint_id == END_OF_INPUT
            self._run = RunSoFar(event.table, event.application, event.query, event.run, is_bounded, now_ms)
            self._run.columns, self._table = self._columns, event.table
            self.ready.append(Told(START, now_ms, self._run, Window()))
        self._run.sources = event.sources
        if event.verdict != "skip" and len(self._waiting) < MOST_WAITING:
            self._waiting[event.checkpoint_id] = event.sources

    def _published(self, event: events.CheckpointPublished, now_ms: int) -> None:
        self._wrote(event)
        if self._table is not None and self._table != event.table:
            return  # one destination of a fan-out
        window = self._window
        window.began_ms = window.began_ms or now_ms
        window.first = event.checkpoint_id if window.first is None else window.first
        window.last = event.checkpoint_id
        window.checkpoints += event.checkpoints
        for checkpoint_id in [each for each in self._waiting if each <= event.checkpoint_id]:
            for place, source in enumerate(self._waiting.pop(checkpoint_id)):
                window.read.setdefault(place, SourceRead()).add(source)

    def _wrote(self, event: events.CheckpointPublished | events.TablePublished) -> None:
        self._window.written.setdefault(event.table, Written()).add(event)

    def _ended(self, event: events.RunEnded, now_ms: int) -> None:
        if self._run is None and self._failed is not None:  # its first batch was refused
            self._run = RunSoFar(event.table, event.application, "", event.run, False, now_ms)
            self.ready.append(Told(START, now_ms, self._run, Window()))
        if self._run is not None and self._run.run == event.run:
            self._finish(self._run, COMPLETE, now_ms)

    def _finish(self, run: RunSoFar, state: str, now_ms: int) -> None:
        state, error, kind = (state, "", "") if self._failed is None else (FAIL, self._failed.error, self._failed.kind)
        self.ready.append(Told(state, now_ms, run, self._next_window(run), error, kind))
        self._run, self._failed = None, None
        self._waiting.clear()

    def _next_window(self, run: RunSoFar) -> Window:
        window, self._window = self._window, Window()
        for path, written in window.written.items():
            run.versions[path] = written.version or run.versions.get(path, "")
        return window
