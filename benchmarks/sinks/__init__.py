"""What it costs to write exactly once where a reader does not look at files: into Kafka, and into databases."""
