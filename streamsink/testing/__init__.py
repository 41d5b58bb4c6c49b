"""Failure injection for this library's tests and its users': named faults, crashing I/O, a driver without Spark, an oracle."""
