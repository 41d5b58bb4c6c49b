"""Apache Iceberg tables as a destination: data files by our writers, committed by pyiceberg."""
