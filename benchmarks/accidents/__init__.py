"""Accidents S14 to S18 of the README's table, made to happen to streamsink and to its peers by the same scripts: `make accidents`."""
