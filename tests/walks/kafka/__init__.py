"""Walks of accidents into Kafka topics on a real broker."""
