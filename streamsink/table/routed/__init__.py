"""Rows that go to many tables: the rules, and the rows that fit nowhere."""
