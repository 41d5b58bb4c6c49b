"""The journal in files, in which a checkpoint becomes durable before it is visible. Driver only."""
