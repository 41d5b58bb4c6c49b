"""The tables against other readers and writers: pypaimon, Paimon's Java API, Spark's own Parquet reader."""
