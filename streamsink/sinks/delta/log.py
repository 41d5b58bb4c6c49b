"""The log of a Delta table: what deltalake (delta-rs) says of it, its entries as they are, and commits. Driver only.

Entries are read as files, because deltalake hands out neither who has committed an entry nor what it removes. deltalake
alone writes them.
"""

import hashlib
import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from streamsink import shell
from streamsink.errors import Corrupt, Misuse, Retryable
from streamsink.events import log as say
from streamsink.sinks.delta.columns import has_times_without_zone
from streamsink.storage.file_io import FileIO

# The key in commitInfo under which a commit of ours says which record it is.
OURS = "streamsink"
_LOG, _LAST = "_delta_log", "_last_checkpoint"
# After so many versions there is a checkpoint where the table does not say a number, as in deltalake.
_CHECKPOINT_EVERY = 100
# As ``store_options`` names them, and as deltalake does.
_S3 = {
    "s3.endpoint": "AWS_ENDPOINT_URL",
    "s3.region": "AWS_REGION",
    "s3.access-key": "AWS_ACCESS_KEY_ID",
    "s3.secret-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session-token": "AWS_SESSION_TOKEN",
}
_PATH_STYLE = "s3.path-style-access"
_INTERVAL, _CLEANS = "delta.checkpointInterval", "delta.enableExpiredLogCleanup"
# The feature of a table that has times without a zone.
_NTZ = "timestampNtz"


@dataclass(frozen=True)
class Entry:
    """One version of the log.

    digest: of its bytes, by which one entry is told from another one of the same number. operation, parameters,
    timestamp_ms: what commitInfo says; it need not. txns: versions by application. table_id: where the entry has
    metadata, else ''. adds: paths of files, percent-encoded as they stand there. record_id: of the record that it
    publishes, where it is ours.
    """

    version: int
    digest: str
    operation: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    timestamp_ms: int = 0
    txns: Mapping[str, int] = field(default_factory=dict)
    table_id: str = ""
    adds: frozenset[str] = frozenset()
    record_id: str = ""


def read_entry(version: int, data: bytes) -> Entry:
    """The entry with these bytes: a JSON object a line. Raises ValueError, KeyError, TypeError or AttributeError."""
    said: dict[str, Any] = {}
    txns, adds, table_id = dict[str, int](), set[str](), ""
    for line in filter(None, data.decode().split("\n")):
        action = json.loads(line)
        info = action.get("commitInfo")
        said = info if isinstance(info, dict) else said
        if action.get("txn"):
            txns[action["txn"]["appId"]] = int(action["txn"]["version"])
        if action.get("add"):
            adds.add(action["add"]["path"])
        if action.get("metaData"):
            table_id = action["metaData"]["id"]
    ours = _said(said, OURS, {})
    return Entry(
        version,
        hashlib.sha256(data).hexdigest()[:32],
        _said(said, "operation", ""),
        _said(said, "operationParameters", {}),
        _said(said, "timestamp", 0),
        txns,
        table_id,
        frozenset(adds),
        _said(ours, "record", ""),
    )


def _said(info: Mapping[str, Any], key: str, nothing: Any) -> Any:
    """What commitInfo has under a key; ``nothing`` unless it is of that type: writers may put there what they like."""
    found = info.get(key)
    return found if isinstance(found, type(nothing)) else nothing


def storage_options(path: str, given: Mapping[str, str]) -> dict[str, str]:
    """``storage_options`` of deltalake for a table. given: ``store_options``."""
    if not path.startswith(("s3://", "s3a://")):
        return dict(given)
    found = {name: given[key] for key, name in _S3.items() if key in given}
    if _PATH_STYLE in given:
        found["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = "false" if given[_PATH_STYLE].lower() == "true" else "true"
    if given.get("s3.endpoint", "").startswith("http://"):
        found["AWS_ALLOW_HTTP"] = "true"
    # A commit is one conditional request, so two writers cannot replace each other's.
    return {"aws_conditional_put": "etag", **found}


def deltalake() -> ModuleType:
    """The package. Raises Misuse when it is not installed."""
    try:
        return importlib.import_module("deltalake")
    except ImportError as missing:
        raise Misuse(
            "a sink for Delta tables needs the Python package deltalake on the driver, which is not there: "
            "pip install 'streamsink[delta]'. Nothing was written",
            kind="delta.extra-missing",
        ) from missing


@contextmanager
def asked(path: str, what: str) -> Iterator[None]:
    """Within it deltalake is asked. Its errors become Retryable. what: could not be done, and what that means."""
    errors = importlib.import_module("deltalake.exceptions")
    try:
        yield
    except (OSError, errors.DeltaError) as failed:
        text = str(failed).strip().partition("\n")[0]
        raise Retryable(
            f"{path}: {what}: {type(failed).__name__}: {text}. Look whether the table's log can be read and written; "
            "the query goes on when it is started again",
            kind="delta.unavailable",
        ) from failed


class DeltaLog:
    """The log of the table at one place. One thread uses it at a time.

    path: of the table, for messages. uri: the place as deltalake takes it; file_io reads it by the same name.
    options: ``storage_options`` of deltalake.
    """

    def __init__(self, file_io: FileIO, path: str, uri: str, options: Mapping[str, str]):
        self._io, self._path, self._uri, self._options = file_io, path, uri, dict(options)
        self._module = deltalake()
        self._table: Any = None
        self._tip: Entry | None = None
        self._flushed = self._tidied = -1
        self.times_replaced = 0
        """How often the log turned out to be another one than what was seen of it before."""

    def again(self) -> "DeltaLog":
        """Another one of the same log, for another thread."""
        return DeltaLog(self._io, self._path, self._uri, self._options)

    # -- looking ---------------------------------------------------------------------------------------------------

    def is_there(self) -> bool:
        """Whether there is a table."""
        with asked(self._path, "the table could not be looked for. Nothing was written"):
            return bool(self._module.DeltaTable.is_deltatable(self._uri, self._options))

    @property
    def seen(self) -> Any:
        """The table as ``newest`` has found it last."""
        return self.newest() if self._table is None else self._table

    def newest(self) -> Any:
        """The newest version of the table, as deltalake's ``DeltaTable``. Raises Misuse without a table.

        deltalake does not notice that a log was replaced by another one, so the last entry is compared.
        """
        errors = importlib.import_module("deltalake.exceptions")
        if self._tip is not None and self.entry(self._tip.version) != self._tip:
            self.forget()
        with asked(self._path, "its log could not be read. Nothing was written"):
            try:
                if self._table is None:
                    self._table = self._module.DeltaTable(self._uri, storage_options=self._options)
                else:
                    self._table.update_incremental()
            except errors.TableNotFoundError as none:
                raise Misuse(
                    f"{self._path}: there is no Delta table. Nothing was written. Create it, or leave create=False out",
                    kind="table.missing",
                ) from none
            except errors.DeltaError as failed:
                self._check_checkpoint(str(failed))
                self._check_known(str(failed))
                raise
        version = int(self._table.version())
        if self._tip is None or self._tip.version != version:
            self._tip = self.entry(version)
        return self._table

    def _check_checkpoint(self, said: str) -> None:
        """Raises Corrupt when deltalake says that a checkpoint is damaged or gone: that does not pass by itself."""
        if "checkpoint" in said.lower() or "parquet" in said.lower():
            raise Corrupt(
                f"{self._path}: its log could not be read: a checkpoint is damaged or gone, as after a power failure "
                f"({said.strip().partition(chr(10))[0]}). Nothing was written. Move {self._uri}/{_LOG}/{_LAST} and the "
                "newest checkpoint (*.checkpoint*.parquet) out of that folder, and start the query again; where the "
                "versions before that checkpoint were cleaned up already, restore it from a backup",
                kind="delta.entry",
            )

    def _check_known(self, said: str) -> None:
        """Raises Misuse when deltalake says that it does not know what the table asks of its readers."""
        if "Unsupported" in said or "catalog-managed" in said:
            raise Misuse(
                f"{self._path}: deltalake cannot read the table ({said.strip().partition(chr(10))[0]}), which has a "
                "feature that it does not know. Nothing was written. Take it off the table, write into another table, "
                "or install a deltalake that knows it, and start the query again",
                kind="delta.unsupported",
            )

    def at(self, version: int) -> Any:
        """The table at an earlier version; None where its log does not reach back so far."""
        errors = importlib.import_module("deltalake.exceptions")
        try:
            return self._module.DeltaTable(self._uri, version=version, storage_options=self._options)
        except errors.DeltaError:
            return None
        except OSError as failed:
            if self._io.exists(self.name(version)):
                raise
            say.info("%s: version %d cannot be read any more: %s", self._path, version, failed)
            return None

    def name(self, version: int) -> str:
        """The path of an entry."""
        return f"{self._uri}/{_LOG}/{version:020}.json"

    def entry(self, version: int) -> Entry | None:
        """One entry; None where there is none, or none any more. Raises Corrupt for one that is damaged."""
        try:
            return read_entry(version, self._io.read(self.name(version)))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as broken:
            raise Corrupt(
                f"{self.name(version)} is no entry of a Delta log ({type(broken).__name__}). Nothing was written. "
                f"Restore it {shell.restore(self.name(version))}, and start the query again",
                kind="delta.entry",
            ) from broken

    def is_as_seen(self, version: int) -> bool:
        """Whether the newest entry that was seen is of this version, and still there."""
        return self._tip is not None and self._tip.version == version and self.entry(version) == self._tip

    def forget(self) -> None:
        """Load the table anew when it is asked for next, because what was seen of its log is there no more."""
        self._table = self._tip = None
        self._flushed = self._tidied = -1
        self.times_replaced += 1

    # -- writing ---------------------------------------------------------------------------------------------------

    def create(self, schema: Any, partition_by: Sequence[str], configuration: Mapping[str, str]) -> None:
        """Create the table, unless another driver is faster. schema: deltalake's."""
        errors = importlib.import_module("deltalake.exceptions")
        with asked(self._path, "the table could not be created. Nothing was written"):
            try:
                self._module.DeltaTable.create(
                    self._uri,
                    schema,
                    mode="error",
                    partition_by=list(partition_by),
                    configuration=dict(configuration),
                    storage_options=self._options,
                )
            except (OSError, errors.DeltaError):
                if not self._module.DeltaTable.is_deltatable(self._uri, self._options):
                    raise
        self.flush(0)

    def add_columns(self, fields: Sequence[Any]) -> None:
        """Add columns that are not there yet. fields: deltalake's."""
        with asked(self._path, f"columns could not be added ({', '.join(each.name for each in fields)})"):
            added, there = [json.loads(each.to_json())["type"] for each in fields], self.seen.protocol().writer_features
            if any(map(has_times_without_zone, added)) and _NTZ not in (there or ()):
                # deltalake 1.6.6 does so by itself, but not for a type in a map: then nobody can read the table any
                # more.
                feature = self._module.TableFeatures.TimestampWithoutTimezone
                self.seen.alter.add_feature(feature, allow_protocol_versions_increase=True)
            self.seen.alter.add_columns(list(fields))

    def commit(self, adds: Sequence[Mapping[str, Any]], txns: Mapping[str, int], said: Mapping[str, Any]) -> None:
        """Commit these files as the version behind the one that ``newest`` has found, or not at all.

        adds: the fields of deltalake's AddAction, each file durable. said: what commitInfo says of the record. Whatever
        is raised, the commit may be there all the same: ``entry`` tells.
        """
        of = importlib.import_module("deltalake.transaction")
        table, module = self.seen, self._module
        table.create_write_transaction(
            [of.AddAction(**each) for each in adds],
            "append",
            table.schema(),
            table.metadata().partition_columns,
            # Without retries it is this version or none: with them, deltalake commits behind what we have not seen.
            commit_properties=module.CommitProperties(
                # It only adds: so it stands in the way of nobody who deletes or compacts meanwhile.
                custom_metadata={OURS: dict(said), "isBlindAppend": True},
                max_commit_retries=0,
                app_transactions=[module.Transaction(name, number) for name, number in txns.items()],
            ),
            # What goes wrong behind the commit would look as if the commit had.
            post_commithook_properties=module.PostCommitHookProperties(
                create_checkpoint=False, cleanup_expired_logs=False
            ),
        )

    def flush(self, version: int, since: int | None = None) -> None:
        """Make the entries up to a version durable: deltalake does not, on a local disk.

        since: the first one that may not be durable yet; those that this log has flushed before are left out.
        """
        if not self._io.takes_files_of_others:
            return
        first = max(self._flushed + 1, version if since is None else since)
        for number in range(first, version + 1):
            try:
                self._io.flush_file(self.name(number))
            except FileNotFoundError:
                continue  # cleaned up meanwhile
        self._io.sync_dir(f"{self._uri}/{_LOG}")
        self._flushed = max(self._flushed, version)

    def last_checkpoint(self) -> int:
        """The version of the newest checkpoint; 0 where nothing says one."""
        try:
            return int(json.loads(self._io.read(f"{self._uri}/{_LOG}/{_LAST}"))["version"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    def checkpoints(self) -> dict[int, list[str]]:
        """By version, the names of the files of all checkpoints, for ``read``. It costs one listing."""
        found: dict[int, list[str]] = {}
        for name in sorted(self._io.names(f"{self._uri}/{_LOG}")):
            version, _, kind = name.partition(".checkpoint.")
            if kind and version.isdecimal():
                found.setdefault(int(version), []).append(name)
        return found

    def read(self, name: str) -> bytes:
        """A file of the log."""
        return self._io.read(f"{self._uri}/{_LOG}/{name}")

    def tidy_up(self, version: int) -> None:
        """Write a checkpoint and clean the log, where the table wants one since the version before. Raises nothing.

        version: that was committed. Another one does it later when this fails.
        """
        before, self._tidied = self._tidied if self._tidied >= 0 else self.last_checkpoint(), version
        errors = importlib.import_module("deltalake.exceptions")
        try:
            wants = self.seen.metadata().configuration
            every = wants.get(_INTERVAL, "")
            number = max(1, int(every) if every.isdecimal() else _CHECKPOINT_EVERY)
            if version // number == before // number:
                return
            self.newest().create_checkpoint()
            if self._io.takes_files_of_others:
                for name in (f"{self._table.version():020}.checkpoint.parquet", _LAST):
                    self._io.flush_file(f"{self._uri}/{_LOG}/{name}")
                self._io.sync_dir(f"{self._uri}/{_LOG}")
            if wants.get(_CLEANS, "true").lower() == "true":
                self._table.cleanup_metadata()
        except (OSError, errors.DeltaError, Corrupt, Misuse, Retryable) as failed:
            say.warning("%s: no checkpoint of the log at version %d: %s", self._path, version, failed)
