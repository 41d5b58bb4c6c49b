"""Tables that could not be written are not made."""

import pytest

import streamsink
from streamsink.errors import Misuse


@pytest.mark.parametrize("ddl, options", [
    ("id BIGINT, p BYTES", {}), ("id BIGINT, p BINARY(3)", {}),
    ("id BIGINT, p TIMESTAMP(6) WITH LOCAL TIME ZONE", {"partition.legacy-name": "false"}),
])
def test_a_partition_column_of_a_type_that_has_no_folders_is_refused(tmp_path, ddl, options):
    """By its name, before the table is made."""
    path = tmp_path / "lake" / "orders"
    with pytest.raises(Misuse, match="'p'") as refused:
        streamsink.create_table(str(path), ddl, ["p"], options)
    assert refused.value.kind == "path.unsupported-type" and str(path) in str(refused.value)
    assert not path.exists()
