"""The rows of a batch go to each destination's own writer, in one pass. EXECUTOR and driver."""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

from streamsink.protocol.journal import Group
from streamsink.protocol.sink import Writing
from streamsink.storage.stores import Store

# (which destination, what its writer has handed back)
Written = tuple[int, Any]


class FanOutGroup:
    """The groups of all destinations, and that of the record, which becomes durable last. One thread uses it."""

    def __init__(self, own: AbstractContextManager[Any], groups: Sequence[AbstractContextManager[Group]]):
        """own: of the record. groups: of the destinations, in their order."""
        with ExitStack() as opening:
            self.own = opening.enter_context(own)
            self._groups = [opening.enter_context(group) for group in groups]
            self._opened = opening.pop_all()

    def of(self, number: int) -> Group:
        """The group of this destination."""
        return self._groups[number]

    def flush(self) -> None:
        for group in (*self._groups, self.own):
            group.flush()

    def give_up(self) -> None:
        for group in (*self._groups, self.own):
            group.give_up()

    def __enter__(self) -> "FanOutGroup":
        return self

    def __exit__(self, *raised: Any) -> None:
        self._opened.__exit__(*raised)


@dataclass(frozen=True)
class FanOutWriting(Writing):
    """How each destination writes its rows.

    stores: of each destination; None for one in the same store as the fan-out's journal.
    """

    writings: tuple[Writing, ...]
    stores: tuple[Store | None, ...]

    def open(self, file_io: Any) -> "FanOutWriter":
        return FanOutWriter(self, file_io)

    def encode(self, written: Written) -> str:
        number, item = written
        return json.dumps([number, self.writings[number].encode(item)])

    def decode(self, text: str) -> Written:
        number, item = json.loads(text)
        return number, self.writings[number].decode(item)


class FanOutWriter:
    """The writers of one task attempt, or of the driver; see ``Writing.open``."""

    def __init__(self, writing: FanOutWriting, file_io: Any):
        self._ios = [file_io if store is None else store.open() for store in writing.stores]
        self._is_elsewhere = [store is not None for store in writing.stores]
        self._writers: list[Any] = []
        try:
            for each, own in zip(writing.writings, self._ios):
                self._writers.append(each.open(own))
        except BaseException:
            self.abort()
            raise

    def write(self, rows: Any) -> None:
        """Give the rows to each destination."""
        for writer in self._writers:
            writer.write(rows)

    def close(self, group: Group) -> list[Written]:
        """End all writers. What they have written is durable when ``group`` is flushed."""
        found: list[Written] = []
        for number, writer in enumerate(self._writers):
            if isinstance(group, FanOutGroup):
                written = writer.close(group.of(number))
            elif self._is_elsewhere[number]:  # the task's group is of the store of the fan-out's journal
                with self._ios[number].flush_group() as own:
                    written = writer.close(own)
                    own.flush()
            else:
                written = writer.close(group)
            found += [(number, item) for item in written]
        return found

    def abort(self) -> None:
        """Delete what was written. Idempotent."""
        for writer in self._writers:
            writer.abort()
