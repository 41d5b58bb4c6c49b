"""One run of a query: the order of its steps, from the restart to the last checkpoint that it publishes."""
