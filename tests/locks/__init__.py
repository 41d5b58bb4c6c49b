"""Locks, on the real servers."""
