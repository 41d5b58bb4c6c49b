"""Delta tables as a destination: ``streamsink.sink.to_sink(DeltaSink(...))``; see docs/DELTA.md.

It needs deltalake: pip install 'streamsink[delta]'.
"""

from streamsink.sinks.delta.sink import DeltaSink

__all__ = ["DeltaSink"]
