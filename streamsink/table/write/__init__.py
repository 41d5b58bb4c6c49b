"""Writing data files: rows conformed to the table, split by partition, rolled into files. Executor and driver."""
