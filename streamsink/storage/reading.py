"""The part of a store's contract that changes nothing; see ``file_io.py``."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import BinaryIO

from streamsink.storage.asked_ahead import Questions
from streamsink.storage.calls import NameLimits, PosixLikeCalls


@dataclass(frozen=True)
class FileStatus:
    """One entry of a folder: ``name`` without its folder, ``size`` in bytes (0 for a folder)."""

    name: str
    size: int
    is_dir: bool


class Reading:
    """Reads files and lists folders.

    lists_sizes: whether the listing of a folder also tells the sizes of its files. is_distant: whether an answer takes
    a round trip through a network, so that few questions are asked, and several at once.
    """

    lists_sizes = False
    is_distant = False

    def __init__(self, calls: PosixLikeCalls):
        self._calls = calls

    def read(self, path: str) -> bytes:
        """Return all bytes of a file. Raises: FileNotFoundError, OSError."""
        return self._calls.read(path)

    def exists(self, path: str) -> bool:
        """Whether a file or folder has this name."""
        return self._calls.size(path) is not None

    def size(self, path: str) -> int | None:
        """The size of the file in bytes, or None when there is no such file."""
        return self._calls.size(path)

    def asking(self, questions: Questions) -> AbstractContextManager[None]:
        """Within it, the first answer about each of these files is as of its beginning; the second one is as of now.

        A distant store is asked all of them at once, so that they take one round trip. It is only faster: whoever needs
        another order of two answers does not ask both ahead. A store that is near is asked nothing ahead.
        """
        return nullcontext()

    def asking_to_keep(self, questions: Questions) -> AbstractContextManager[None]:
        """As ``asking``. The thread may use the answers once more, in a block of ``asked_recently``."""
        return self.asking(questions)

    def ask_beside(self, action: Callable[[], None], questions: Questions) -> None:
        """Run the action. A distant store is asked this at the same time, for ``asked_recently``."""
        action()

    def asked_recently(self, questions: Questions) -> AbstractContextManager[int | None]:
        """As ``asking``, with the answers that this thread has kept, if it asked for them within a few seconds.

        Enters with a time in ms before the first of the answers; None where nothing is asked ahead.
        """
        return nullcontext()

    def entries(self, path: str) -> list[FileStatus]:
        """The entries of a folder, sorted by name; empty when there is no such folder."""
        return [FileStatus(*entry) for entry in sorted(self._calls.entries(path))]

    def names(self, path: str) -> list[str]:
        """The names of the entries of a folder, sorted.

        This is cheaper than ``entries`` where a store has to ask for the size of each file separately.
        """
        return sorted(self._calls.names(path))

    def names_beginning(self, path: str, beginning: str) -> list[str]:
        """Those of ``names`` that begin with this text, at the cost of these alone where the store can tell them."""
        return [name for name in self.names(path) if name.startswith(beginning)]

    def listed(self, path: str) -> Mapping[str, int | None]:
        """The names in a folder, each with its size if the listing itself tells sizes, and with None otherwise."""
        if not self.lists_sizes:
            return dict.fromkeys(self._calls.names(path))
        return {name: size for name, size, _ in self._calls.entries(path)}

    def open_input(self, path: str) -> BinaryIO:
        """Open a file to read parts of it; the caller closes it. Only where ``takes_files_of_others``.

        Raises: FileNotFoundError, OSError.
        """
        return self._calls.open_existing(path)

    def name_limits(self, path: str) -> NameLimits:
        """How long names below this folder may be. Used by the driver and by executors.

        At most the operating system is asked, never a remote store.
        """
        return self._calls.name_limits(path)
