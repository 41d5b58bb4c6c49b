"""Apache Iceberg tables as a destination, exactly once: ``streamsink.sink.to_sink(IcebergSink(...))``.

See docs/ICEBERG.md. It needs pyiceberg on the driver: pip install 'streamsink[iceberg]'.
"""

from streamsink.sinks.iceberg.sink import IcebergSink

__all__ = ["IcebergSink"]
