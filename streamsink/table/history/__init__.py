"""What the retained snapshots of a table tell: what descends from what, what exists, and what may be deleted."""
