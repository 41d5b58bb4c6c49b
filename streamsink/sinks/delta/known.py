"""Which applications have committed to a Delta table, as its log says without the files of their states. Driver only.

deltalake answers for an application by its name, and does not list them. So entries are read back to the last
checkpoint of the log, and the ``txn`` actions in that.
"""

import io
import json
from collections.abc import Sequence

import pyarrow.parquet as pq

from streamsink.errors import Corrupt
from streamsink.sinks.delta.lineage import number_of, replaces
from streamsink.sinks.delta.log import DeltaLog

_BEGINS = number_of("")


def applications_in(log: DeltaLog, path: str) -> set[str]:
    """Their names. Those that wrote before the table was replaced are left out as long as the log shows that.

    path: of the table, for messages. Raises Corrupt for a checkpoint that cannot be read.
    """
    version, found = int(log.newest().version()), set[str]()
    listed = log.checkpoints()
    said = log.last_checkpoint()
    # What says so is a hint, which may be lost, or be older than the entries that are left.
    read, until = ([said], said) if said in listed else (sorted(listed), max(listed, default=0))
    while version > until or version == until == 0:
        entry = log.entry(version)
        if entry is None:
            read = sorted(listed)
            break
        found |= entry.txns.keys()
        if replaces(entry):
            return _names(found)
        version -= 1
    for checkpoint in read:
        try:
            found |= _in_checkpoint(log, listed[checkpoint])
        except (ValueError, KeyError, TypeError) as broken:
            raise Corrupt(
                f"{path}: the checkpoint of its log at version {checkpoint} could not be read "
                f"({type(broken).__name__}). Nothing was written. Restore it from a backup, or write another one "
                "(create_checkpoint of deltalake), and start the query again",
                kind="delta.entry",
            ) from broken
    return _names(found)


def _names(ids: set[str]) -> set[str]:
    return {each.removeprefix(_BEGINS) for each in ids if each.startswith(_BEGINS)}


def _in_checkpoint(log: DeltaLog, names: Sequence[str]) -> set[str]:
    """The ids of applications in a checkpoint, whichever of its forms it has: one file, several parts, or with a name
    of its own, which may be JSON."""
    found = set[str]()
    for name in names:
        data = log.read(name)
        if name.endswith(".json"):
            actions = [json.loads(line) for line in filter(None, data.split(b"\n"))]
            found |= {str(action["txn"]["appId"]) for action in actions if action.get("txn")}
            continue
        file = pq.ParquetFile(io.BytesIO(data))
        if "txn" in file.schema_arrow.names:
            rows = file.read(columns=["txn.appId"], use_threads=False).column("txn").to_pylist()
            found |= {str(row["appId"]) for row in rows if row is not None and row["appId"] is not None}
    return found
