"""What the retained snapshots of a table say: what descends from what, what is there, and what may be deleted."""
