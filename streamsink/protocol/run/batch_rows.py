"""The rows of one micro-batch as the protocol sees them: what Spark's side, bounded jobs and tests implement.

Contract only.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from streamsink.protocol.committable import Batch, Committable, StagedFile
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.journal import Group
from streamsink.protocol.same_query import QueryComparison


class BatchRows(ABC):
    """The rows of one micro-batch, and how they become staged files. Called by the driver, each method at most once.

    way: how ``write`` wrote them, for the event ``BatchWritten``.
    """

    way = "driver"

    @abstractmethod
    def write(self, checkpoint: Checkpoint, group: Group) -> Sequence[Any]:
        """Write the rows that ``checkpoint.decision`` asks for into files of ``checkpoint.staging``, as
        ``OpenSink.writing`` says.

        Returns what ``OpenSink.stage`` needs to know of them. The files are durable when ``group`` is flushed. Not
        called for a batch that is recorded without rows (SEEN). Raises Misuse when a row does not fit; the checkpoint
        is then aborted.
        """

    def computing(self, batch: Batch) -> AbstractContextManager[None]:
        """Entered before the batch is admitted, and left when it is written.

        The rows may be computed meanwhile, if that changes nothing but the time that it takes. By default they are not.
        """
        return nullcontext()

    def described(self, batch: Batch) -> Batch:
        """The batch, with what was done with these rows of it, where that may be another thing than with those of the
        run's first batch.

        Called before some of them are filtered.
        """
        return batch

    @abstractmethod
    def count(self) -> int:
        """How many rows there are. Called for a bounded run whose id is published already, or accepted as seen."""

    def compared(self, published: Committable | None) -> QueryComparison:
        """With those that this record of their bounded run has published; None: the journal does not remember it.

        Called for a run that is published already and reads other files now.
        """
        return QueryComparison((), ("they are not compared",))

    def read_over(self) -> None:
        """Compute the rows and drop them. Called for a batch of a stateful query whose rows are not written."""

    def staged(self, files: Sequence[StagedFile]) -> None:
        """Called with the files that the record will name. By default nothing is remembered of them."""

    def check_read(self, checkpoint: Checkpoint) -> None:
        """Raises Misuse when what is read for the batch is not what was planned for it.

        By default nothing is known of that.
        """

    def looked_at_again(self, batch: Batch) -> Batch:
        """The same batch with the identities that its sources have now.

        Called when the rows are written, before the record.
        """
        return batch

    def same_as(self, other: "BatchRows") -> bool:
        """Whether both are the same rows, so that one call may go on where the other has failed."""
        return True
