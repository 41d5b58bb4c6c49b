"""Accidents that happen to real Spark queries:
kills, pauses, lost checkpoints, rollbacks, and other writers at the table."""
