"""Everything that needs Spark's JVM gateway or reads what Spark itself has logged. DRIVER."""
