"""Paimon's REST catalog: external tables, whose snapshots their writers commit.

Of a managed table the catalog commits the snapshots itself, so a writer that creates names in the folder is not seen
there: such a table is another one here. Plain HTTP of the standard library; redirects are not followed, which could
carry the token to another host.
"""

import http.client
import json
from typing import Any
from urllib.parse import quote_plus, urlsplit

from streamsink.catalogs.catalog import REGISTERED, UNCHANGED, UPDATED, Catalog, Entry, Named, other_than
from streamsink.errors import Misuse, Retryable
from streamsink.format.schema import TableSchema

CALL_TIMEOUT_S = 10
_ATTEMPTS = 3
_MOST_BYTES = 16 * 1024 * 1024
_MOST_LETTERS = 300
_GONE, _THERE = 404, 409
_Found = dict[str, Any]


class RestCatalog(Catalog):
    """The databases and tables of one warehouse of a server."""

    def __init__(self, uri: str, warehouse: str, token: str, *, create_database: bool = True):
        """uri: with http or https, a host, and a path before ``/v1`` where there is one. token: '' for none."""
        self._parts = urlsplit(uri)
        self._warehouse, self._token, self._create_database = warehouse, token, create_database
        self.where = f"rest {self._parts.scheme}://{self._parts.netloc}{self._parts.path.rstrip('/')}"

    # -- Catalog ---------------------------------------------------------------------------------------------------

    def entry(self, named: Named) -> Entry | None:
        found = self._table(named, self._databases(named))
        return None if found is None else _entry(found)

    def put(
        self, named: Named, schema: TableSchema, *, dry_run: bool = False, moved_from: str = "", may_create: bool = True
    ) -> str:
        databases, change = self._databases(named), REGISTERED
        for _ in range(_ATTEMPTS):
            found = self._table(named, databases)
            if found is not None and not _is_moved(found, named, moved_from):
                return self._check_same(found, named, schema)
            if found is None and not may_create:
                return UNCHANGED
            change = UPDATED if found is not None else change
            if dry_run:
                return change
            if found is not None:  # the catalog takes no other place of a table; files of an external one stay
                self._drop(named, databases)
            self._have_database(named, databases)
            wanted = json.loads(schema.to_json())
            options = {**wanted["options"], "path": named.location}
            made = {name: wanted[name] for name in ("fields", "partitionKeys", "primaryKeys")}
            body = {
                "identifier": {"database": named.database, "object": named.table},
                "schema": {**made, "options": options, "comment": wanted.get("comment")},
            }
            status, said = self._ask(named, "POST", f"{databases}/{quote_plus(named.database)}/tables", body)
            if status != _THERE:  # another program was first: what has it made?
                self._check(named, status, said)
                return change
        raise Retryable(
            f"{named.root}: {self.where} says that {named} is there, and that it is not", kind="catalog.unavailable"
        )

    def check_new(self, named: Named, schema: TableSchema) -> None:
        if not self._create_database:
            self._have_database(named, self._databases(named))

    # -- parts -----------------------------------------------------------------------------------------------------

    def _check_same(self, found: _Found, named: Named, schema: TableSchema) -> str:
        other = other_than(named, _entry(found))
        if other:
            raise Misuse(f"{named.root}: {self.where} has {other} under the name {named}", kind="catalog.other-table")
        if _columns(found.get("schema")) != _columns(json.loads(schema.to_json())):
            raise Misuse(
                f"{named.root}: {self.where} has {named} with the columns that it was registered with, and takes no "
                "others of an external table. Its readers see all rows, without the new columns. Drop the entry there, "
                "which leaves the files alone, and start the query again: it is registered anew",
                kind="catalog.refused",
            )
        return UNCHANGED

    def _drop(self, named: Named, databases: str) -> None:
        path = f"{databases}/{quote_plus(named.database)}/tables/{quote_plus(named.table)}"
        status, said = self._ask(named, "DELETE", path)
        if status != _GONE:
            self._check(named, status, said)

    def _have_database(self, named: Named, databases: str) -> None:
        status, said = self._ask(named, "GET", f"{databases}/{quote_plus(named.database)}")
        if status == _GONE and not self._create_database:
            raise Misuse(
                f"{named.root}: {self.where} has no database '{named.database}', and the option 'catalog' says "
                "create-database=false. Nothing was written. Create the database, or leave that property out",
                kind="catalog.no-database",
            )
        if status == _GONE:
            status, said = self._ask(named, "POST", databases, {"name": named.database, "options": {}})
        if status != _THERE:
            self._check(named, status, said)

    def _table(self, named: Named, databases: str) -> _Found | None:
        path = f"{databases}/{quote_plus(named.database)}/tables/{quote_plus(named.table)}"
        status, said = self._ask(named, "GET", path)
        if status == _GONE:
            return None
        if status != http.client.OK:
            raise self._unavailable(named, _told(status, said))
        if not isinstance(said.get("schema"), dict) or not isinstance(said.get("path") or "", str):
            raise self._unavailable(named, f"{path} is no table in the form of Paimon's REST catalog")
        return said

    def _databases(self, named: Named) -> str:
        """The path of all databases: the server says what stands before it."""
        query = f"?warehouse={quote_plus(self._warehouse)}" if self._warehouse else ""
        status, said = self._ask(named, "GET", f"/v1/config{query}")
        if status != http.client.OK:
            raise self._unavailable(named, _told(status, said))
        parts = [part for part in (said.get("overrides"), said.get("defaults")) if isinstance(part, dict)]
        prefix = next((str(part["prefix"]) for part in parts if part.get("prefix")), "")
        return f"/v1/{quote_plus(prefix)}/databases" if prefix else "/v1/databases"

    def _check(self, named: Named, status: int, said: _Found) -> None:
        """Raises Misuse for what the server refuses, Retryable for what it fails at."""
        if status >= http.client.INTERNAL_SERVER_ERROR:
            raise self._unavailable(named, _told(status, said))
        if status >= http.client.MULTIPLE_CHOICES:
            raise Misuse(
                f"{named.root}: {self.where} refuses the table {named}: {_told(status, said)}", kind="catalog.refused"
            )

    def _unavailable(self, named: Named, why: str) -> Retryable:
        return Retryable(
            f"{named.root}: {self.where} does not answer, or has failed: {why}", kind="catalog.unavailable"
        )

    def _ask(self, named: Named, method: str, path: str, body: _Found | None = None) -> tuple[int, _Found]:
        """(status, what the server says) of one request. Raises Retryable when there is no answer."""
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(str(self._parts.hostname), self._parts.port, timeout=CALL_TIMEOUT_S)
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        status = ""
        try:
            connection.request(method, f"{self._parts.path.rstrip('/')}{path}", data, headers)
            answer = connection.getresponse()
            status = f"HTTP {answer.status}, "
            text = answer.read(_MOST_BYTES)
            said = json.loads(text) if text.strip() else {}
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as failed:
            raise self._unavailable(named, f"{status}{type(failed).__name__}: {failed}") from failed
        finally:
            connection.close()
        return answer.status, said if isinstance(said, dict) else {}


def _entry(found: _Found) -> Entry:
    schema = found.get("schema")
    options = schema.get("options") if isinstance(schema, dict) else None
    kind = options.get("type", "table") if isinstance(options, dict) else "table"
    location = str(found.get("path") or "")
    if kind != "table":
        return Entry(False, f"another kind of table ({kind})", location)
    if not found.get("isExternal"):
        return Entry(False, "a table whose snapshots the catalog itself commits (it is not external)", location)
    return Entry(True, "a Paimon table", location)


def _is_moved(found: _Found, named: Named, moved_from: str) -> bool:
    """Whether it is an external table at the place where this one was."""
    entry = _entry(found)
    return entry.is_paimon and bool(other_than(named, entry)) and not other_than(named, entry, moved_from)


def _columns(schema: Any) -> Any:
    """Names, types and partition columns; None when the server describes them in another form."""
    try:
        fields = [(each["name"], json.dumps(each["type"], sort_keys=True)) for each in schema["fields"]]
        return fields, list(schema.get("partitionKeys") or ())
    except (AttributeError, KeyError, TypeError):
        return None


def _told(status: int, said: _Found) -> str:
    return f"HTTP {status} {str(said.get('message') or '')[:_MOST_LETTERS]}".strip()
