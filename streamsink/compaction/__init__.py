"""Small files of an append table become few, beside its writers or by hand; docs/COMPACTION.md."""
