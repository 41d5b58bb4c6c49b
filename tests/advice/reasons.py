"""Kinds of error whose message asks for nothing that a user could do, each with the reason. Tests follow all other
kinds.

A kind that tells the user to do something in the program, in its options, in the store or by a command does not belong
here.
"""

# Raised by functions between parts of streamsink; no call of a user reaches them with such arguments.
_INSIDE = "Only code inside of streamsink can cause it, by a wrong argument of an inner function; "
# Raised by commits of compactions, which give up by themselves then.
_COMPACTION = "A commit that compacts files is checked by it, and a compaction gives up by itself then, "

REASONS: dict[str, str] = {
    # -- nothing is to be done
    "writer.fenced-expired": (
        "A newer driver of the query has gone on, and this one has taken its late snapshot back: nothing is left to do."
    ),
    "lock.lease-ended": (
        "The creation that meets it takes the lock anew and tries again by itself, at last by the restart of the query."
    ),
    "lock.fenced": (
        "A lease that has ended writes nothing; the commit takes the lock anew, or the query's restart "
        "does: nothing is left to do."
    ),
    "publish.stuck": (
        "The store does not answer; the restart that follows by itself publishes what is pending, as "
        "after any retryable error."
    ),
    "kafka.not-published": (
        "Brokers do not answer; the restart that follows by itself publishes what is recorded, as after any retryable "
        "error."
    ),
    "kafka.not-delivered": (
        "Brokers do not answer; the batch comes again after the restart that follows by itself, as at-least-once says."
    ),
    "kafka.markers-unread": (
        "Brokers do not answer; the restart that follows by itself reads the markers again, as after any "
        "retryable error."
    ),
    "schema.taken": (
        "The caller reads the schema that another writer added and decides anew by itself; it is never "
        "raised to a user."
    ),
    "transaction.given-up": (
        "A task outlives its batch, and aborts its own transaction; the error reaches nobody who waits for the task."
    ),
    "attempt.given-up": (
        "A task outlives its batch, and deletes its own files; the error reaches nobody who waits for the task."
    ),
    "sink.no-tables": (
        "A command for Paimon tables was called for another destination; what can be done says the "
        "error of the query that led there."
    ),
    # -- what is wrong lies in a program that is not streamsink, and the message says which file
    "snapshot.unstable": (
        "Another program changes the snapshot folder against the format, faster than it can be read; "
        "only that one can stop."
    ),
    "read.cast": (
        "Another engine changed a column's type so that stored values do not fit it; it may be changed back "
        "there, not here."
    ),
    "read.unsupported-cast": (
        "Another engine changed a column's type in a way that Paimon's own readers alone "
        "convert; its compaction ends that."
    ),
    "table.primary-key": (
        "Another engine made a table that streamsink cannot write or read; there is no way to use this one."
    ),
    "checkpoint.format": (
        "Spark's checkpoint is of a format that this version does not know, which a release for that Spark changes."
    ),
    # -- the same is refused earlier, with a way on
    "data.missing-column": (
        "A column that is NOT NULL and missing is refused before the batch is written, as schema.missing-column."
    ),
    # -- guards of streamsink against itself
    "tables.order": _INSIDE
    + "a record that is published out of order is stopped by it, and the restart plans from the journal.",
    "checkpoint.repeated": _INSIDE + "a batch id that comes twice is refused earlier, as batch.twice.",
    "option.publish": (
        "Only a sink of another author that cannot publish beside the batches raises it; streamsink's own sinks can."
    ),
    "manifest.empty": _INSIDE + "a commit writes no manifest without entries.",
    "parquet.footer": _INSIDE + "it reads only the footer of a file that streamsink has just written itself.",
    "path.bad-bucket": _INSIDE + "tables with buckets are refused when they are opened.",
    "path.bad-partition": _INSIDE + "a partition has as many values as its table has partition columns.",
    "row.bad-value": _INSIDE
    + "values of rows are brought to the column's type before, with data.cast and data.too-long.",
    "row.unsupported-type": _INSIDE + "a table with such a column is refused when it is opened or created.",
    "row.corrupt": _INSIDE
    + "bytes of a row stand in manifests, of which each is checked as a whole (manifest.corrupt).",
    "wire.corrupt": _INSIDE + "a data file's record travels between a task and its driver of the same version.",
    "schema.no-such-column": _INSIDE
    + "columns that a user names are checked by the call that takes them (read.columns, where.column).",
    "schema.too-many-fields": (
        "A table of two thousand million columns would be needed for it; there is nothing to advise."
    ),
    "stats.bad-batch": _INSIDE + "batches are brought to the table's columns before they are counted.",
    "commit.already-in-the-map": _COMPACTION
    + "and a file that is to be added twice is stopped by it, with nothing published.",
    "commit.bucket-count": _COMPACTION + "and tables with buckets are refused when they are opened.",
    "commit.contradiction": _COMPACTION + "and a commit that deletes a file twice is a wrong argument.",
    "commit.deletion-vector-left": _COMPACTION
    + "and tables that write deletion vectors are refused when they are opened.",
    "commit.index-changed": _COMPACTION + "and tables that write index files are refused when they are opened.",
    "commit.key-ranges": _COMPACTION + "and tables with keys are refused when they are opened.",
    "compact.rows": (
        "Only a defect of what reads or writes Parquet files can cause it, since each file's rows are counted before; "
        "nothing was changed."
    ),
    # -- of the tools for tests
    "testing.restarts": (
        "A driver of tests that restarts for ever is stopped by it; it is a failure of the test that runs it."
    ),
}
