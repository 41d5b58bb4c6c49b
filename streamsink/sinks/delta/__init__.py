"""Delta tables as a destination, committed by deltalake (delta-rs)."""
