"""What one try of a commit writes: manifests, the lists of them, and the snapshot that names the lists. Driver only."""

from collections.abc import Mapping, Sequence

from streamsink.clock import Clock, IdSource
from streamsink.format.index_manifest import write_index_manifest
from streamsink.format.manifest import write_manifest
from streamsink.format.manifest_list import ManifestFileMeta, write_manifest_list
from streamsink.format.snapshot import Snapshot
from streamsink.storage.flush_group import FlushGroup
from streamsink.storage.reading import Questions
from streamsink.table.commit.changes import Ahead, Changes, Files, Written
from streamsink.table.commit.delta import CommitRequest, Delta, discards_duplicates
from streamsink.table.history.deletion import try_name
from streamsink.table.history.whole import Whole
from streamsink.table.table import Table

SNAPSHOT_VERSION = 3
# Tries count from 1. What is written before them has this number: a first try that cannot use it writes other names,
# for by the name of a list the commits behind it know what they are built on.
AHEAD = 0
# Bytes of a merged manifest that may wait in memory until the lists are made durable.
_MOST_WAITING = 2**20


class FilesOfTries:
    """Writes the files of the tries of commits to one table."""

    def __init__(self, table: Table, whole: Whole | None):
        """whole: checks that what each try builds on is there; None when nobody does."""
        self._table = table
        self._at = table.layout
        self._manifests = table.manifests
        self._whole = whole
        # The base lists of tries that gave no answer: snapshots that name them may come, however late.
        self.unanswered: set[str] = set()
        self._clock = Clock()
        self._ids = IdSource()

    def write(
        self, delta: Delta, newest: Snapshot | None, name: str, shared_delta_list: Written | None, *, group: FlushGroup
    ) -> Files:
        """Merged manifests, the delta's own, both lists, the index manifest. Nothing refers to them yet.

        newest: the snapshot that the try builds on. name: of the try, in the names of its files. shared_delta_list: one
        that an earlier try of the same commit has written. The files are durable when ``group`` is flushed.
        """

        before = self._manifests.all_of(newest)
        if self._whole is not None:
            self._whole.look_at_one(newest, before)
        return self._write_on(before, newest, delta, name, shared_delta_list, group=group)

    def _write_on(
        self,
        before: list[ManifestFileMeta],
        newest: Snapshot | None,
        delta: Delta,
        name: str,
        shared_delta_list: Written | None,
        *,
        group: FlushGroup,
    ) -> Files:
        """As ``write``, on top of these manifests."""

        def write(file: str, data: bytes) -> Written:
            group.write(self._at.manifest(file), data)
            return file, len(data)

        def write_merged(file: str, data: bytes) -> None:
            path = self._at.manifest(file)
            self._manifests.keep(path, data)
            (group if len(data) <= _MOST_WAITING else self._table.file_io).write(path, data)

        options = self._table.known_schema.options
        base = self._manifests.merge(before, options, name, write_merged, without_deletes=delta.adds_again)
        base_list = write(f"manifest-list-{name}-0", write_manifest_list(base))
        added = list(delta.manifests)
        if delta.unwritten:
            file, size = write(f"manifest-{name}-d", write_manifest(delta.unwritten))
            types = [field.type for field in self._table.known_schema.partition_fields]
            added.insert(0, ManifestFileMeta.of(file, size, delta.unwritten, types))
        index = newest.index_manifest if newest else None
        own = [base_list[0], *_names(base), *_names(added)]
        if delta.index is not None:
            index = write(f"index-manifest-{name}", write_index_manifest(delta.index))[0]
            own.append(index)
        is_shared = bool(delta.manifests) and not delta.unwritten
        delta_list = shared_delta_list if is_shared else None
        if delta_list is None:
            delta_list = write(f"manifest-list-{name}-1", write_manifest_list(added))
        if not is_shared:
            own.append(delta_list[0])
        kept = {*_names(before), *_names(delta.manifests)}
        return Files(
            base_list,
            delta_list,
            index,
            [*base, *added],
            [self._at.manifest(n) for n in own if n not in kept],
            delta_list if is_shared else shared_delta_list,
        )

    def write_ahead(self, commit_name: str, manifest: ManifestFileMeta, group: FlushGroup) -> Ahead | None:
        """Write what the first try of an append needs, if it is built on the newest snapshot as of the last look-up.

        manifest: of the commit's files, under its final name. All of it is durable when ``group`` is flushed. None
        where a try has to look into the table first.
        """
        newest = self._table.snapshots.known()
        if discards_duplicates(self._table.known_schema):
            return None
        name = try_name(commit_name, newest.id + 1 if newest else 1, AHEAD)
        delta = Delta(Changes(), None, (), (manifest,))
        return Ahead(newest, commit_name, self.write(delta, newest, name, None, group=group))

    def write_chain(
        self, commits: Sequence[tuple[str, Sequence[ManifestFileMeta]]], group: FlushGroup
    ) -> dict[str, Ahead]:
        """As ``write_ahead``, for appends that follow each other, each on top of the one before. By commit name.

        What the lists of the second one say follows from the first one, so they need not wait for its snapshot. They
        are used only where that is what the second one finds (``Ahead.is_on``).

        commits: name of each, and the manifests of its files. Empty where a try has to look into the table first. The
        caller calls ``look`` before the first of the commits is made.
        """
        newest, found, behind = self._table.snapshots.known(), dict[str, Ahead](), None
        if discards_duplicates(self._table.known_schema):
            return found
        before = self._manifests.all_of(newest)
        for number, (commit_name, manifests) in enumerate(commits, newest.id + 1 if newest else 1):
            delta = Delta(Changes(), None, (), tuple(manifests))
            files = self._write_on(before, newest, delta, try_name(commit_name, number, AHEAD), None, group=group)
            found[commit_name] = Ahead(newest, commit_name, files, behind)
            before, behind = files.metas, files.base_list[0]
        return found

    def questions(self) -> Questions:
        """What ``look`` asks."""
        return self._whole.questions_of_one() if self._whole is not None else Questions()

    def look(self) -> list[ManifestFileMeta]:
        """The manifests of the newest snapshot as of the last look-up; one of them is there. Raises Corrupt."""
        newest = self._table.snapshots.known()
        before = self._manifests.all_of(newest)
        if self._whole is not None:
            self._whole.look_at_one(newest, before)
        return before

    def snapshot(
        self, request: CommitRequest, newest: Snapshot | None, files: Files, rows: int, *, properties: Mapping[str, str]
    ) -> Snapshot:
        """The snapshot that names these files. rows: how many the commit adds, less those that it deletes."""
        schema_id = self._table.known_schema.id
        watermarks = [w for w in (request.watermark_ms, newest.watermark if newest else None) if w is not None]
        return Snapshot(
            version=SNAPSHOT_VERSION,
            uuid=self._ids.new_id(),
            id=newest.id + 1 if newest else 1,
            schema_id=schema_id,
            base_manifest_list=files.base_list[0],
            base_manifest_list_size=files.base_list[1],
            delta_manifest_list=files.delta_list[0],
            delta_manifest_list_size=files.delta_list[1],
            index_manifest=files.index,
            commit_user=request.commit_user,
            commit_identifier=request.identifier,
            commit_kind=request.kind,
            time_millis=self._clock.now_ms(),
            total_record_count=(newest.total_record_count if newest else 0) + rows,
            delta_record_count=rows,
            watermark=max(watermarks) if watermarks else None,
            statistics=newest.statistics if newest and newest.schema_id == schema_id else None,
            properties=properties or None,
            next_row_id=(newest.next_row_id or 0) if newest else 0,
        )


def _names(metas: Sequence[ManifestFileMeta]) -> tuple[str, ...]:
    return tuple(meta.file_name for meta in metas)
