"""Catalogs in which tables are known by name: what a table is called there, and how it is registered. Driver only."""
