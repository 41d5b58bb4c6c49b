"""Why a kind of error has no advice that a test could follow."""

REASONS: dict[str, str] = {}

TO_DO = (
    "application.contended", "application.name", "application.two-sinks", "batch.not-streaming", "batch.wrong-id",
    "checkpoint.format", "checkpoint.missing", "checkpoint.no-offsets", "checkpoint.repeated", "checkpoint.step",
    "commit.already-in-the-map", "commit.bucket-count", "commit.contradiction", "commit.deletion-vector-left",
    "commit.index-changed", "commit.key-ranges", "commit.not-a-compaction", "commit.not-previously-added",
    "commit.strict-mode", "data.cast", "data.missing-column", "data.null", "data.rows", "data.too-long",
    "fault.action", "fault.step", "files.column", "journal.record-taken", "lock.driver", "lock.fenced", "lock.id",
    "lock.lease-ended", "lock.missing", "lock.password", "lock.refused", "lock.timeout", "lock.token",
    "lock.unavailable", "lock.url", "manifest.empty", "manifest.version", "option.file-column",
    "option.overwrite-partition", "option.position-columns", "option.publish", "option.route", "option.run-id",
    "option.unknown", "option.value", "overwrite.outside", "parquet.footer", "path.bad-bucket", "path.bad-partition",
    "path.unsafe-name", "path.unsupported-type", "path.unsupported-value", "positions.columns",
    "positions.partitions", "publish.expired-meanwhile", "publish.lock-lost", "publish.stuck", "read.cast",
    "read.columns", "read.no-file-system", "read.unsupported-cast", "read.unsupported-type", "route.null",
    "route.unknown", "row.bad-value", "row.corrupt", "row.unsupported-type", "schema.bad-key", "schema.bad-name",
    "schema.bad-option", "schema.bad-type", "schema.contended", "schema.evolution", "schema.missing",
    "schema.missing-column", "schema.no-such-column", "schema.nullability", "schema.taken", "schema.too-many-fields",
    "schema.unsupported-type", "snapshot.missing", "snapshot.replaced-undecidable", "snapshot.unstable",
    "spark.connect", "spark.job-failed", "spark.not-counted", "state.version", "stats.bad-batch", "stats.bad-mode",
    "store.bucket", "store.credentials", "store.extra-missing", "store.options", "table.created-differently",
    "table.exists", "table.missing", "table.path", "table.primary-key", "table.scheme", "table.unsupported-column",
    "table.unsupported-option", "tables.count", "tables.order", "testing.restarts", "where.bool", "where.column",
    "where.nested", "where.type", "where.value", "wire.corrupt", "worker.no-streamsink", "writer.fenced",
    "writer.fenced-expired",
)
