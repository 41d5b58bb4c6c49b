"""Reading a table: which files and rows can satisfy a condition, and how files of earlier schemas are read."""
