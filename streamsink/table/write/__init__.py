"""Writing data files: rows are conformed to the table, split by partition and rolled into files.

Executor and driver.
"""
