"""Paimon tables as destinations of the protocol: one, several, and one with a table for dead letters."""
