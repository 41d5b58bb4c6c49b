"""FileIO of S3 and of servers that speak its protocol. See docs/design/0003-stores.md.

An object exists whole or not at all, and is durable when the reply comes. Something is published by a PUT with
``If-None-Match: *``; files get their final names by copies within the store. There are no folders.
"""

import errno
import functools
import os
from collections.abc import Callable, Sequence
from typing import cast

from streamsink.storage.calls import PosixLikeCalls, size_of
from streamsink.storage.file_io import DistantFileIO, is_there
from streamsink.storage.flush_group import FlushGroup, Unflushed
from streamsink.storage.hold import BeatingHold, Hold
from streamsink.storage.s3_calls import MOST_COPIED_BYTES, MOST_WRITTEN_BYTES, S3Calls

_LONG_NAME_BYTES = 255
_PROBES = 3


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

    @property
    def _s3(self) -> S3Calls:
        return cast(S3Calls, self._calls)  # what the constructor got, or a wrapper of a test around it

    @functools.cached_property
    def atomic_create(self) -> bool:
        """Whether the server honours ``If-None-Match``.

        This is tried out, because a server that does not know the header silently overwrites.
        """
        # A writer that starts meanwhile may sweep the object away between the two creations, so one overwrite proves
        # nothing; a server that overwrites does it each time.
        return any(self._refuses_the_second() for _ in range(_PROBES))

    def _refuses_the_second(self) -> bool:
        """Whether the server refuses the second of two creations under one name."""
        # The probe is where a creation that died may leave a hidden file, which is swept. So a probe whose process died
        # is not taken for a foreign file either.
        probe = os.path.join(self._table, "schema", f".probe-{self._new_id()}.tmp")
        try:
            return self._s3.put_new(probe, b"", "1") and not self._created_again(probe)
        except OSError as failed:
            if "501" not in (failed.strerror or ""):  # "not implemented" is an answer too
                raise
            return False
        finally:
            self._s3.unlink(probe)

    def _created_again(self, probe: str) -> bool:
        try:
            return self._s3.put_new(probe, b"", "2")
        except FileNotFoundError:
            return False  # it was refused, and the first object was swept before its mark could be read

    def names_beginning(self, path: str, beginning: str) -> list[str]:
        return sorted(name for name, _, _ in self._s3.entries(path, beginning))

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

    def delete_unfinished(self, folder: str, beginning: str = "") -> None:
        for path, upload in self._s3.unfinished(folder, beginning):
            self._s3.abort(path, upload)

    def hold(self, folder: str) -> Hold:
        return BeatingHold(self, folder)
