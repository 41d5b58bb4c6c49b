"""What people call beside a query: to look at a table, or to mend what no query may decide by itself."""
