"""Where the files of a table lie, as absolute paths."""

import os
import re

# A branch of a table lies in such a folder of it, with schemas, snapshots and tags of its own. Paimon's names of tables
# say ``orders$branch_audit`` (``storage/stores.py`` reads that).
_BRANCH = re.compile(r"(?P<main>.+)/branch/branch-(?P<branch>[^/]+)", re.DOTALL)
# What branches share with the table that they are of, beside the folders of data files, which are named by partitions
# and buckets.
_SHARED = ("manifest", "index", "statistics", "branch")


class Layout:
    """Paths below one table's root, or below that of a branch.

    ``schema_dir``, ``snapshot_dir`` and ``manifest_dir`` are its folders of metadata. ``main`` is the root of the table
    itself, which has the data files and manifests of all branches; ``branch`` the branch's name, '' for the main one.
    """

    def __init__(self, root: str):
        self.root = root
        found = _BRANCH.fullmatch(root)
        self.main, self.branch = (found["main"], found["branch"]) if found else (root, "")
        self.schema_dir = os.path.join(root, "schema")
        self.snapshot_dir = os.path.join(root, "snapshot")
        self.manifest_dir = os.path.join(self.main, "manifest")
        self.latest_hint = os.path.join(self.snapshot_dir, "LATEST")
        self.earliest_hint = os.path.join(self.snapshot_dir, "EARLIEST")

    def schema(self, schema_id: int) -> str:
        """Path of the schema file with this number."""
        return f"{self.schema_dir}/schema-{schema_id}"

    def snapshot(self, snapshot_id: int) -> str:
        """Path of the snapshot file with this number."""
        return f"{self.snapshot_dir}/snapshot-{snapshot_id}"

    def manifest(self, name: str) -> str:
        """Path of a file in the manifest folder: a manifest, a manifest list or an index manifest."""
        return f"{self.manifest_dir}/{name}"

    def within(self, relative: str) -> str:
        """Absolute path of a name relative to the root. A URI, which may lie elsewhere on the store, stays as it is.

        Names of data files and manifests are relative to the root of the table itself, in a branch as well.
        """
        if "://" in relative:
            return relative
        return os.path.join(self.main if self.branch and _is_shared(relative) else self.root, relative)

    def relative(self, path: str) -> str:
        """The path relative to the root; the inverse of ``within``.

        This works for URIs too, since a path below the root begins as the root does.
        """
        is_own = not self.branch or path.startswith(f"{self.root}/")
        return os.path.relpath(path, self.root if is_own else self.main)

    def branch_root(self, name: str) -> str:
        """Path of the branch of this name."""
        return f"{self.main}/branch/branch-{name}"


def _is_shared(relative: str) -> bool:
    first = relative.partition("/")[0]
    return first in _SHARED or "=" in first or first.startswith("bucket-")
