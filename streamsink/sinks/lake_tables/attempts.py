"""What attempts to write a checkpoint leave at the places of their files, and what a record names. Driver only."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from streamsink.clock import IdSource
from streamsink.errors import Corrupt, StreamsinkError
from streamsink.events import log
from streamsink.protocol import ways
from streamsink.protocol.committable import Committable, StagedFile
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.journal import Group
from streamsink.sinks.files import check_handed_over
from streamsink.sinks.lake_tables.parquet_file import LakeFile
from streamsink.sinks.lake_tables.writing import ANNOUNCED
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup

# Key in the payload of a record: path, from the folder with the journals, and SHA-256 of the file that describes its
# data files, and has what the format adds.
DESCRIBED = "described"
_FOLDER = "streamsink-"
_NUMBER = re.compile(r"[0-9]+-([0-9]+)")


@dataclass(frozen=True)
class Places:
    """Where the data files of one table are.

    table: for messages. journal_io: the store of the journal. journal: the folder that has the journals. io: the store
    of the table. data: absolute path or URI of the folder with all data files, which has a folder for each attempt. An
    attempt's id is never given twice.
    """

    table: str
    journal_io: FileIO
    journal: str
    io: FileIO
    data: str

    def folder(self, attempt: str) -> str:
        """The folder with the data files of an attempt, which is also the id of its record."""
        return f"{self.data}/{self.folder_name(attempt)}"

    @staticmethod
    def folder_name(attempt: str) -> str:
        """Its name below ``data``."""
        return f"{_FOLDER}{attempt}"

    def path(self, record: Committable, name: str, data: str = "") -> str:
        """Where a data file of the record is. name: ``StagedFile.final``. data: as of ``in_place``."""
        return f"{data or self.data}/{self.folder_name(record.state.record_id)}/{name}"

    # -- what a record names ---------------------------------------------------------------------------------------

    def stage(
        self, checkpoint: Checkpoint, written: Sequence[LakeFile], group: Group, **more: Any
    ) -> tuple[tuple[StagedFile, ...], Mapping[str, Any]]:
        """What ``OpenSink.stage`` returns: the files, and a payload that says where they are described.

        The description, ``manifest-<number>-<id>`` in the staging folder, has the values and bounds of rows, which a
        record may not have. more: what the format adds to it, as JSON. Raises Corrupt when files of tasks are not
        whole.
        """
        staging, together = checkpoint.staging, cast(FlushGroup, group)
        by_tasks = {file.name: file.size for file in written if file.handed_over}
        check_handed_over(self.io, self.table, self.folder(checkpoint.attempt), by_tasks)
        name = f"manifest-{checkpoint.sequence}-{IdSource().new_id()}"
        data = json.dumps({**more, "files": [file.to_json() for file in written]}).encode()
        together.write(f"{staging}/{name}", data)
        together.sync_dir(staging)
        folder = staging.removeprefix(f"{self.journal}/")
        described = {"path": f"{folder}/{name}", "sha256": hashlib.sha256(data).hexdigest()}
        files = (StagedFile(f"{folder}/{each.name}", each.name, each.size, each.rows) for each in written)
        return tuple(files), {DESCRIBED: described}

    def described(self, record: Committable) -> tuple[list[LakeFile], Mapping[str, Any]]:
        """The files that the record names, and what the format has added. Raises Corrupt."""
        described = record.payload[DESCRIBED]
        path = f"{self.journal}/{described['path']}"
        try:
            data = self.journal_io.read(path)
            if hashlib.sha256(data).hexdigest() != described["sha256"]:
                raise ValueError(path)
            value = json.loads(data)
            found = {str(each["name"]): LakeFile.from_json(each) for each in value.pop("files")}
            return [found[file.final] for file in record.files], value
        except (FileNotFoundError, KeyError, TypeError, ValueError) as broken:
            raise Corrupt(
                f"{self.table}: record {record.state.sequence} of application '{record.application}' has its files "
                f"described in {path}, which is gone or damaged. Nothing was published. Restore that file. "
                "It is deleted when the record is published, unless on_rollback='republish' is set by then: if the "
                "table was rolled back since, put it back as it was, and leave that option out. "
                f"{ways.give_up(self.table, record.application, is_table=False)}",
                kind="pending.files-gone",
            ) from broken

    def in_place(self, record: Committable, data: str = "") -> tuple[int, int, tuple[str, ...]]:
        """As ``Committer.files_in_place``; files have one name from the beginning. It costs one listing.

        data: what ``Places.data`` was when they were written, where it has another value by now.
        """
        folder = f"{data or self.data}/{self.folder_name(record.state.record_id)}"
        found = {entry.name: entry.size for entry in self.io.entries(folder)} if record.files else {}
        gone = tuple(f"{folder}/{file.final}" for file in record.files if found.get(file.final) != file.size)
        return len(record.files) - len(gone), 0, gone

    # -- what attempts leave ---------------------------------------------------------------------------------------

    def sweep(self, staging: str, record: Committable | None, may_be_named: Callable[[int, str], bool]) -> bool:
        """Delete what the attempts have left that a staging folder announces; see ``Abandoned`` of the journal.

        record: of the folder's number, whose own files stay. may_be_named: whether the table may name files of an
        attempt, by its number and id, of which there is no record: these stay as well. Returns whether all is settled;
        else the error is logged, and the folder must stay for a later try. Idempotent.
        """
        match = _NUMBER.fullmatch(staging.rpartition("/")[2])
        names = self.journal_io.names(staging) if match else []
        for attempt in [name.removeprefix(ANNOUNCED) for name in names if name.startswith(ANNOUNCED)]:
            if record is not None and record.state.record_id == attempt:
                continue
            number = int(match[1]) if match else 0
            try:
                if record is None and may_be_named(number, attempt):
                    log.warning(
                        "%s: %s may have files of record %d, which is not in the journal. They stay",
                        self.table,
                        self.folder(attempt),
                        number,
                    )
                    continue
                self.io.delete_unfinished(self.folder(attempt))
                self.io.delete_tree(self.folder(attempt))
            except (OSError, StreamsinkError) as failed:
                log.warning(
                    "%s: what an attempt has left in %s could not be deleted; a later start tries again: %s",
                    self.table,
                    self.folder(attempt),
                    failed,
                )
                return False
        return True
