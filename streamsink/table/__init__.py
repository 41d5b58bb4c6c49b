"""A Paimon table: format plus storage. Knows nothing of checkpoints, pending records or Spark."""
