"""Which small files become one: pure, from the live files of a table to tasks.

``pack`` is Paimon's own rule for append tables without buckets. It is right for a call by hand. Beside a stream it
would write a byte again each few batches, because it takes the file of the last compaction along with the next five
small ones. So ``grown`` lets a file wait until it becomes part of a much larger one.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from streamsink import shell
from streamsink.errors import Misuse
from streamsink.format.data_file import FILE_SOURCE_COMPACT, DataFileMeta
from streamsink.format.manifest import ManifestEntry
from streamsink.table.manifest_merge import BYTES, positive

RATIO = "compaction.small-file-ratio"
_SUFFIX = ".parquet"
# A file that is written again becomes at least so many times as large.
_DOUBLED = 2.0


@dataclass(frozen=True)
class Sizes:
    """The table's options of compaction, by Paimon's names and with Paimon's defaults.

    target_bytes: size of a file that is large enough. small_bytes: smaller files are compacted. min_files: how many
    files are worth a task that does not fill a file. open_cost_bytes: counted for each file on top of its size.
    most_files: looked at in one plan.
    """

    target_bytes: int
    small_bytes: int
    min_files: int
    open_cost_bytes: int
    most_files: int

    @classmethod
    def of(cls, table: str, options: Mapping[str, str]) -> "Sizes":
        """From the options of the table at this path. Raises Misuse, naming the option."""
        try:
            target = positive(options, "target-file-size", "256 mb", BYTES)
            return cls(
                target,
                int(target * _ratio(options)),
                positive(options, "compaction.min.file-num", "5", {"": 1}),
                _open_cost(options),
                positive(options, "compaction.file-num-limit", "100000", {"": 1}),
            )
        except Misuse as wrong:
            raise Misuse(f"{table}: {wrong}", kind=wrong.kind) from wrong


def _open_cost(options: Mapping[str, str]) -> int:
    """Readers may be told that opening a file costs nothing."""
    option = "source.split.open-file-cost"
    is_nothing = options.get(option, "").strip().lower().rstrip("abcdefghijklmnopqrstuvwxyz ") == "0"
    return 0 if is_nothing else positive(options, option, "4 mb", BYTES)


def _ratio(options: Mapping[str, str]) -> float:
    text = options.get(RATIO, "0.7").strip()
    try:
        ratio = float(text)
    except ValueError:
        ratio = math.nan
    if not 0 < ratio <= 1:
        raise Misuse(
            f"the table's option '{RATIO}' is {text!r}, expected a number above 0 and up to 1, such as '0.7'. Nothing "
            f"was written. Set it right with ALTER TABLE {shell.set_option('PATH', RATIO)}",
            kind="table.bad-option",
        )
    return ratio


@dataclass(frozen=True)
class Task:
    """Files of one partition that become one file, or a few of the target size.

    partition: BinaryRow bytes. files: their live entries, in the order in which the table has them, which the rows
    keep.
    """

    partition: bytes
    files: tuple[ManifestEntry, ...]

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(entry.file.file_size for entry in self.files)

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(entry.file.row_count for entry in self.files)


# From a partition (BinaryRow bytes) and its small files, in the table's order, to groups of places in that list.
Packing = Callable[[bytes, Sequence[DataFileMeta], Sizes], list[list[int]]]


def plan(
    live: Iterable[ManifestEntry],
    sizes: Sizes,
    packing: Packing,
    *,
    is_readable: Callable[[int], bool],
    is_wanted: Callable[[bytes], bool] = lambda partition: True,
) -> list[Task]:
    """The tasks, the partition with the most small files first.

    live: the live entries, of all partitions. is_readable: whether files of the schema with this number can be read as
    the newest one. is_wanted: whether a partition, given as BinaryRow bytes, is looked at.
    """
    small: dict[bytes, list[ManifestEntry]] = {}
    count = 0
    for entry in live:
        if count == sizes.most_files:
            break
        if _is_small(entry, sizes) and is_readable(entry.file.schema_id) and is_wanted(entry.partition):
            small.setdefault(entry.partition, []).append(entry)
            count += 1
    tasks = []
    for partition, entries in sorted(small.items(), key=lambda item: (-len(item[1]), item[0])):
        for places in packing(partition, [entry.file for entry in entries], sizes):
            tasks.append(Task(partition, tuple(entries[place] for place in sorted(places))))
    return tasks


def _is_small(entry: ManifestEntry, sizes: Sizes) -> bool:
    """Whether compaction is for this file: small, and with nothing that rewriting would lose.

    An index of a file belongs to its rows as they lie, and this library writes none. Files outside of the table, and
    those of another format, stay.
    """
    file = entry.file
    return (
        file.file_size < sizes.small_bytes
        and file.level == 0
        and file.external_path is None
        and not file.extra_files
        and file.embedded_file_index is None
        and file.file_name.endswith(_SUFFIX)
    )


def pack(partition: bytes, files: Sequence[DataFileMeta], sizes: Sizes) -> list[list[int]]:
    """Paimon's own rule: by size, the smallest first; a task is full with twice the target size.

    What is left is a task if it has enough files.
    """
    found, bin_, filled = list[list[int]](), list[int](), 0
    for place in _by_size(files):
        bin_.append(place)
        filled += files[place].file_size + sizes.open_cost_bytes
        if len(bin_) > 1 and filled >= 2 * sizes.target_bytes:
            found.append(bin_)
            bin_, filled = [], 0
    if len(bin_) >= max(2, sizes.min_files):
        found.append(bin_)
    return found


def pack_all(partition: bytes, files: Sequence[DataFileMeta], sizes: Sizes) -> list[list[int]]:
    """All small files, two or more: as few files as there can be. A task ends with the target size."""
    found, bin_, filled = list[list[int]](), list[int](), 0
    for place, file in enumerate(files):
        bin_.append(place)
        filled += file.file_size
        if len(bin_) > 1 and filled >= sizes.target_bytes:
            found.append(bin_)
            bin_, filled = [], 0
    return [*found, bin_] if len(bin_) > 1 else found


def grown(rewrites: int) -> Packing:
    """For files that a stream keeps adding: each byte is written again at most about so many times.

    A byte that goes from a file of its batch to one of the target size in ``rewrites`` equal steps is in a file each
    time that is larger by the same factor. So files wait until, together, they are that factor larger than the largest
    of them, or fill a file. The files that a reader sees meanwhile are at most that factor for each step.
    What would nearly fill a file waits until it does: such a file would be too large to be compacted ever again.
    """

    def packing(partition: bytes, files: Sequence[DataFileMeta], sizes: Sizes) -> list[list[int]]:
        factor = max(_DOUBLED, (sizes.target_bytes / _usual(files)) ** (1 / rewrites))
        return _at_least(factor, files, sizes, least=sizes.min_files, below=sizes.small_bytes)

    return packing


def doubled(partition: bytes, files: Sequence[DataFileMeta], sizes: Sizes) -> list[list[int]]:
    """For files to which no others come for a while: those that are at least twice as large together as the largest.

    So what comes seldom does not have a large file written again each time.
    """
    return _at_least(_DOUBLED, files, sizes, least=2, below=sizes.target_bytes)


def _at_least(factor: float, files: Sequence[DataFileMeta], sizes: Sizes, *, least: int, below: int) -> list[list[int]]:
    """Files that fill one, as often as there are such, and then as many as are ``factor`` times as large together as
    the largest of them.

    Where only one file was filled each time, what comes faster than that would never be compacted. least: so many
    files are worth it, although they fill no file. below: then they have fewer bytes than that.
    """
    found, ordered = list[list[int]](), _by_size(files)
    begin = best = filled = 0
    for end, place in enumerate(ordered, 1):
        size = files[place].file_size
        filled += size
        if end - begin > 1 and filled >= sizes.target_bytes:
            found.append(ordered[begin:end])
            begin, best, filled = end, end, 0
        elif end - begin >= max(2, least) and factor * size <= filled < below:
            best = end
    return [*found, ordered[begin:best]] if best > begin else found


def _by_size(files: Sequence[DataFileMeta]) -> list[int]:
    """Places of the files, that of the smallest one first."""
    return sorted(range(len(files)), key=lambda place: files[place].file_size)


def _usual(files: Sequence[DataFileMeta]) -> int:
    """Size in bytes of a file as writers leave it: the one in the middle, if compaction has left any such file."""
    written = [file.file_size for file in files if file.file_source != FILE_SOURCE_COMPACT]
    every = sorted(written or [file.file_size for file in files]) or [1]
    return max(1, every[len(every) // 2])
