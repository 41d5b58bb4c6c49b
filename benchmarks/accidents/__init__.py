"""Accidents S14 to S18 and S20 to S22 of docs/ACCIDENTS.md, made to happen to streamsink and to its peers by the same
scripts: `make accidents`."""
