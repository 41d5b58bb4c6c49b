"""Files as positions: which files of a batch have been recorded before. Pure.

A file is its path with its time of modification, because a path alone is a name under which another file may stand
later. It may also be the same file, restored without its time; so the user is asked about a recorded path with another
time. ``file_entries.py`` says what is kept of a file.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from streamsink.errors import Misuse
from streamsink.options import MODE_OVERWRITE, SinkOptions, with_word, words_of
from streamsink.protocol import ways
from streamsink.protocol.committable import AppState, Batch
from streamsink.protocol.file_entries import entry, spelling
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.positions import SourceRange
from streamsink.protocol.recorded_files import FileIs, KnownFiles

_MOST_NAMED = 10


@dataclass(frozen=True)
class Parts:
    """Paths of a batch's files, by what is known of them.

    seen: recorded before. new: not recorded. unclear: rows of such a path may be either.
    asked: the files of which only the user can say whether they are recorded ones (RETIMED, MOVED), in the order in
    which he is asked.
    words: the words by which he has said it of other files.
    """

    seen: frozenset[str]
    new: frozenset[str]
    unclear: tuple[str, ...]
    asked: Mapping[FileIs, tuple[str, ...]] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many files the batch has."""
        return len({*self.seen, *self.new, *self.unclear, *chain(*self.asked.values())})

    def answered(self, options: SinkOptions, word: str) -> "Parts":
        """The same parts after the user's answers about files that are asked for.

        word: the token for the whole batch.
        """
        seen, new, asked, words = set(self.seen), set(self.new), {}, []
        for question, paths in self.asked.items():
            mine = word_of_files(word, question, paths)
            is_seen, is_new = (mine in words_of(given) for given in (options.accept_as_seen, options.accept_as_new))
            if is_seen == is_new:
                asked[question] = paths
            else:
                (seen if is_seen else new).update(paths)
                words.append(mine)
        return Parts(frozenset(seen), frozenset(new), tuple(sorted({*self.unclear, *seen & new})), asked, tuple(words))


def word_of_files(word: str, question: FileIs, paths: Sequence[str]) -> str:
    """The word that says what just these files are; the rest of the batch is decided as ever.

    word: the token for the whole batch.
    """
    return ways.word(json.dumps([word, question.value, *paths]))


def can_tell(batch: Batch) -> bool:
    """Whether the batch's rows are those of files that its sources tell. They are not when they come out of state."""
    told = [source.files for source in batch.sources]
    return not batch.stateful and None not in told and any(told)


def accepted_as_new(
    batch: Batch, last: AppState | None, known_files: Callable[[], KnownFiles | None]
) -> tuple[bool, bool]:
    """What follows when the user accepts a batch as new.

    Returns (whether the files recorded before it no longer count, whether the user is to be asked about later batches).
    Under another checkpoint everything that follows is new as well. Within one checkpoint only this batch was meant,
    where files tell the others apart.
    """
    if last is None or batch.query != last.query:
        return batch.batch_id != END_OF_INPUT, False
    in_replay = last.replaying or batch.batch_id <= last.checkpoint_id
    return False, in_replay and can_tell(batch) and known_files() is not None


def sort_out(sources: Sequence[SourceRange], known: KnownFiles) -> Parts:
    """Compare each file of a batch with the recorded ones. sources: every one of them tells its files."""
    found: dict[FileIs, set[str]] = {kind: set() for kind in FileIs}
    for place, source in enumerate(sources):
        for file in source.files or ():
            found[known.look_up(entry(file, place, source.name), len(sources) == 1)].add(spelling(file.path))
    seen, new = found[FileIs.HERE], found[FileIs.NEW]
    asked = {question: tuple(sorted(found[question])) for question in (FileIs.RETIMED, FileIs.MOVED) if found[question]}
    return Parts(frozenset(seen), frozenset(new), tuple(sorted(found[FileIs.ELSEWHERE] | seen & new)), asked)


def check(
    batch: Batch, parts: Parts, options: SinkOptions, *, table: str, word: str, other: bool, same: str | None
) -> None:
    """Raises Misuse, with the ways on, when the files do not decide what is to be written.

    parts: after ``Parts.answered``. word: the token for the batch. other: the batch before this one is of another
    checkpoint.
    same: what ``accept_as_same`` must be to say that each row is made of one row of a file, where that has to be said.
    """
    happened = (
        f"{table}: the checkpoint was deleted, replaced or restored from an older copy, and batch {batch.batch_id} of "
        f"{batch.query}"
    )
    ways = (
        f"accept_as_new='{word}' writes all rows of this batch{' and of all batches after it' if other else ''}, "
        f"accept_as_seen='{word}' records it without writing any"
    )
    for question in parts.asked:
        raise _ask(question, parts, options, happened=happened, word=word)
    if parts.unclear:
        raise Misuse(
            f"{happened} holds {len(parts.unclear)} files (first: {parts.unclear[0]}) that one source of the query "
            "has read and another one, which reads them too, has not, so a row's file does not tell whether the row "
            f"is here. Nothing was written. Choose: {ways}",
            kind="files.other-source",
        )
    if parts.seen and parts.new:
        holds = f"{happened} holds {len(parts.seen)} files whose rows are here and {len(parts.new)} whose rows are not"
        _check_mixed(batch, options, holds, ways, word=word, same=same)


def _ask(question: FileIs, parts: Parts, options: SinkOptions, *, happened: str, word: str) -> Misuse:
    """The error for files of which nothing tells whether they are recorded ones.

    The word in it is for these files alone; words that were said of other files are repeated with it, so that they
    still count.
    """
    paths = parts.asked[question]
    mine = word_of_files(word, question, paths)
    seen, new = (with_word(option, mine, parts.words) for option in (options.accept_as_seen, options.accept_as_new))
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    holds = f"{happened} holds {len(paths)} of {parts.count} files ({', '.join(paths[:_MOST_NAMED])}{more})"
    ways_on = (
        "and start a new checkpoint; or say it of just these files, beside which the others are decided by themselves, "
        f"and later batches are asked for: accept_as_seen='{seen}' when they are the same files, and their rows are "
        f"left out; accept_as_new='{new}' when they have other rows, which are written. A new checkpoint without "
        "maxFilesPerTrigger asks once for all"
    )
    if question is FileIs.MOVED:
        return Misuse(
            f"{holds} whose path is not recorded, but a file of their name and time of modification is, in another "
            "folder: they were moved or copied, or their path is spelled in another way, and then their rows are "
            "here; or they are others that happen to have its name and time. Nothing was written. Read them under "
            f"their first path, {ways_on}",
            kind="files.moved",
        )
    return Misuse(
        f"{holds} whose path is recorded with another time of modification: copied or restored without their times "
        "they are the same files, and their rows are here; or they were written again. Nothing was written. Give them "
        f"their times back (cp -p), {ways_on}",
        kind="files.other-times",
    )


def _check_mixed(batch: Batch, options: SinkOptions, holds: str, ways: str, *, word: str, same: str | None) -> None:
    """Raises Misuse when the file of a row does not tell whether the row is in the table.

    holds: the beginning of the message: what the batch holds. ways: the ways on.
    """
    one_each = (
        "tart a new checkpoint whose batches read one file each (maxFilesPerTrigger=1) until it is past the files that "
        "are here: a batch of such a file alone is taken as seen, and one of a new file alone is written. Or choose: "
        f"{ways}"
    )
    if batch.combines:
        raise Misuse(
            f"{holds}, and the batch function has made rows of several ({batch.combines}) before it called the sink, "
            f"so that no row's file tells whether it is new. Nothing was written. S{one_each}",
            kind="files.combined",
        )
    # An overwrite takes no column of files.
    if options.mode == MODE_OVERWRITE:
        raise Misuse(
            f"{holds}, which would not replace what the whole batch does. Nothing was written. S{one_each}",
            kind="files.overlap",
        )
    if not options.file_column:
        raise Misuse(
            f"{holds}. Nothing was written. Select _metadata.file_path among the columns, name it in the option "
            f"file_column, and set accept_as_same='{word}', because the query changes by that: then the rows of the "
            f"new files are written, each once. Or choose: {ways}",
            kind="files.overlap",
        )
    if same is not None:
        raise Misuse(
            f"{holds}, and whether each row that the sink is given is of one row of a file cannot be told: "
            f"{batch.may_combine} hides it. Of a row that was made of rows of several files no file tells whether it "
            f"is new. Nothing was written. If each is of one, set accept_as_same='{same}': then the rows of the new "
            f"files are written, each once, in this batch and the following ones of this replay. Else s{one_each}",
            kind="files.may-combine",
        )
