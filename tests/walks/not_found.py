"""Defects that no walk finds, and why."""

# Parts that no walk in memory goes through.
ELSEWHERE = ("spark/", "storage/s3", "storage/hdfs", "storage/calls.py", "locks/")
