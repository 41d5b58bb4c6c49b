"""Merging manifests: many become few, so that a scan opens few files. The live entries stay exactly the same.

**Minor** merging happens often: a run of small manifests becomes one when at least ``manifest.merge-min-count`` of them
stand together. ADDs that the run itself deletes are left out together with their DELETEs. A DELETE whose ADD is in an
older manifest stays and goes on hiding it.

**Full** merging happens seldom: when the manifests that are small or hold DELETEs together reach
``manifest.full-compaction-threshold-size``, they are rewritten without DELETEs and without the entries that those hide.
Big manifests that have hidden entries are rewritten with them.

Only the identities of deleted files and one compressed manifest are held in memory.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from streamsink import shell
from streamsink.errors import Misuse
from streamsink.format.binary_row import decode_physical
from streamsink.format.manifest import FileKind, Identity
from streamsink.format.manifest_list import ManifestFileMeta
from streamsink.format.partition_stats import may_hold
from streamsink.format.types import DataType

Record = dict[str, Any]
#: Bytes of each unit that Paimon takes for a size.
BYTES = {
    unit: 2 ** (10 * power)
    for power, units in enumerate(("|b|bytes", "k|kb|kibibytes", "m|mb|mebibytes", "g|gb|gibibytes"))
    for unit in units.split("|")
}


@dataclass(frozen=True)
class MergeOptions:
    """The table's options of merging.

    target_bytes: size of a full manifest. min_count: how many small ones minor merging needs. full_bytes: total size of
    the small ones and those with DELETEs from which full merging is done.
    """

    target_bytes: int
    min_count: int
    full_bytes: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "MergeOptions":
        """Read from the table's options, with Paimon's defaults. Raises Misuse, naming the option."""
        return cls(
            positive(options, "manifest.target-file-size", "8 mb", BYTES),
            positive(options, "manifest.merge-min-count", "30", {"": 1}),
            positive(options, "manifest.full-compaction-threshold-size", "16 mb", BYTES),
        )


class Output(Protocol):
    """Takes rewritten entries and writes them into manifests, each of about the target size."""

    def add(self, kind: FileKind, record: Record) -> None:
        """Add one entry."""

    def close(self) -> list[ManifestFileMeta]:
        """Finish the open manifest and return those written since the last close."""


class Source(Protocol):
    """Reads the entries of a manifest, one by one."""

    def __call__(self, meta: ManifestFileMeta) -> Iterator[tuple[FileKind, Identity, Record]]: ...


class ManifestMerge:
    """Merges the manifests for one try of a commit. It reads through ``source`` and writes through ``output``."""

    def __init__(
        self,
        options: MergeOptions,
        partition_types: Sequence[DataType],
        source: Source,
        output: Output,
        reading: Callable[[Sequence[ManifestFileMeta]], AbstractContextManager[None]],
    ):
        """reading: entered while a run of small manifests is read; they may be fetched at once."""
        self._reading = reading
        self._options = options
        self._types = partition_types
        self._source = source
        self._output = output

    def merge(self, metas: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta]:
        """Manifests with the same live entries: the given ones, or fewer. Raises what ``source`` raises."""
        merged = self._full(metas)
        return self._minor(metas) if merged is None else merged

    def without_deletes(self, metas: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta]:
        """Manifests with the same live entries, of which none is a DELETE. Raises what ``source`` raises."""
        found = self._rewritten(metas, _has_deletes, fewest=1)
        return list(metas) if found is None else found

    # -- full ------------------------------------------------------------------------------------------------------

    def _full(self, metas: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta] | None:
        """Full merging; None when there is too little to do.

        Manifests that are kept come first, so that the rewritten ones stand together and can grow together.
        """
        affected = [meta for meta in metas if self._is_affected(meta)]
        if sum(meta.file_size for meta in affected) < self._options.full_bytes:
            return None
        return self._rewritten(metas, self._is_affected, fewest=2)

    def _rewritten(
        self, metas: Sequence[ManifestFileMeta], is_affected: Callable[[ManifestFileMeta], bool], *, fewest: int
    ) -> list[ManifestFileMeta] | None:
        """Those that are affected, and those with entries that DELETEs hide, written anew without both.

        fewest: None where fewer manifests would be.
        """
        deleted = self._deleted(metas)
        partitions = [decode_physical(row, self._types) for row in {identity[0] for identity in deleted}]
        reached = [is_affected(m) or may_hold(m.partition_stats, partitions, self._types) for m in metas]
        if sum(reached) < fewest:
            return None
        kept = []
        for meta, within_reach in zip(metas, reached):
            if within_reach and (is_affected(meta) or self._holds(meta, deleted)):
                self._copy_adds(meta, deleted)
            else:
                kept.append(meta)
        return kept + self._output.close()

    def _is_affected(self, meta: ManifestFileMeta) -> bool:
        return meta.num_deleted_files > 0 or meta.file_size < self._options.target_bytes

    def _holds(self, meta: ManifestFileMeta, deleted: set[Identity]) -> bool:
        return any(identity in deleted for _, identity, _ in self._source(meta))

    # -- minor -----------------------------------------------------------------------------------------------------

    def _minor(self, metas: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta]:
        merged: list[ManifestFileMeta] = []
        for run in runs(metas, self._options):
            if len(run) > 1:
                with self._reading(run):
                    merged += self._rewrite(run)
            else:
                merged += run
        return merged

    def _rewrite(self, run: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta]:
        deleted = self._deleted(run)
        hidden: set[Identity] = set()
        for meta in run:
            hidden |= self._copy_adds(meta, deleted)
        for meta in _with_deletes(run):
            for kind, identity, record in self._source(meta):
                if kind is FileKind.DELETE and identity not in hidden:
                    self._output.add(kind, record)
        return self._output.close()

    # -- both ------------------------------------------------------------------------------------------------------

    def _deleted(self, metas: Iterable[ManifestFileMeta]) -> set[Identity]:
        found = (entry for meta in _with_deletes(metas) for entry in self._source(meta))
        return {identity for kind, identity, _ in found if kind is FileKind.DELETE}

    def _copy_adds(self, meta: ManifestFileMeta, deleted: set[Identity]) -> set[Identity]:
        """Write the ADDs that are not deleted, and return the identities of those that are."""
        hidden = set()
        for kind, identity, record in self._source(meta):
            if kind is not FileKind.ADD:
                continue
            if identity in deleted:
                hidden.add(identity)
            else:
                self._output.add(kind, record)
        return hidden


def runs(metas: Sequence[ManifestFileMeta], options: MergeOptions) -> list[list[ManifestFileMeta]]:
    """The manifests in order, cut into runs. A run of several is to be merged; a run of one manifest stays as it is.

    A small manifest stays too when it has more entries than all small ones behind it in its run together. Otherwise the
    entries of a table would be rewritten again and again until they fill a manifest; this way each one is rewritten a
    logarithmic number of times. Bytes would not do: a manifest of one entry is hardly smaller than one of a hundred.
    """
    found: list[list[ManifestFileMeta]] = []
    run: list[ManifestFileMeta] = []
    for meta in metas:
        if meta.file_size < options.target_bytes:
            run.append(meta)
        else:
            found += [*_settled(run, options.min_count), [meta]]
            run = []
    return found + _settled(run, options.min_count)


def _settled(run: list[ManifestFileMeta], min_count: int) -> list[list[ManifestFileMeta]]:
    """A run of small manifests, cut: leading ones that stay come alone, the rest together if they are ``min_count``."""
    behind = sum(_entries(meta) for meta in run)
    stay = 0
    for meta in run:
        behind -= _entries(meta)
        if _entries(meta) <= behind:
            break
        stay += 1
    rest = run[stay:]
    alone = run if len(rest) < min_count else run[:stay]
    return [[meta] for meta in alone] + ([rest] if len(rest) >= min_count else [])


def _entries(meta: ManifestFileMeta) -> int:
    return meta.num_added_files + meta.num_deleted_files


def _with_deletes(metas: Iterable[ManifestFileMeta]) -> list[ManifestFileMeta]:
    return [meta for meta in metas if _has_deletes(meta)]


def _has_deletes(meta: ManifestFileMeta) -> bool:
    return meta.num_deleted_files > 0


def positive(options: Mapping[str, str], name: str, default: str, units: Mapping[str, int]) -> int:
    """A table's option that is a positive number with one of these units. Raises Misuse that names the option."""
    text = options.get(name, default).strip().lower()
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text[len(number) :].strip()
    if not number.isdigit() or int(number) == 0 or unit not in units:
        raise Misuse(
            f"the table's option '{name}' is {options.get(name)!r}, expected a positive number such as '{default}'. "
            f"Nothing was written. Set it right with ALTER TABLE {shell.set_option('PATH', name)}",
            kind="table.bad-option",
        )
    return int(number) * units[unit]
