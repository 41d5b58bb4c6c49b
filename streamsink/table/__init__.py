"""A Paimon table on a store: the format plus storage. Nothing here knows checkpoints, records or Spark."""
