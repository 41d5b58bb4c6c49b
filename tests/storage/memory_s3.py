"""An S3 in memory:
the requests of ``S3Calls`` over a dictionary, so that ``S3FileIO`` runs in tests that run thousands of times."""

import errno
import itertools

from streamsink.storage.calls import Calls
from streamsink.storage.s3_calls import S3Calls, Upload


class MemoryS3Calls(Calls):
    """Objects are there whole or not at all, there are no folders, and an upload is visible when it is finished.
    Keys have S3's limit."""

    name_limits = S3Calls.name_limits

    def __init__(self):
        self._objects: dict[str, tuple[bytes, str]] = {}
        self._uploads: dict[str, tuple[str, list[bytes]]] = {}
        self._ids = (f"upload-{number}" for number in itertools.count())

    def read(self, path):
        if path not in self._objects:
            raise FileNotFoundError(errno.ENOENT, "no such object", path)
        return self._objects[path][0]

    def size(self, path):
        found = self._objects.get(path)
        return None if found is None else len(found[0])

    def entries(self, path, beginning=""):
        prefix = path.rstrip("/") + "/"
        below = [
            (name[len(prefix) :], data) for name, (data, _) in list(self._objects.items()) if name.startswith(prefix)
        ]
        folders = {name.partition("/")[0] for name, _ in below if "/" in name}
        return [(name, len(data), False) for name, data in below if "/" not in name and name.startswith(beginning)] + [
            (name, 0, True) for name in folders if name.startswith(beginning)
        ]

    def below(self, path):
        return sorted(name for name in list(self._objects) if name.startswith(path.rstrip("/") + "/"))

    def open_new(self, path):
        return Upload(self, path)

    def close(self, stream, flush):
        stream.finish()

    def unlink(self, path):
        self._objects.pop(path, None)

    def put(self, path, data):
        self._check_key(path)
        self._objects[path] = (bytes(data), "")

    def put_new(self, path, data, unique):
        self._check_key(path)
        found = self._objects.setdefault(path, (bytes(data), unique))
        return found[1] == unique

    def try_new(self, path, data, unique):
        self._check_key(path)
        made = (bytes(data), unique)
        return self._objects.setdefault(path, made) is made

    def copy(self, source, target):
        self.put(target, self.read(source))

    def _check_key(self, path):
        if self.name_limits(path).exceeded_by(path):
            raise OSError(errno.ENAMETOOLONG, "S3 said 400 KeyTooLongError", path)

    def remove_all(self, paths):
        for path in paths:
            self.unlink(path)

    def remove_tree(self, path):
        for name in [name for name in list(self._objects) if name.startswith(path.rstrip("/") + "/")]:
            self.unlink(name)

    def unfinished(self, path, beginning=""):
        return [
            (name, upload)
            for upload, (name, _) in list(self._uploads.items())
            if name.startswith(path.rstrip("/") + "/" + beginning)
        ]

    def abort(self, path, upload):
        self._uploads.pop(upload, None)

    def begin(self, path):
        upload = next(self._ids)
        self._uploads[upload] = (path, [])
        return upload

    def part(self, path, upload, number, data):
        self._uploads[upload][1].append(bytes(data))
        return {"PartNumber": number}

    def complete(self, path, upload, parts, size):
        if upload not in self._uploads:
            raise FileNotFoundError(errno.ENOENT, "no such upload", path)
        self.put(path, b"".join(self._uploads.pop(upload)[1]))


class IgnoringS3Calls(MemoryS3Calls):
    """Of a server that ignores conditions: each creation replaces what is there."""

    def put_new(self, path, data, unique):
        self.put(path, data)
        return True

    try_new = put_new
