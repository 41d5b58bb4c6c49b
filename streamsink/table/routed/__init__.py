"""Writing one stream of rows to many tables: the rules, and the dead letters, which are rows that fit nowhere."""
