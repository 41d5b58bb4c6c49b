"""The command line ``streamsink``."""
