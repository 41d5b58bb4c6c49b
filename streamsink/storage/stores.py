"""The store that a table's path names, and how to open it. Used by the driver and executors."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from urllib.parse import unquote, urlsplit

from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.storage.file_io import FileIO, local_file_io

_S3 = ("s3", "s3a")
# Databases that may hold the journal of a destination that is no folder.
DATABASES = ("sqlite", "postgresql")
_OF_BRANCH = re.compile(r"(?P<table>.+)\$branch_(?P<branch>[^/$]+)", re.DOTALL)
_CUT_SCHEME = re.compile(r"(hdfs|s3a?):/(?!/)")


@dataclass(frozen=True)
class Store:
    """A table's path and how to reach it. It is small and is sent to executors; its ``repr`` shows no option's value.

    root: the path as ``table_path`` spells it: absolute, and a URI unless it is on the local disk.
    options: the option ``store_options``. flush: False omits every fsync.
    """

    root: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    flush: bool = True

    def open(self) -> FileIO:
        """A FileIO of this store, which has not connected yet.

        Raises: Misuse for a missing package or a wrong option.
        """
        scheme = _scheme(self.root)
        new_id = IdSource().new_id
        if scheme == "hdfs":
            from streamsink.storage.hdfs import HdfsCalls, HdfsFileIO

            authority = "hdfs://" + self.root[len("hdfs://") :].partition("/")[0]
            return HdfsFileIO(HdfsCalls(authority, self.options), new_id, self.flush)
        if self.root.partition(":")[0] in DATABASES:
            from streamsink.storage.database import DatabaseCalls, DatabaseFileIO

            return DatabaseFileIO(DatabaseCalls(self.root, self.options), new_id, self.flush)
        if scheme in _S3:
            from streamsink.storage.s3 import S3FileIO
            from streamsink.storage.s3_calls import S3Calls

            self._check_s3_options()
            return S3FileIO(S3Calls(self.options), new_id, self.root)
        return local_file_io(self.flush)

    def _check_s3_options(self) -> None:
        from streamsink.storage.s3_calls import OPTIONS

        unknown = sorted(set(self.options) - set(OPTIONS))
        if unknown:
            raise Misuse(
                f"{self.root}: store_options has no '{unknown[0]}'; for S3 there are {', '.join(OPTIONS)}",
                kind="option.unknown",
            )


def store_of(table: str | os.PathLike[str], options: Mapping[str, str] | None = None, flush: bool = True) -> Store:
    """The store of a table given as a path, or as a file:, hdfs:, s3: or s3a: URI. Raises: Misuse for anything else."""
    return Store(table_path(table), dict(options or {}), flush)


def as_text(path: object) -> object:
    """The text of a path object (``pathlib.Path``); anything else is returned unchanged."""
    return os.fspath(path) if isinstance(path, os.PathLike) else path


def table_path(table: str | os.PathLike[str]) -> str:
    """The path as the library spells it: absolute, without a slash at its end.

    ``<table>$branch_<name>`` becomes the folder of that branch, which Paimon's programs call so, too. Raises: Misuse
    for an unknown scheme.
    """
    text = as_text(table)
    if isinstance(text, str) and (found := _OF_BRANCH.fullmatch(text.rstrip("/"))):
        return f"{table_path(found['table'])}/branch/branch-{found['branch']}"
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise Misuse(f"the table's path is {text!r}, expected a path such as 'lake/shop.db/orders'", kind="table.path")
    table = text
    cut = _CUT_SCHEME.match(table)
    if cut:  # otherwise it would be taken for a folder of that name on the local disk
        raise Misuse(
            f"{table}: there is one slash behind '{cut[1]}:', as pathlib.Path leaves it: give the URI as a text, "
            f"expected a path such as '{cut[1]}://{table[cut.end() :]}'",
            kind="table.path",
        )
    if table.partition(":")[0] in DATABASES:
        raise Misuse(f"{table}: a database holds journals, and no table. Expected a path or a URI", kind="table.scheme")
    scheme = _scheme(table)
    if scheme == "hdfs" or scheme in _S3:
        authority, _, path = table[len(scheme) + 3 :].partition("/")
        _, has_port, port = authority.rpartition(":")
        if scheme == "hdfs" and has_port and not (port.isdecimal() and 0 < int(port) < 1 << 16):
            raise Misuse(
                f"{table}: '{port}' is no port, expected hdfs://namenode:port/path, where the port is a number up to "
                "65535, or hdfs://name-service/path",
                kind="table.path",
            )
        if not path.strip("/") or (scheme in _S3 and not authority):
            raise Misuse(
                f"{table}: expected {scheme}://{'bucket' if scheme in _S3 else 'namenode:port'}/path", kind="table.path"
            )
        _check_letters(table, scheme, path)
        return f"{scheme}://{authority}/{os.path.normpath(path.strip('/'))}"
    if scheme:
        parts = urlsplit(table)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise Misuse(
                f"{table}: the scheme '{parts.scheme}' has no back end here; expected a local path, or a file:, hdfs:, "
                "s3: or s3a: URI",
                kind="table.scheme",
            )
        table = unquote(parts.path)
    return os.path.abspath(table)


def _check_letters(table: str, scheme: str, path: str) -> None:
    """Raises Misuse for a letter that the store takes for another one, or in no name. path: below the authority."""
    odd, why = (":", "HDFS takes in no name") if scheme == "hdfs" else ("\\", "some S3 servers take for a slash")
    if odd in path:
        raise Misuse(
            f"{table}: the path has a {odd!r}, which {why}. Nothing was written. Give it a path without that, such as "
            f"'{table[: len(table) - len(path)]}{path.replace(odd, '_')}'",
            kind="table.path",
        )


def journal_place(journal: str | os.PathLike[str]) -> str:
    """The place of the journals of a destination that is no folder, as the library spells it.

    As ``table_path`` takes it; or sqlite:/path/of/a/file, or postgresql://user@host:port/database. Raises: Misuse.
    """
    text = as_text(journal)
    scheme, _, rest = str(text).partition(":")
    if scheme not in DATABASES:
        return table_path(journal)
    if scheme == "sqlite":
        if not rest.strip("/"):
            raise Misuse(f"{text}: expected sqlite:/path/of/a/file", kind="journal.place")
        return f"sqlite:{os.path.abspath('/' + rest.lstrip('/') if rest.startswith('/') else rest)}"
    parts = urlsplit(str(text))
    if parts.password is not None:
        raise Misuse(
            f"{scheme}://{parts.hostname}: the place of the journal has a password in it, which messages would show. "
            "Give it in store_options={'password': ...}, or to libpq in PGPASSWORD or PGPASSFILE",
            kind="journal.place",
        )
    if not parts.hostname or not parts.path.strip("/") or "/" in parts.path.strip("/") or parts.query:
        raise Misuse(f"{text}: expected postgresql://user@host:port/database", kind="journal.place")
    return str(text).rstrip("/")


def one_spelling(path: str) -> str:
    """One spelling of a place, so that two paths that lead to it are the same. Other texts stay as they are."""
    scheme, mark, rest = path.partition("://")
    if not mark:
        return os.path.realpath(path) if path.startswith("/") else path
    return f"s3://{rest}" if scheme in ("s3a", "s3n") else path


def journal_within(path: str | os.PathLike[str]) -> tuple[str, str]:
    """(the place of journals that this lies in, or is; its own path), as messages name a journal or a file of one.

    In a database the place is the database, elsewhere it is the path itself. Raises: Misuse.
    """
    text = str(as_text(path)).rstrip("/")
    scheme, _, rest = text.partition(":")
    if scheme == "postgresql":
        authority, _, names = rest.removeprefix("//").partition("/")
        place = journal_place(f"{scheme}://{authority}/{names.partition('/')[0]}")
        return place, f"{place}{names[len(names.partition('/')[0]) :]}"
    whole = journal_place(path)
    if scheme != "sqlite":
        return whole, whole
    file = whole.partition(":")[2]
    found = next((str(each) for each in (PurePath(file), *PurePath(file).parents) if os.path.isfile(each)), file)
    return f"{scheme}:{found}", whole


def _scheme(path: str) -> str:
    if path.startswith("file:"):
        return "file"
    scheme, found, _ = path.partition("://")
    return scheme if found else ""
