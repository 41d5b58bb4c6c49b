"""Accidents S14 to S18 and S20 to S22 of the README's table, made to happen to streamsink and to its peers by the same scripts: `make accidents`."""
