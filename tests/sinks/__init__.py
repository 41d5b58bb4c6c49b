"""Sinks of other authors, and what any sink must keep."""
