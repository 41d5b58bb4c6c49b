"""One query into several destinations of any kinds: one record names what all of them are given."""
