"""Commands for what errors tell to do with one file or folder: bring it back from a backup, or delete it."""

import click

from streamsink.cli.frame import At, command, confirmed, of_path, paths, proposed
from streamsink.cli.output import Answer
from streamsink.storage.stores import journal_within


@command("restore", "$ streamsink restore lake/shop.db/orders/schema/schema-0 --from backup/orders/schema/schema-0")
@of_path(journals=True)
@click.option("--from", "copy", required=True, shell_complete=paths, metavar="COPY", help="Path of the copy of it.")
@confirmed
def restore(at: At, copy: str, yes: bool) -> Answer:
    """Bring the file or folder PATH back from a backup, as an error tells to.

    PATH is the one that the error names. What the copy must be (a snapshot, a manifest, a record, a data file) is
    known by its place, and is looked at first. What is whole at PATH is never replaced; of a folder, missing and
    damaged files come back. COPY is in the same kind of store. JSON: {path, done, missing: [path], damaged: [path],
    whole}.
    """
    from streamsink.operations.restoring import restore as of_file

    from_place, from_root = journal_within(copy)
    source = At(from_root, at.store_options, place=from_place)
    done = of_file(at.store.open(), at.root, source.store.open(), source.root, dry_run=not yes)
    names = [f"    {path}" for path in (*done.missing, *done.damaged)]
    said = {
        "path": at.root,
        "done": yes,
        "missing": list(done.missing),
        "damaged": list(done.damaged),
        "whole": done.whole,
    }
    return proposed(Answer(said, [str(done), *names]), yes, would=bool(names))


@command("discard", "$ streamsink discard lake/shop.db/orders/snapshot/EARLIEST")
@of_path(journals=True)
@confirmed
def discard(at: At, yes: bool) -> Answer:
    """Delete the file or folder PATH that an error tells to delete, and nothing that is needed.

    PATH is the one that the error names: a damaged file, a hint, a journal, or the folder of a table that was dropped.
    It says what that is and what goes with it. What is whole and needed is refused, and so is a journal that a driver
    holds, or that knows which dead letters were replayed. JSON: {path, done, what, pending}; 'pending' is how many
    records go with it that are not published.
    """
    from streamsink.operations.discarding import discard as of_file

    done = of_file(at.store.open(), at.root, dry_run=not yes)
    said = {"path": at.root, "done": yes, "what": done.what, "pending": done.pending}
    return proposed(Answer(said, [str(done)]), yes, would=bool(done.paths))


@command("rewind", "$ streamsink rewind checkpoints/orders --from-batch 7")
@of_path("CHECKPOINT")
@click.option("--from-batch", type=click.IntRange(0), required=True, metavar="ID", help="The first one that goes.")
@confirmed
def rewind(at: At, from_batch: int, yes: bool) -> Answer:
    """Let Spark plan the batches from this one on anew, as a report of 'recover --give-up' tells to.

    CHECKPOINT is the query's option checkpointLocation. The query must not run. What offsets/ and commits/ say of
    these batches is deleted; the sink tells what of their rows is in the table already. JSON: {checkpoint, done,
    batches}.
    """
    from streamsink.operations.checkpoints import rewind as of_checkpoint

    done = of_checkpoint(at.store.open(), at.root, from_batch, dry_run=not yes)
    said = {"checkpoint": at.root, "done": yes, "batches": list(done.batches)}
    return proposed(Answer(said, [str(done)]), yes, would=bool(done.batches))
