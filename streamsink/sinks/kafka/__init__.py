"""Kafka topics as a destination. docs/KAFKA_SINK.md says what is promised."""
