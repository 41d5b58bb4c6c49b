"""Tables that could not be written are not created, and a table that is created at this moment is found."""

import pytest

import streamsink
from streamsink.clock import IdSource
from streamsink.errors import Conflict, Misuse
from streamsink.format.types import parse_ddl
from streamsink.storage.file_io import FileIO
from streamsink.table.commit.changes import Changes
from streamsink.table.table import create_table, new_schema
from streamsink.testing.memory import MemoryCalls
from tests.table.entries import ROOT, add, commit, live, new_table, part


@pytest.mark.parametrize(
    "ddl, options",
    [
        ("id BIGINT, p BYTES", {}),
        ("id BIGINT, p BINARY(3)", {}),
        ("id BIGINT, p TIMESTAMP(6) WITH LOCAL TIME ZONE", {"partition.legacy-name": "false"}),
    ],
)
def test_a_partition_column_of_a_type_that_has_no_folders_is_refused(tmp_path, ddl, options):
    """The error names it, before the table is created."""
    path = tmp_path / "lake" / "orders"
    with pytest.raises(Misuse, match="'p'") as refused:
        streamsink.create_table(str(path), ddl, ["p"], options)
    assert refused.value.kind == "path.unsupported-type" and str(path) in str(refused.value)
    assert not path.exists()


class _Sleeps(FileIO):
    """Lets ``meanwhile`` happen before it first looks what stands at the table's path."""

    meanwhile = None

    def entries(self, path):
        happens, self.meanwhile = self.meanwhile, None
        if happens:
            happens()
        return super().entries(path)


@pytest.mark.parametrize("columns", ["id BIGINT, part STRING, version BIGINT", "id BIGINT"])
def test_a_table_that_another_one_creates_at_this_moment_is_that_table(columns):
    """Two queries begin at once. Formerly the second one found a folder that was not empty, and no way on.
    Other columns are a conflict."""
    calls = MemoryCalls()
    sleeper = _Sleeps(calls, IdSource().new_id)
    sleeper.meanwhile = lambda: commit(new_table(calls), Changes((add("a", part("x")),)))
    schema = new_schema(parse_ddl(columns), ("part",) if "part" in columns else (), {})
    if "part" in columns:
        assert live(create_table(sleeper, ROOT, schema)) == ["a"]
    else:
        with pytest.raises(Conflict) as told:
            create_table(sleeper, ROOT, schema)
        assert told.value.kind == "table.created-differently"
