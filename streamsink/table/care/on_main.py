"""Care is taken of a table from its main branch, since all branches have their files in common."""

from streamsink.errors import Misuse
from streamsink.table.table import Table


def check_main(table: Table, name: str) -> None:
    """Raises Misuse for a branch. name: of what was called, or of the option."""
    if table.layout.branch:
        raise Misuse(
            f"{table.root}: {name} was given branch '{table.layout.branch}', expected the table itself. Nothing was "
            f"changed. Call it for {table.layout.main}: what its branches need stays",
            kind="branch.given",
        )
