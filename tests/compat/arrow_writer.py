"""Writes Arrow tables through the sink's protocol, for types that Spark lacks: the six calls of a batch, without Spark."""

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.events import to_log
from streamsink.options import SinkOptions
from streamsink.protocol.committable import AppState, Batch
from streamsink.protocol.positions import SourceRange
from streamsink.protocol.two_phase import Destination, TwoPhaseCommit
from streamsink.sinks.paimon import PaimonCommitter
from streamsink.storage.local import local_file_io
from streamsink.storage.stores import table_path
from streamsink.storage.pending_log import PendingLog
from streamsink.format.arrow_types import from_arrow_schema
from streamsink.table.fit import fit
from streamsink.table.table import open_table
from streamsink.table.write import TableWriter, WriteSpec

_TOPIC = "arrow"


class ArrowSink:
    """One query that writes what it is given, batch by batch; a later one of the same name goes on where it ended."""

    def __init__(self, path, **options):
        self.root = table_path(str(path))
        self.options = SinkOptions.of(self.root, options)
        self._io = local_file_io(flush=False)
        self.table = open_table(self._io, self.root, for_writing=True)
        self._committer = PaimonCommitter(self.table, self.options)
        journal = PendingLog(self._io, self.root, self.options.application, self.options.journal_retain, False)
        to = Destination(self.root, self.table.table_id)
        self._protocol = TwoPhaseCommit(to, journal, self._committer, self.options, to_log)
        self._query = IdSource().new_id()
        self._protocol.restore(self._query, IdSource().new_id)
        self._done = 0
        self._position = self._recorded()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._protocol.close()

    def write(self, data: pa.Table, fields=None) -> None:
        """Publish one batch. ``fields``: what the source says of its columns; by default what Arrow tells."""
        end = self._position + 1
        source = SourceRange({_TOPIC: {"0": self._position}}, {_TOPIC: {"0": end}})
        batch = Batch(self._done, self._query, self._query, (source,))
        decision = self._protocol.admit(batch)
        checkpoint = self._protocol.begin(batch, decision)
        with self._io.together() as group:
            try:
                written = self._files(data, fields or from_arrow_schema(data.schema), checkpoint.staging, group)
                files, payload = self._committer.stage(checkpoint.staging, written, group)
            except BaseException:
                self._protocol.abort(checkpoint, group)
                raise
            self._protocol.pre_commit(checkpoint, files, payload, group)
        self._protocol.commit()
        self._done, self._position = self._done + 1, end

    def _files(self, data, fields, staging, group):
        options = self.options
        schema = fit(self.table, fields, options)
        spec = WriteSpec(
            staging, schema.to_json(), options.target_file_bytes, options.max_open_writers, options.writer_memory_bytes
        )
        writer = TableWriter(self._io, spec)
        try:
            for batch in data.to_batches():
                writer.write(batch)
            return writer.close(group)
        except BaseException:
            writer.abort()
            raise

    def _recorded(self) -> int:
        found = self.table.states.read(self.table.snapshots.latest()).by_application.get(self.options.application)
        return AppState.from_json(found).recorded[_TOPIC]["0"] if found else 0
