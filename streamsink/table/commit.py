"""The table commit: filter, base, conflicts, manifests, snapshot, publish, clean. One call makes one snapshot.

The filter is evaluated again in every try of the loop, against the snapshot that the try builds on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tenacity

from streamsink.clock import Clock, IdSource
from streamsink.errors import Conflict, Retryable
from streamsink.faults import fault_point
from streamsink.format.manifest import ManifestEntry
from streamsink.format.manifest_list import ManifestFileMeta, write_manifest_list
from streamsink.format.snapshot import Snapshot
from streamsink.options import SinkOptions
from streamsink.table.publish import Outcome, publish
from streamsink.table.states import States
from streamsink.table.table import Table

APPEND = "APPEND"
SNAPSHOT_VERSION = 3


@dataclass(frozen=True)
class CommitRequest:
    """What one snapshot adds. The delta manifest is written already, under its final name.

    manifests: the delta's manifest files. rows: their added rows. watermark_ms: or None.
    application, state: what the snapshot records of the writing application.
    check_entries: entries of which none may be in the table already (a restored commit); empty for none.
    name: unique to this commit and writer; the files that a try writes carry it, so that a crash's leftovers are known.
    """

    commit_user: str
    identifier: int
    manifests: tuple[ManifestFileMeta, ...]
    rows: int
    watermark_ms: int | None
    application: str
    state: Mapping
    name: str
    check_entries: tuple[ManifestEntry, ...] = ()


@dataclass(frozen=True)
class Committed:
    """snapshot_id: the snapshot that holds the commit. attempts: tries it took; 0 when it was there before."""

    snapshot_id: int
    attempts: int


# states as of the newest snapshot -> True when the request is published already; raises to refuse.
Filter = Callable[[States], bool]


class TableCommit:
    """Commits to one table. Driver only. Safe beside other processes, whose commits it builds on."""

    def __init__(self, table: Table, options: SinkOptions):
        self._io = table.file_io
        self._at = table.layout
        self._snapshots = table.snapshots
        self._schemas = table.schemas
        self._states = table.states
        self._manifests = table.manifests
        self._options = options
        self._clock = Clock()
        self._ids = IdSource()

    def commit(self, request: CommitRequest, is_published: Filter) -> Committed:
        """Publish, retrying while other writers win the number.

        Raises: Retryable when retries ran out, Conflict, OutcomeUnknown, Fenced, and whatever the filter raises.
        After a crash: the snapshot exists or not; unreferenced list files may be left, never a broken table.
        """
        options = self._options
        wait = tenacity.wait_exponential(
            multiplier=options.commit_min_wait_ms / 1000, max=max(options.commit_max_wait_ms, 1) / 1000
        ) + tenacity.wait_random(0, max(options.commit_min_wait_ms, 1) / 1000)
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_result(lambda committed: committed is None),
            stop=tenacity.stop_after_attempt(options.commit_max_retries + 1)
            | tenacity.stop_after_delay(options.commit_timeout_ms / 1000),
            wait=wait,
            sleep=lambda seconds: self._clock.sleep_ms(seconds * 1000),
        )
        attempts = iter(range(1, options.commit_max_retries + 2))
        try:
            return retrying(lambda: self._try_once(request, is_published, next(attempts)))
        except tenacity.RetryError as gave_up:
            raise Retryable(
                f"{self._at.root}: other writers won the snapshot number {gave_up.last_attempt.attempt_number} times "
                f"(commit_max_retries={options.commit_max_retries}, commit_timeout_ms={options.commit_timeout_ms}). "
                "What was pre-committed is safe in the journal and is published at the next start",
                kind="commit.retries",
            ) from gave_up

    def _try_once(self, request: CommitRequest, is_published: Filter, attempt: int) -> Committed | None:
        """One try; None when another writer won. Steps 1 to 7 as docs/PROTOCOL.md numbers them."""
        fault_point("commit.before_filter")
        newest = self._snapshots.latest()  # 1 filter
        states = self._states.read(newest)
        if is_published(states):
            return Committed(newest.id, attempt - 1)
        before = self._manifests.all_of(newest)  # 2 base
        self._check_conflicts(request, newest)  # 3 conflicts
        name = f"{request.name}-{attempt}"
        base = self._manifests.merge(before, self._merge_options(), name)  # 4 manifests
        base_list = self._write_list(base, f"{name}-0")
        delta_list = self._write_list(request.manifests, f"{name}-1")
        self._io.sync_dir(self._at.manifest_dir)
        fault_point("commit.lists_written")
        properties = states.with_state(request.application, request.state)
        snapshot = self._snapshot(request, newest, (base_list, delta_list), properties)  # 5 snapshot
        outcome = publish(self._io, self._at, self._snapshots, snapshot, name)  # 6 publish
        if outcome is Outcome.LOST:
            self._clean(before, base, (base_list, delta_list))  # 7 clean: it never existed, so nothing can refer to it
            return None
        fault_point("commit.published")
        self._manifests.remember(snapshot, list(base) + list(request.manifests))
        self._snapshots.move_hint(snapshot.id, name)
        fault_point("commit.hinted")
        return Committed(snapshot.id, attempt)

    def _check_conflicts(self, request: CommitRequest, newest: Snapshot | None) -> None:
        """A restored commit: none of its files may be in the table already."""
        if not request.check_entries or newest is None:
            return
        wanted = {entry.identity for entry in request.check_entries}
        partitions = {entry.partition for entry in request.check_entries}
        for entry in self._manifests.entries_of(newest):
            if entry.partition in partitions and entry.identity in wanted:
                raise Conflict(
                    f"{self._at.root}: file {entry.file.file_name} of a restored commit is already in the map: "
                    f"snapshot {newest.id} has it although it does not record checkpoint {request.identifier} of "
                    f"'{request.application}'. The snapshot's properties were altered. Nothing was written",
                    kind="commit.already-in-the-map",
                )

    def _merge_options(self) -> tuple[int, int]:
        options = self._schemas.latest().options
        return (
            parse_bytes(options.get("manifest.target-file-size", "8 mb")),
            int(options.get("manifest.merge-min-count", "30")),
        )

    def _write_list(self, metas: Sequence[ManifestFileMeta], suffix: str) -> tuple[str, int]:
        name = f"manifest-list-{suffix}"
        data = write_manifest_list(list(metas))
        self._io.write(self._at.manifest(name), data)
        return name, len(data)

    def _snapshot(self, request: CommitRequest, newest: Snapshot | None, lists, properties) -> Snapshot:
        (base_name, base_size), (delta_name, delta_size) = lists
        schema_id = self._schemas.latest().id
        watermarks = [w for w in (request.watermark_ms, newest.watermark if newest else None) if w is not None]
        return Snapshot(
            version=SNAPSHOT_VERSION,
            uuid=self._ids.new_id(),
            id=newest.id + 1 if newest else 1,
            schema_id=schema_id,
            base_manifest_list=base_name,
            base_manifest_list_size=base_size,
            delta_manifest_list=delta_name,
            delta_manifest_list_size=delta_size,
            index_manifest=newest.index_manifest if newest else None,
            commit_user=request.commit_user,
            commit_identifier=request.identifier,
            commit_kind=APPEND,
            time_millis=self._clock.now_ms(),
            total_record_count=(newest.total_record_count if newest else 0) + request.rows,
            delta_record_count=request.rows,
            watermark=max(watermarks) if watermarks else None,
            statistics=newest.statistics if newest and newest.schema_id == schema_id else None,
            properties=properties,
            next_row_id=(newest.next_row_id or 0) if newest else 0,
        )

    def _clean(self, before, base, lists) -> None:
        kept = {meta.file_name for meta in before}
        for name in [m.file_name for m in base if m.file_name not in kept] + [name for name, _ in lists]:
            self._io.delete(self._at.manifest(name))


_UNITS = {"": 1, "b": 1, "kb": 2**10, "k": 2**10, "mb": 2**20, "m": 2**20, "gb": 2**30, "g": 2**30}


def parse_bytes(text: str) -> int:
    """Paimon's memory sizes: '8 mb', '64KB', '1048576'. Bytes. Raises ValueError."""
    text = text.strip().lower()
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    return int(number) * _UNITS[text[len(number):].strip()]
