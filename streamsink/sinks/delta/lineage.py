"""Which record of an application is the last one that is in a Delta table now. Driver only.

Each commit of ours has two ``txn`` actions: the number of the record, and a fingerprint of its id. Readers of the
table's state, checkpoints and the cleaning of the log keep both. But RESTORE leaves them as they are: after it they say
more than the table has. So the log is read backwards, and where a RESTORE stands it is read on from the version that
was restored.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from streamsink import shell
from streamsink.errors import Misuse
from streamsink.sinks.delta.log import DeltaLog, Entry

# What commitInfo says of a table that is put back.
RESTORE = "RESTORE"


@dataclass(frozen=True)
class Last:
    """The last record of an application in the table.

    number, fingerprint: of the record; (0, 0) for none. version: that published it; None where its entry is gone.
    digest: of that entry. unseen: the newest version whose entry is gone, behind which nothing of the application was
    found; -1 where all entries that matter are there. Then a RESTORE may have stood among those that are gone.
    """

    number: int = 0
    fingerprint: int = 0
    version: int | None = None
    digest: str = ""
    unseen: int = -1


def number_of(application: str) -> str:
    """The ``appId`` under which the number of the last record is kept."""
    return f"streamsink:{application}"


def fingerprint_of(application: str) -> str:
    """The ``appId`` under which the fingerprint of the last record is kept."""
    return f"streamsink-record:{application}"


def fingerprint(record_id: str) -> int:
    """62 bits of an id."""
    return int.from_bytes(hashlib.sha256(record_id.encode()).digest()[:8], "big") >> 2


def replaces(entry: Entry) -> bool:
    """Whether an entry has put another table in the place of this one.

    Spark's Delta 4.4 and deltalake give it another id then, which tells as well. Nothing asks that of them.
    """
    return "REPLACE TABLE" in entry.operation or entry.operation == "CLONE"


class Lineage:
    """The entries of which the table is made now, newest first."""

    def __init__(self, log: DeltaLog, path: str):
        self._log, self._path = log, path
        self._known: dict[str, tuple[int, Last]] = {}
        self._replaced = log.times_replaced

    def entries(self, version: int) -> Iterator[Entry | int]:
        """The entries from a version on, backwards and without what was restored away.

        Where one is gone, its version, and nothing behind it. The one that replaced the table is the last. Raises
        Misuse for a RESTORE that does not say a version.
        """
        while version >= 0:  # it falls in each turn
            entry = self._log.entry(version)
            if entry is None:
                yield version
                return
            yield entry
            if replaces(entry):
                return
            version = self._restored(entry) if entry.operation == RESTORE else version - 1

    def _restored(self, entry: Entry) -> int:
        said = str(entry.parameters.get("version"))
        if not said.isdecimal() or int(said) >= entry.version:
            raise Misuse(
                f"{self._path}: version {entry.version} of the table is a RESTORE that does not say the version that "
                f"was restored (it says {sorted(entry.parameters)}), so what of this query is in the table cannot be "
                "told. Nothing was written. Restore the table once more to the same state, by the number of its "
                "version (RESTORE TABLE ... TO VERSION AS OF n, or DeltaTable.restore(n)), and start the query again",
                kind="delta.restored-by-time",
            )
        return int(said)

    def last(self, application: str, version: int) -> Last:
        """The last record of the application. version: the newest of the table.

        What was looked at before is not read again, but for the entry that was found: on a local disk other programs
        publish by a rename, which may have replaced it. Nor does anything hold that was found in a log of which the
        newest entry was replaced: what stands there now may be a RESTORE.
        """
        if self._log.seen.transaction_version(number_of(application)) is None:
            return Last()  # it stays for good, also through a RESTORE
        if self._replaced != self._log.times_replaced:
            self._known.clear()
            self._replaced = self._log.times_replaced
        before, known = self._known.get(application, (-1, Last()))
        found = self._walk(application, version, before, known)
        if found.number and found.version is not None:
            entry = self._log.entry(found.version)
            if entry is None or entry.digest != found.digest:
                self._log.forget()
                version = int(self._log.newest().version())
                found = self._walk(application, version, -1, Last())
        self._known[application] = (version, found)
        return found

    def _walk(self, application: str, version: int, before: int, known: Last) -> Last:
        """before: the newest version that was looked at; known: what was found there."""
        number, mark = number_of(application), fingerprint_of(application)
        came_from, whole = version, True
        for entry in self.entries(version):
            if isinstance(entry, int):
                return self._as_of(application, came_from, entry)
            if whole and entry.version <= before:
                return known
            if number in entry.txns:
                return Last(entry.txns[number], entry.txns.get(mark, 0), entry.version, entry.digest)
            came_from = entry.version
            if entry.operation == RESTORE:
                came_from = self._restored(entry)
                whole = whole and came_from > before
        return Last()

    def _as_of(self, application: str, version: int, unseen: int) -> Last:
        """What the table's own state says at a version, where entries before it are gone."""
        table = self._log.at(version)
        if table is None:
            raise Misuse(
                f"{self._path}: the log before version {version} is gone, and so is its state, although the table was "
                "restored to it: what of this query is in the table cannot be told. Nothing was written. Restore the "
                f"folder _delta_log {shell.restore(f'{self._path}/_delta_log')}",
                kind="delta.log-gone",
            )
        number = table.transaction_version(number_of(application)) or 0
        return Last(
            number, table.transaction_version(fingerprint_of(application)) or 0, unseen=unseen if number else -1
        )
