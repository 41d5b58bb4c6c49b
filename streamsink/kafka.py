"""Kafka topics as a destination, exactly once: ``streamsink.sink.to_sink(KafkaSink(...))``. See docs/KAFKA_SINK.md.

It needs confluent-kafka: pip install 'streamsink[kafka]'.
"""

from streamsink.sinks.kafka.sink import KafkaSink

__all__ = ["KafkaSink"]
