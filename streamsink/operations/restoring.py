"""``streamsink restore``: bring one file, or one folder, back from a backup, as an error tells to.

A copy is looked at before it is taken: what a snapshot, a manifest, a schema, a record or a data file must be, is known
by its place. What is whole is never replaced.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.operations.one_file import is_file, problem_with
from streamsink.storage.file_io import FileIO

_MOST_FILES = 1_000_000
_NO_FILES = ("hold", "LATEST", "EARLIEST")  # what a lock or a commit makes, which is of no use from another time


@dataclass(frozen=True)
class Restored:
    """What was copied, or would be. missing: files that were not there. damaged: those that are replaced. whole: number
    of files that are left as they are.
    """

    path: str
    missing: tuple[str, ...]
    damaged: tuple[str, ...]
    whole: int

    def __str__(self) -> str:
        kept = f"; {self.whole} that are whole stay as they are" if self.whole else ""
        return f"{self.path}: {len(self.missing)} missing and {len(self.damaged)} damaged files from the copy{kept}"


def restore(file_io: FileIO, path: str, copies: FileIO, copy: str, *, dry_run: bool = False) -> Restored:
    """Copy the file, or all files below the folder, that ``copy`` has and ``path`` lacks or has damaged.

    copies: the store of the copy. Each file is there whole or not at all. Idempotent. After a crash: call it again.
    Raises Misuse, and copies nothing, when there is no copy, or one file of it is damaged itself, or differs from one
    that is whole here.
    """
    missing: list[str] = []
    damaged: list[str] = []
    whole, names = 0, list(_below(copies, copy))
    if not names:
        raise Misuse(
            f"{copy}: there is neither a file nor a folder with files. Nothing was written. Give --from the path of "
            f"the copy of {path}",
            kind="restore.no-copy",
        )
    for name in names:
        target, data = f"{path}{name}", copies.read(f"{copy}{name}")
        problem = problem_with(data, target)
        if problem:
            raise Misuse(
                f"{copy}{name}: the copy is damaged itself: {problem}. Nothing was written. Give --from another copy",
                kind="restore.damaged-copy",
            )
        if file_io.size(target) is None:
            missing.append(name)
            continue
        here = file_io.read(target)
        if here != data and not problem_with(here, target):
            raise Misuse(
                f"{target}: it differs from its copy {copy}{name}, and looks whole, so nobody can tell which of them "
                "is right. Nothing was written. If the one that is here is wrong, move it away first; or give --from "
                "only what is missing",
                kind="restore.differs",
            )
        damaged, whole = (damaged, whole + 1) if here == data else ([*damaged, name], whole)
    if not dry_run:
        for name in missing:
            file_io.create_if_absent(f"{path}{name}", copies.read(f"{copy}{name}"), IdSource().new_id())
        for name in damaged:
            data = copies.read(f"{copy}{name}")
            file_io.delete(f"{path}{name}")  # a death behind it leaves a file that is missing, which comes back then
            file_io.create_if_absent(f"{path}{name}", data, IdSource().new_id())
    return Restored(path, tuple(f"{path}{n}" for n in missing), tuple(f"{path}{n}" for n in damaged), whole)


def _below(copies: FileIO, copy: str) -> Iterator[str]:
    """What is behind ``copy`` in the path of each of its files: '' where it is a file itself."""
    if is_file(copies, copy):
        yield ""
        return
    folders = [""]
    for _ in range(_MOST_FILES):
        if not folders:
            return
        folder = folders.pop()
        for entry in sorted(copies.entries(f"{copy}{folder}"), key=lambda each: each.name):
            name = f"{folder}/{entry.name}"
            if entry.is_dir:
                folders.append(name)
            elif not entry.name.startswith(_NO_FILES):
                yield name
