"""What is known of the checkpoints that a destination has: remembered by itself, or in a folder beside its journal.

Driver only.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from streamsink.errors import Corrupt
from streamsink.protocol.committable import AppState, Committable
from streamsink.sinks.manifest_log import is_last
from streamsink.sinks.transactions.function import TwoPhaseCommitFunction, of_the_author


class Memory(Protocol):
    """The last committed checkpoints of each application. ``ManifestLog`` keeps them in a folder."""

    def newest(self, application: str) -> AppState | None:
        """The state of the last committed checkpoint; None when there is none."""

    def applications(self) -> Sequence[str]:
        """The applications that have committed here."""

    def has(self, record: Committable) -> bool:
        """Whether it is known that the record is committed."""

    def sees_all_since(self, record: Committable) -> bool:
        """Whether ``has`` is true of the record if it was ever committed."""

    def is_published(self, record: Committable, expect: int) -> bool:
        """Whether the record is the last committed one. Raises Retryable when another one than ``expect`` is."""

    def create(self, record: Committable, content: Mapping[str, Any]) -> None:
        """The record is committed. Idempotent. Raises Fenced when another driver has committed its number."""

    def sweep(self, published: Sequence[Committable]) -> list[str]:
        """As ``Committer.sweep``."""

    def forget(self, application: str) -> None:
        """As ``Upkeep.forget``."""


class InDestination:
    """What ``TwoPhaseCommitFunction.last_committed`` says. Committing keeps the order, so the last one tells of all."""

    def __init__(self, function: TwoPhaseCommitFunction[Any], session: dict[str, Any]):
        self._function = function
        self._session = session

    def newest(self, application: str) -> AppState | None:
        with of_the_author(self._function.path, "the destination could not be asked for its last checkpoint"):
            text = self._function.last_committed(application, self._session)
        try:
            return AppState.from_json(json.loads(text)) if text is not None else None
        except (ValueError, KeyError, TypeError, AttributeError) as broken:
            raise Corrupt(
                f"{self._function.path}: what the destination remembers of application '{application}' is damaged: "
                "expected the state of a record, a JSON object. Nothing was written. Restore it from a backup",
                kind="destination.state-corrupt",
            ) from broken

    def applications(self) -> Sequence[str]:
        with of_the_author(self._function.path, "the destination could not be asked for its applications"):
            return self._function.applications(self._session)

    def has(self, record: Committable) -> bool:
        newest = self.newest(record.application)
        if newest is None or newest.table_id != record.state.table_id:
            return False
        return newest.sequence > record.state.sequence or newest.record_id == record.state.record_id

    def sees_all_since(self, record: Committable) -> bool:
        return True

    def is_published(self, record: Committable, expect: int) -> bool:
        return is_last(self._function.path, self.newest(record.application), record, expect)

    def create(self, record: Committable, content: Mapping[str, Any]) -> None:
        """Nothing is left to do: it was remembered with the rows."""

    def sweep(self, published: Sequence[Committable]) -> list[str]:
        return []

    def forget(self, application: str) -> None:
        with of_the_author(self._function.path, f"the destination could not be made to forget '{application}'"):
            self._function.forget(application, self._session)
