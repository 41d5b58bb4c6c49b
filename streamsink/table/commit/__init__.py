"""Committing to a table: each commit becomes one snapshot, whatever other writers do at the same time."""
