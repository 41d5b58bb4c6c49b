"""Ways on: advice in error messages on how to go on, which several errors give in one wording each.

Tests do what it says, as it says it.
"""

import hashlib
import shlex

from streamsink.shell import in_a_shell

# How a command is given a sink that writes no Paimon tables.
OF_SINK = ("--sink", "MODULE:NAME")
# Said where batches never came to the sink.
CALLED_FOR_EVERY_BATCH = (
    "If your batch function does not call the sink for a batch without rows, change that first: call it for every "
    "batch, also for one without rows"
)


def second_part(batch: str) -> str:
    """What to do with a batch whose rows come to one sink in parts. batch: as "batch 3".

    The last sentence ends without a full stop.
    """
    return (
        "Use a sink of its own name (application='...') for the second part, in this and in all later batches. To give "
        "one sink all rows of the batch in one call instead (df1.unionByName(df2)), let the sink of its own name write "
        f"its part of {batch} first: a start that repeats that batch skips what was recorded of it, and begins with "
        "one call at the batch after it"
    )


def give_up(path: str, application: str, is_table: bool = True) -> str:
    """What to do with records that can never be published unless something is mended. Ends without a full stop.

    is_table: else the command is given the sink.
    """
    return f"If that cannot be mended, {give_up_at_once(path, application, is_table)}"


def give_up_at_once(path: str, application: str, is_table: bool) -> str:
    """What to do with records that can never be published, where nothing can be mended. As ``give_up``."""
    of = repr(path) if is_table else "sink"
    said = "" if is_table else ", with the sink that to_sink was given"
    shell = in_a_shell("recover", path, "-a", application, *(() if is_table else OF_SINK), "--give-up", "--yes")
    return (
        f"stop the query and call streamsink.give_up({of}, application={application!r}){said} {shell}: it forgets what "
        "can never be published, with what was recorded after it, and says from where the source is read again"
    )


def delete_damaged(path: str) -> str:
    """How a damaged file of a journal that holds no data is deleted. path: of the file, in the journal's own folder.

    Ends without a full stop.
    """
    parts = path.rsplit("/", 3)
    shell = f" {in_a_shell('unlock', parts[0], '-a', parts[2], '--damaged', '--yes')}" if len(parts) == 4 else ""
    return f"make sure that no query writes here, delete the file and start again{shell}"


def answer_in_a_shell(path: str, application: str, option: str) -> str:
    """How a word of this option is looked up and given without the query. It ends without a full stop."""
    return (
        f"What a word stands for says 'streamsink accept {shlex.quote(path)} WORD', and 'streamsink recover "
        f"{shlex.quote(path)} -a {application} -o {option}=WORD --yes' gives the answer in place of the query's start"
    )


def adopting(batch: int | None) -> str:
    """What the option ``adopt_from_batch`` means where nobody knows any more what was written before; '' without it.

    batch: the option's value. It begins with a space.
    """
    return (
        f" If adopt_from_batch={batch} names the batch that comes, nothing is read of what its sources hold before it: "
        "where rows of that are missing here, as they are when a topic was created again meanwhile, leave that option "
        "out and start a new checkpoint behind what is here."
        if batch
        else ""
    )


def go_on_under(name: str) -> str:
    """How to go on under the name that a query had before. name: as the table knows it.

    The sentence ends without a full stop.
    """
    plain, _, of_tables = name.partition("@")
    through = " and write through streamsink.to_tables, or with dead_letters, as before" if of_tables else ""
    return f"Set application='{plain}'{through} to go on"


def word(question: str) -> str:
    """The word by which an option answers exactly this question. question: everything that tells it from all others."""
    return hashlib.sha256(question.encode()).hexdigest()[:12]
