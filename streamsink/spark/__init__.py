"""The only part that imports pyspark."""
