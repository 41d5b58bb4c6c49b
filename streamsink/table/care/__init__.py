"""Care of a table: what expires, what is named for longer, and how files that nothing names are deleted."""
