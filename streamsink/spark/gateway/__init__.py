"""Everything that needs Spark's JVM gateway, or that reads what Spark itself has logged. Runs on the driver."""
