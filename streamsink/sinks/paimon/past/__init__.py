"""What snapshots and journals say of earlier records of an application. Driver only."""
