"""Sinks that write in transactions, in the form of Flink's ``TwoPhaseCommitSinkFunction``."""
