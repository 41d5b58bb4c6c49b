"""The care of a table: what its owner does to it beside the streams. Each kind has a plan, which changes nothing."""
