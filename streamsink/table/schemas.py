"""The schema files of a table: they are numbered, created only when absent, and never rewritten."""

import hashlib
from collections.abc import Iterable, Sequence

from streamsink import shell
from streamsink.errors import Conflict, Corrupt, Misuse
from streamsink.format.schema import TableSchema
from streamsink.storage.file_io import FileIO
from streamsink.storage.reading import Questions
from streamsink.table.layout import Layout


class Schemas:
    """Reads and adds schema files. A schema file never changes, so each one is read once."""

    def __init__(self, file_io: FileIO, layout: Layout):
        self._io = file_io
        self._at = layout
        self._known: dict[int, TableSchema] = {}
        # Of the bytes of each of these, as they were read or written.
        self._digests: dict[int, str] = {}
        self._newest = -1
        # Hidden files in the folder when it was listed first.
        self.hidden: tuple[str, ...] = ()

    def exists(self) -> bool:
        """Whether the path is a table, which is so when it has the first schema file."""
        return self._io.exists(self._at.schema(0))

    def load(self, schema_id: int) -> TableSchema:
        """The schema of this number. Raises Corrupt, naming the file, when it is missing or damaged."""
        if schema_id not in self._known:
            path = self._at.schema(schema_id)
            try:
                data = self._io.read(path)
            except FileNotFoundError as missing:
                raise Corrupt(
                    f"{path}: the schema file is missing, although the table refers to it; restore it "
                    f"{shell.restore(path)}",
                    kind="schema.missing",
                ) from missing
            self._known[schema_id], self._digests[schema_id] = TableSchema.from_json(data, path), _digest(data)
        return self._known[schema_id]

    def latest(self) -> TableSchema:
        """The schema with the highest number. After the first call this costs one look-up when no schema was added."""
        if self._newest < 0:
            names = self._io.names(self._at.schema_dir)
            parts = [name.partition("schema-") for name in names]
            ids = [int(number) for before, found, number in parts if found and not before and number.isdigit()]
            self._newest, self.hidden = max(ids, default=0), tuple(name for name in names if name.startswith("."))
            return self.load(self._newest)
        while self._io.exists(self._at.schema(self._newest + 1)):
            self._newest += 1
        return self.load(self._newest)

    def questions(self) -> Questions:
        """What ``identity`` and ``latest`` ask about."""
        following = (self._at.schema(self._newest + 1),) if self._newest >= 0 else ()
        return Questions(read=(self._at.schema(0),), size=following)

    def created(self, schema: TableSchema, data: bytes, names: Sequence[str]) -> str:
        """Take this first schema, which this process has just created with these bytes. Returns the identity.

        names: of the folder, a moment before.
        """
        self._known[0], self._newest, self.hidden = schema, 0, tuple(name for name in names if name.startswith("."))
        return _digest(data)

    def known(self) -> TableSchema:
        """What ``latest`` returned last. The store is asked only if ``latest`` was never called."""
        return self.latest() if self._newest < 0 else self.load(self._newest)

    def check_there(self, schema_ids: Iterable[int]) -> None:
        """Raises Corrupt when a schema is missing that files are about to refer to: no reader could open the table; or
        when it has other columns than when this process read it: readers would take those of the files for them.

        Asks the store once for each schema but the first, without which the table has no identity either.
        """
        missing = [number for number in sorted(set(schema_ids)) if number and not self._is_as_known(number)]
        if not missing:
            return
        there = sorted(name for name in self._io.names(self._at.schema_dir) if name.startswith("schema-"))
        raise Corrupt(
            f"{self._at.root}: {self._at.schema(missing[0])} does not exist, and files that are to be published were "
            f"written with schema {missing[0]} (there are: {', '.join(there) or 'none'}): the table's metadata was "
            "restored from an older copy, or the file was deleted. Nothing was published, and what was pre-committed "
            f"is safe in the journal. Put schema-{missing[0]} back "
            f"{shell.restore(self._at.schema(missing[0]))}; or make the same change of the "
            "schema again, which gives the same columns the same ids. Then start the query again",
            kind="schema.gone",
        )

    def _is_as_known(self, number: int) -> bool:
        """False when the schema's file is gone. Raises Corrupt ``schema.replaced``."""
        path = self._at.schema(number)
        try:
            data = self._io.read(path)
        except FileNotFoundError:
            return False
        known = self._known.get(number)
        is_same = known is None or _digest(data) == self._digests.get(number)
        if known is not None and not is_same and TableSchema.from_json(data, path).columns_id != known.columns_id:
            raise Corrupt(
                f"{self._at.root}: {path} is another schema than a moment ago: the table's schema was rolled back and "
                "then changed in another way, or a branch with another schema took the table over. Nothing was "
                "published, because readers would take the columns of the new files for others. Start the query again:"
                " it says what to do with what is recorded",
                kind="schema.replaced",
            )
        return True

    def add(self, schema: TableSchema) -> TableSchema:
        """Create the schema's file under its number.

        Raises Conflict when another writer created one of that number first.
        """
        data = schema.to_json()
        try:
            created = self._io.create_if_absent(self._at.schema(schema.id), data)
        except FileNotFoundError:
            created = False  # another start deleted the temporary file because it took its writer for dead
        if not created:
            raise Conflict(
                f"{self._at.schema(schema.id)}: another writer added this schema at the same time; "
                "read it and decide anew",
                kind="schema.taken",
            )
        self._known[schema.id], self._digests[schema.id] = schema, _digest(data)
        self._newest = max(self._newest, schema.id)
        return schema

    def identity(self) -> str:
        """The table's identity: a digest of its first schema file, which holds the time of its creation.

        The file is read from the store each time, so that a dropped or recreated table is noticed. Raises Misuse when
        it is gone.
        """
        path = self._at.schema(0)
        try:
            data = self._io.read(path)
            if 0 not in self._known:
                self._known[0] = TableSchema.from_json(data, path)
            return _digest(data)
        except FileNotFoundError as missing:
            raise Misuse(
                f"{self._at.root}: the table is gone: {path} does not exist any more. Nothing was written. "
                "Restore the table; or, if it was moved or renamed, give its new path; or start a new checkpoint and a "
                "new table",
                kind="table.gone",
            ) from missing


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
