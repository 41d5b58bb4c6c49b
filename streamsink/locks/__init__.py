"""Mutual exclusion of the writers of one table, where its store cannot create a name only when it is absent. Driver only."""
