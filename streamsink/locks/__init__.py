"""Locks between the writers of one table, for stores that cannot create a name only when it is absent. Driver only."""
