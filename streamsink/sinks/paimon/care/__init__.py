"""Care of a table beside the queries that write it: what their journals need, and care in the background."""
