"""Sinks: one destination a file. Only these know both the protocol and the destination."""
