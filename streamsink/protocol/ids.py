"""Who writes: the name of an application, and the writer that has claimed it."""

import re
from dataclasses import dataclass

from streamsink.errors import Misuse

# The checkpoint id at the end of a bounded input, the same number as in Flink and Paimon.
END_OF_INPUT = 2**63 - 1

_APPLICATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def check_application(table: str, name: str) -> str:
    """Return ``name`` when it can be the name of an application, which names a folder and stands in each snapshot.

    table: its path, for the message. Raises Misuse when it cannot.
    """
    if not isinstance(name, str) or not _APPLICATION.fullmatch(name) or ".." in name:
        raise Misuse(
            f"{table}: application is {name!r}, expected 1 to 64 letters, digits, '_', '-' or '.', "
            "beginning with a letter or digit",
            kind="application.name",
        )
    return name


@dataclass(frozen=True)
class Writer:
    """One query that writes: the application's name, the id of its Spark checkpoint (``query``), and its epoch."""

    application: str
    query: str
    epoch: int

    def commit_user(self, generation: int) -> str:
        """Paimon's commit user: the application's name and the id of the checkpoint.

        generation: it grows when the batch ids of a checkpoint go back, because it was restored from an older copy, so
        that the identifiers of one commit user only ever grow, as Paimon expects.
        """
        suffix = f"-r{generation}" if generation else ""
        return f"{self.application}-{self.query}{suffix}"
