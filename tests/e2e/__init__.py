"""Accidents that happen to real Spark queries: kills, pauses, lost checkpoints, rollbacks, strangers at the table."""
