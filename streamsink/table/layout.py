"""Where the parts of a table are, as absolute paths."""

import os


class Layout:
    """Paths below one table's root."""

    def __init__(self, root: str):
        self.root = root

    def schema(self, schema_id: int) -> str:
        return os.path.join(self.root, "schema", f"schema-{schema_id}")

    def snapshot(self, snapshot_id: int) -> str:
        return os.path.join(self.root, "snapshot", f"snapshot-{snapshot_id}")

    def manifest(self, name: str) -> str:
        return os.path.join(self.root, "manifest", name)

    @property
    def schema_dir(self) -> str:
        return os.path.join(self.root, "schema")

    @property
    def snapshot_dir(self) -> str:
        return os.path.join(self.root, "snapshot")

    @property
    def manifest_dir(self) -> str:
        return os.path.join(self.root, "manifest")

    @property
    def latest_hint(self) -> str:
        return os.path.join(self.snapshot_dir, "LATEST")

    @property
    def earliest_hint(self) -> str:
        return os.path.join(self.snapshot_dir, "EARLIEST")

    def within(self, relative: str) -> str:
        """Absolute path of a name relative to the root; one that is absolute, elsewhere on the store, stays as it is."""
        return relative if "://" in relative else os.path.join(self.root, relative)

    def relative(self, path: str) -> str:
        """Name relative to the root. Of URIs too, which are alike up to the root's own name."""
        return os.path.relpath(path, self.root)
