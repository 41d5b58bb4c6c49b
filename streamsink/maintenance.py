"""The care of a table, by hand: names and arguments are those of Paimon's procedures. See docs/BRANCHES.md.

Each function takes the table's path first. With ``dry_run=True`` it changes nothing and returns what it would do.
"""

from streamsink.branching import branches, create_branch, delete_branch, fast_forward, rollback_to

__all__ = ["branches", "create_branch", "delete_branch", "fast_forward", "rollback_to"]
