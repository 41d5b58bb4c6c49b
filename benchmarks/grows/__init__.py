"""What a batch, a table and a long run cost as they grow: at n, 2n and 4n, with the slope and the limit."""
