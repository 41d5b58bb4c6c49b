"""Sinks, one destination a folder: they know both the protocol and the format of a destination."""
