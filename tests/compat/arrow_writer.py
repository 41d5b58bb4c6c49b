"""Writes Arrow tables through the sink's protocol, for types that Spark lacks: a micro-batch without Spark."""

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.events import to_log
from streamsink.format.arrow_types import from_arrow_schema
from streamsink.options import SinkOptions
from streamsink.protocol.committable import AppState, Batch
from streamsink.protocol.positions import SourceRange
from streamsink.protocol.run.batch_rows import BatchRows
from streamsink.protocol.run.micro_batch import QueryRun
from streamsink.sinks.paimon.opening import open_one
from streamsink.storage.file_io import local_file_io
from streamsink.storage.stores import table_path

_TOPIC = "arrow"


class ArrowSink:
    """One query that writes what it is given, batch by batch. A later one of the same name goes on where it ended."""

    def __init__(self, path, **options):
        self.root = table_path(str(path))
        self.options = SinkOptions.of(self.root, {"create": False, **options})
        self.io = local_file_io(flush=False)
        self.to = open_one(self.io, self.root, self.options, 0, list)
        self.table = self.to.table
        self._query = IdSource().new_id()
        self._run = QueryRun.start(self.to, self._query, self.options, to_log)
        self._done = 0
        self._position = self._recorded()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._run.close()

    def write(self, data: pa.Table, fields=None) -> None:
        """Publish one batch. ``fields``: what the source says of its columns; by default what Arrow says."""
        end = self._position + 1
        source = SourceRange({_TOPIC: {"0": self._position}}, {_TOPIC: {"0": end}})
        batch = Batch(self._done, self._query, self._query, (source,))
        self._run.micro_batch(batch, ArrowRows(self, data, fields or from_arrow_schema(data.schema)))
        self._done, self._position = self._done + 1, end

    def _recorded(self) -> int:
        found = self.table.states.read(self.table.snapshots.latest()).by_application.get(self.options.application)
        return AppState.from_json(found).recorded.of_topic(_TOPIC)[0].next["0"] if found else 0


class ArrowRows(BatchRows):
    """The rows of one Arrow table. fields: what the source says of its columns."""

    def __init__(self, sink: ArrowSink, data: pa.Table, fields):
        self._sink, self._data, self._fields = sink, data, fields

    def count(self):
        return self._data.num_rows

    def write(self, checkpoint, group):
        writer = self._sink.to.writing(checkpoint, self._fields, ()).open(self._sink.io)
        try:
            for batch in self._data.to_batches():
                writer.write(batch)
            return writer.close(group)
        except BaseException:
            writer.abort()
            raise
