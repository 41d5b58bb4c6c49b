"""Iceberg's metadata beside a table's own, made from its snapshots."""
