"""Small files beside a stream: over ten thousand batches without Spark, of queries of Spark, and other formats'."""
