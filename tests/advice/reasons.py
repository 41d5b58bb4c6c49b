"""Why a kind of error has no advice that a test could follow."""

REASONS: dict[str, str] = {}

TO_DO = (
    "application.contended", "checkpoint.format", "checkpoint.repeated", "checkpoint.step",
    "commit.already-in-the-map", "commit.bucket-count", "commit.contradiction", "commit.deletion-vector-left",
    "commit.index-changed", "commit.key-ranges", "commit.not-a-compaction", "commit.not-previously-added",
    "data.missing-column", "data.rows", "journal.record-taken", "lock.fenced", "lock.lease-ended", "lock.refused",
    "manifest.empty", "manifest.version", "option.publish", "parquet.footer", "path.bad-bucket", "path.bad-partition",
    "path.unsafe-name", "positions.partitions", "publish.expired-meanwhile", "publish.lock-lost", "publish.stuck",
    "read.cast", "read.no-file-system", "read.unsupported-cast", "route.null", "route.unknown", "row.bad-value",
    "row.corrupt", "row.unsupported-type", "schema.contended", "schema.no-such-column", "schema.taken",
    "schema.too-many-fields", "snapshot.unstable", "state.version", "stats.bad-batch", "store.bucket",
    "store.credentials", "store.extra-missing", "store.options", "table.primary-key", "tables.count", "tables.order",
    "testing.restarts", "wire.corrupt", "writer.fenced", "writer.fenced-expired",
)
