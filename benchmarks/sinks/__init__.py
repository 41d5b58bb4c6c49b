"""What it costs to write exactly once into Kafka, databases, Iceberg and Delta tables, and into several of them."""
