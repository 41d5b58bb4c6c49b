"""What databases have for many rows: formats that are made of whole Arrow columns, and prepared transactions. And the
fixed statements of PostgreSQL."""
