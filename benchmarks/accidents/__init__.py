"""The accidents S14 to S18 and S20 to S22 of docs/ACCIDENTS.md,
which the same scripts make happen to streamsink and to its peers: `make accidents`."""
