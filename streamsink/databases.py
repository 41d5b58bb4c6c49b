"""Tables of databases as destinations: ``streamsink.sink.to_sink(DatabaseSink(...))``; see docs/DATABASES.md."""

from streamsink.sinks.databases.sink import DatabaseSink

__all__ = ["DatabaseSink"]
