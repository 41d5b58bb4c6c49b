"""The file formats of a Paimon table: schemas, snapshots, manifests, stats, types and values. Bytes only, no I/O."""
