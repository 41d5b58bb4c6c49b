"""Reading a table: which files and rows a condition may be true of, and files of earlier schemas."""
