"""pypaimon reads tables that one query wrote together, dead letters among them."""

import json

from streamsink.storage.calls import PosixCalls
from tests.crash.many_world import TABLES, ManyWorld, check_complete


def test_pypaimon_reads_each_table(tmp_path, pypaimon):
    """It sees the same rows as our own reader in all of them: each row of the source once."""
    world = ManyWorld(PosixCalls(), f"{tmp_path}/shop.db")
    world.run()
    check_complete(world.rows())
    found = []
    for name in TABLES:
        for row in pypaimon.read(f"{tmp_path}/shop.db/{name}").to_pylist():
            values = json.loads(row["row"]) if name == "rejected" else row
            found.append((name, values["id"], values["version"]))
    assert sorted(found) == sorted(world.rows())
