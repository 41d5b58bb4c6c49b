"""Going back to a snapshot of the past on purpose, and branches. Each kind has a plan, which changes nothing."""
