"""Minor merging of manifests, by Paimon's rules: many small ones become one, so that a scan reads few files."""

from collections.abc import Callable, Sequence

from streamsink.format.manifest import FileKind, ManifestEntry
from streamsink.format.manifest_list import ManifestFileMeta


def merge_small(
    metas: Sequence[ManifestFileMeta],
    target_bytes: int,
    min_count: int,
    rewrite: Callable[[list[ManifestFileMeta]], list[ManifestFileMeta]],
) -> list[ManifestFileMeta]:
    """Walk in order; a run that reaches ``target_bytes`` is merged, the rest only when it has ``min_count`` files.

    ``rewrite`` reads a run of manifests and writes their entries as few new ones. Order is kept.
    """
    result: list[ManifestFileMeta] = []
    run: list[ManifestFileMeta] = []
    size = 0
    for meta in metas:
        run.append(meta)
        size += meta.file_size
        if size >= target_bytes:
            result += run if len(run) == 1 else rewrite(run)
            run, size = [], 0
    result += rewrite(run) if len(run) >= min_count else run
    return result


def cancel_pairs(entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    """Entries of a run of manifests with each ADD that the same run deletes left out, and that DELETE too.

    A DELETE whose ADD is in an older manifest stays: it must go on hiding that one.
    """
    live: dict[tuple, ManifestEntry] = {}
    for entry in entries:
        if entry.kind == FileKind.ADD:
            live[entry.identity] = entry
        elif entry.identity in live and live[entry.identity].kind == FileKind.ADD:
            del live[entry.identity]
        else:
            live[entry.identity] = entry
    return list(live.values())
