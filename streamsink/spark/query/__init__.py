"""A streaming query's own side: its batch function, and what keeps it running. DRIVER."""
