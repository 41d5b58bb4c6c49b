"""When things happen: the two-phase protocol of a checkpoint, without any table or Spark."""
