"""A table of a database as a destination: SQLite, PostgreSQL, MariaDB and MySQL."""
