"""FileIO of S3 and of servers that speak its protocol. See docs/design/0003-stores.md.

An object exists whole or not at all, and is durable when the reply comes. Something is published by a PUT with
``If-None-Match: *``; files get their final names by copies within the store. There are no folders.
"""

import contextlib
import errno
import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import cast

from streamsink.errors import StreamsinkError
from streamsink.storage.calls import PosixLikeCalls, size_of
from streamsink.storage.file_io import DistantFileIO, is_there
from streamsink.storage.flush_group import FlushGroup, Unflushed
from streamsink.storage.hold import BeatingHold, Hold
from streamsink.storage.reading import Questions
from streamsink.storage.s3_calls import MOST_COPIED_BYTES, MOST_WRITTEN_BYTES, S3Calls

_LONG_NAME_BYTES = 255
_PROBES = 3
_STEPS = 3


class Probe:
    """Tries out whether a server honours ``If-None-Match``: of two creations under one name it must refuse the second.

    A server that does not know the header silently overwrites. Each step takes a round trip, so they are made beside
    the first questions that a start asks, and the answer is there when something is to be created. Two threads may make
    steps; each step is made once, in order.
    """

    def __init__(self, calls: S3Calls, path: str):
        self._calls = calls
        self.path = path
        self._turn = threading.Lock()
        self._done = self._taken = 0
        self._failure: OSError | StreamsinkError | None = None
        self._created: list[bool] = []  # whether each of the creations made the object

    def take_step(self) -> Callable[[], None] | None:
        """What makes the next step; None while the step before is to be made yet, and when all are made."""
        if self._taken > self._done or self._done >= _STEPS:
            return None
        self._taken = self._done + 1
        return self.step

    def step(self) -> None:
        """Make the next step. An error is raised by ``refuses``, where it counts."""
        with self._turn:
            number, self._done = self._done, min(self._done + 1, _STEPS)
            try:
                if number == _STEPS - 1:
                    self._calls.unlink(self.path)
                elif number < _STEPS and self._failure is None:
                    self._created.append(self._create(number))
            except (OSError, StreamsinkError) as failed:
                self._failure = failed

    def refuses(self) -> bool:
        """Whether the server refuses the second creation. Raises: OSError, Misuse."""
        while self._done < _STEPS - 1:
            self.step()
        if len(self._created) == _STEPS - 1:
            return self._created == [True, False]
        self.end()
        if isinstance(self._failure, OSError) and "501" in (self._failure.strerror or ""):
            return False  # "not implemented" is an answer too
        raise self._failure or OSError(errno.EIO, "the server was not tried out", self.path)

    def end(self) -> None:
        """Remove what the steps have made. An error leaves it to the next start."""
        if 0 < self._done < _STEPS:
            self._done = _STEPS - 1
            self.step()

    def _create(self, number: int) -> bool:
        """The second one is to be refused, and whose the object is that it was refused for says no more."""
        create = self._calls.try_new if number else self._calls.put_new
        return create(self.path, b"", str(number))


class S3FileIO(DistantFileIO):
    """FileIO over S3, which has no folders, links or renames."""

    takes_files_of_others = False
    lists_sizes = True
    largest_file = MOST_COPIED_BYTES
    names_at_once = True
    largest_written = MOST_WRITTEN_BYTES

    def __init__(self, calls: S3Calls, new_id: Callable[[], str], table: str):
        """table: the table's path; below it the server is tried out, once, before the first write."""
        # The methods that need POSIX calls are overridden here, or are not called on this store: ``open_input``,
        # ``flush_file``, ``try_hold``.
        super().__init__(cast(PosixLikeCalls, calls), new_id)
        self._table = table
        # The first try of ``atomic_create``, where it was begun before it was asked for.
        self._probe: Probe | None = None

    @property
    def _s3(self) -> S3Calls:
        return cast(S3Calls, self._calls)  # what the constructor got, or a wrapper of a test around it

    @functools.cached_property
    def atomic_create(self) -> bool:
        """Whether the server honours ``If-None-Match``, which is tried out (``Probe``)."""
        # A writer that starts meanwhile may sweep the object away between the two creations, so one overwrite proves
        # nothing; a server that overwrites does it each time.
        begun = [self._probe] if self._probe else []
        for probe in itertools.islice(itertools.chain(begun, iter(self._new_probe, None)), _PROBES):
            refuses = probe.refuses()
            if probe is not self._probe:
                probe.end()
            if refuses:
                return True
        return False

    def _new_probe(self) -> Probe:
        # The probe is where a creation that died may leave a hidden file, which is swept. So a probe whose process died
        # is not taken for a foreign file either.
        return Probe(self._s3, os.path.join(self._table, "schema", f".probe-{self._new_id()}.tmp"))

    def sweep_probes(self) -> None:
        folder = os.path.join(self._table, "schema")
        left = [os.path.join(folder, name) for name in self.names_beginning(folder, ".probe-")]
        self.delete_all([path for path in left if not self.is_own(path)])

    @contextlib.contextmanager
    def proving(self) -> Iterator[None]:
        self._probe = self._probe or self._new_probe()
        try:
            yield
        except BaseException:
            self._probe.end()
            raise

    def is_own(self, path: str) -> bool:
        return self._probe is not None and self._probe.path == path

    def asking(self, questions: Questions) -> AbstractContextManager[None]:
        self._go_on_proving()
        return super().asking(questions)

    def asking_to_keep(self, questions: Questions, *, more: bool = False) -> AbstractContextManager[None]:
        self._go_on_proving()
        return super().asking_to_keep(questions, more=more)

    def _go_on_proving(self) -> None:
        step = self._probe.take_step() if self._probe is not None else None
        if step is not None:
            self.soon(step)

    def names_beginning(self, path: str, beginning: str) -> list[str]:
        return sorted(name for name, _, _ in self._s3.entries(path, beginning))

    def files_below(self, path: str) -> list[str]:
        return sorted(self._s3.below(path))

    def sizes_beginning(self, path: str, beginning: str) -> dict[str, int]:
        return {name: size for name, size, _ in self._s3.entries(path, beginning)}

    def make_dir(self, path: str) -> None:
        """Does nothing: there are no folders."""

    begin_dir = make_dir

    def _begin_names(self, folder: str, staging: str, group: FlushGroup) -> None:
        """Try out a folder with a long name: servers that keep objects as files have their disk's limit of a name."""
        if max(size_of(name) for name in folder.split("/")) > _LONG_NAME_BYTES:
            probe = os.path.join(folder, f".probe-{self._new_id()}.tmp")
            self._s3.put(probe, b"")
            self._s3.unlink(probe)

    def sync_dir(self, path: str) -> None:
        """Does nothing: a name is durable when the reply to its creation comes."""

    def write(self, path: str, data: bytes) -> None:
        if self.atomic_create:
            created = self._s3.put_new(path, data, self._new_id())
        else:
            created = self._put_if_free(path, data)
        if not created:
            raise FileExistsError(errno.EEXIST, "object exists", path)

    def begin(self, path: str, data: bytes) -> Unflushed:
        return Unflushed(lambda: self.write(path, data), lambda: None)

    def mark(self, path: str, data: bytes = b"") -> None:
        self._s3.put(path, data)

    def prepare(self, group: FlushGroup, path: str, data: bytes, unique: str) -> None:
        """Does nothing: a conditional PUT needs no preparation."""

    def give_up(self, path: str, unique: str) -> None:
        """Does nothing: nothing was prepared."""

    def create_new(
        self, path: str, data: bytes, unique: str = "", *, prepared: bool = False, replaceable: bool = False
    ) -> bool:
        if not self.atomic_create:
            return self._put_if_free(path, data)
        try:
            return self._s3.put_new(path, data, unique or self._new_id())
        except OSError as failed:
            return is_there(self, path, data, failed, replaceable)

    def _put_if_free(self, path: str, data: bytes) -> bool:
        """Look, then put: for a server without conditional requests, under a lock that the other writers honour."""
        if self._s3.size(path) is not None:
            return False
        try:
            self._s3.put(path, data)
        except OSError as failed:
            return is_there(self, path, data, failed)
        return True

    def place(self, source: str, target: str, keep_source: bool) -> None:
        """Copy the file. The source stays in staging, which is deleted as a whole once the checkpoint is published."""
        try:
            self._s3.copy(source, target)
        except FileNotFoundError:
            if self._s3.size(target) is None:
                raise

    def replace(self, path: str, data: bytes, unique: str) -> None:
        self._s3.put(path, data)

    def delete_all(self, paths: Sequence[str]) -> None:
        if paths:
            self._s3.remove_all(paths)

    def delete_tree(self, path: str) -> None:
        self._s3.remove_tree(path)

    def delete_empty_folder(self, path: str) -> None:
        """Does nothing: there are no folders."""

    def delete_unfinished(self, folder: str, beginning: str = "") -> None:
        for path, upload in self._s3.unfinished(folder, beginning):
            self._s3.abort(path, upload)

    def hold(self, folder: str) -> Hold:
        return BeatingHold(self, folder)
