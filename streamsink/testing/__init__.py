"""Tools for testing this library and sinks of other authors.

Named faults, I/O that crashes, a driver without Spark, and suites that a sink and a journal must pass.
"""
