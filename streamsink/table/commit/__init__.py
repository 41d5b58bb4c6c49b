"""Committing to a table: one snapshot, whatever other writers do meanwhile."""
