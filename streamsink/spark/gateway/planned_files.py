"""Checks that Spark reads the files that the source has planned for a batch.

Runs on the driver; asks Spark's JVM gateway.

A batch that is planned is read when its turn comes, which may be days later, after a restart. Spark then lists its
files anew, leaves out without a message those that are gone, and reads whatever has their names. The record would say
that the planned files are in the table.
"""

import contextlib
import json
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from urllib.parse import unquote

from py4j.java_gateway import JavaObject

from streamsink.errors import Misuse
from streamsink.options import SinkOptions, with_word, words_of
from streamsink.protocol import ways
from streamsink.protocol.committable import Batch
from streamsink.protocol.file_entries import spelling
from streamsink.spark.gateway import running
from streamsink.spark.gateway.job_inputs import index_of, statuses

# At most this many files are named in the error.
_NAMED = 10
# The beginning of the paths of files on a disk, as ``spelling`` returns them.
_DISK = "file://"


def check(batch: Batch, without: Collection[str], table: str, options: SinkOptions) -> None:
    """Check that Spark reads what was planned.

    without: files whose rows are not to be written. Raises Misuse when a planned file is gone, is another one now, or
    would be read twice, unless the user has said that what is there now is to be read.
    """
    planned = {
        unquote(spelling(file.path)): file.modified_ms
        for source in batch.sources
        for file in source.files or ()
        if spelling(file.path) not in without
    }
    if not planned:
        return
    _check_spelled(planned, table)
    read: dict[str, int] = {}
    for index in _indexes(running.execution(batch.run)):
        told = statuses(index)
        if told is None:
            return
        _check_once(Counter(spelling(path) for path, _, _ in told), planned, batch, table)
        read |= {spelling(path): int(time) for path, time, _ in told}
    gone = sorted(path for path in planned if path not in read)
    changed = sorted(path for path, time in planned.items() if read.get(path, time) != time)
    word = _word_of_what_is_there(batch, table, [(path, planned[path], read.get(path)) for path in (*gone, *changed)])
    if (gone or changed) and word not in words_of(options.accept_as_same):
        found = [
            f"{len(paths)} {what} ({', '.join(paths[:_NAMED])})"
            for paths, what in ((gone, "are gone"), (changed, "were written again"))
            if paths
        ]
        raise Misuse(
            f"{table}: of the {len(planned)} files that the source has planned for batch {batch.batch_id}, "
            f"{' and '.join(found)} since, and Spark goes on without the rows that it was to read. Nothing was "
            "written. Bring the files back as they were, with their times (is the folder mounted?), and restart the "
            "query; or, if they will not come back, start a new checkpoint: files whose rows are here are known, and "
            "what is there of the others is written. If that ends here again, since the folder has a log of Spark's "
            "file sink (_spark_metadata), which plans each file with the time that it had when it was written, give "
            "them these times back; or set "
            f"accept_as_same='{with_word(options.accept_as_same, word, words_of(options.accept_as_same))}', which "
            "takes what is there now of just these files for what was planned: it is read, and what is gone is left "
            "out for good",
            kind="files.not-as-planned",
        )


def _check_spelled(planned: Collection[str], table: str) -> None:
    """Raises Misuse where a planned file lies beside others whose names Spark's JVM cannot spell.

    Java lists such files under other names, and its file source leaves out what is not found.
    """
    for folder in sorted({os.path.dirname(path[len(_DISK) :]) for path in planned if path.startswith(_DISK)}):
        odd = sorted(name for name in running.not_spelled(_names_in(folder)) if not name.startswith((".", "_")))
        if odd:
            # A name may be no UTF-8 at all, which no log could be given.
            said = ", ".join(os.fsencode(name).decode("utf-8", "backslashreplace") for name in odd[:_NAMED])
            raise Misuse(
                f"{table}: {len(odd)} names in {folder} ({said}) cannot be spelled in {running.encoding_of_locale()}, "
                "the encoding of the locale in which Spark's JVM was started, and Spark's file source leaves such "
                "files out without a message. Nothing was written. Rename these files; or, where that encoding is "
                "another one than UTF-8, set LC_ALL=C.UTF-8, or another locale with UTF-8, in the environment in which "
                "the driver and the executors start, and start the query again",
                kind="files.locale",
            )


def _names_in(folder: str) -> list[str]:
    """No names where the folder has gone since: then the planned files are gone too, which is found out."""
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


def _word_of_what_is_there(batch: Batch, table: str, found: Sequence[tuple[str, int, int | None]]) -> str:
    """The word with which the user accepts exactly these files as they are now.

    found: for each file its path, its planned time, and its time now, which is None when the file is gone.
    """
    return ways.word(json.dumps([table, batch.query, batch.batch_id, "as planned", *found]))


def _check_once(listed: Counter[str], planned: Mapping[str, int], batch: Batch, table: str) -> None:
    """Raises Misuse when a planned file is listed more than once.

    listed: how often each file is in one list of Spark's.
    """
    twice = sorted(path for path in planned if listed[path] > 1)
    if twice:
        raise Misuse(
            f"{table}: Spark would read {len(twice)} of the {len(planned)} files of batch {batch.batch_id} more than "
            f"once ({', '.join(twice[:_NAMED])}), "
            "and their rows would be doubled: its file source does so when a batch has several files and one of "
            "their names, or of their "
            "folder's, has a letter of patterns ({ } [ ] * ? or a backslash). Nothing was written. Rename it, and "
            "start a new checkpoint; or "
            "start a new checkpoint with .option('maxFilesPerTrigger', 1), and keep that: files whose rows are here "
            "are known",
            kind="files.read-twice",
        )


def _indexes(execution: JavaObject) -> Iterator[JavaObject]:
    """What Spark has listed for the batch that runs now."""
    last = execution.lastExecution()
    leaves = running.each_of(last.logical().collectLeaves()) if last is not None else ()
    return filter(None, map(index_of, leaves))
