"""Where the files of a table lie, as absolute paths."""

import os


class Layout:
    """Paths below one table's root.

    ``schema_dir``, ``snapshot_dir`` and ``manifest_dir`` are its folders of metadata.
    """

    def __init__(self, root: str):
        self.root = root
        self.schema_dir = os.path.join(root, "schema")
        self.snapshot_dir = os.path.join(root, "snapshot")
        self.manifest_dir = os.path.join(root, "manifest")
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
        """Absolute path of a name relative to the root. A URI, which may lie elsewhere on the store, stays as it is."""
        return relative if "://" in relative else os.path.join(self.root, relative)

    def relative(self, path: str) -> str:
        """The path relative to the root.

        This works for URIs too, since a path below the root begins as the root does.
        """
        return os.path.relpath(path, self.root)
