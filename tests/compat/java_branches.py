"""Paimon's Java API of branches, of tags and of expiry, beside ``java.py``. Each function opens the table anew."""

import contextlib


def expire(java, path, keep) -> None:
    """Let all snapshots expire but the newest ``keep``, as Paimon's own maintenance does."""
    zero = java._jvm.java.time.Duration.ZERO
    config = java._paimon.options.ExpireConfig.builder()
    config = config.snapshotRetainMax(keep).snapshotRetainMin(keep).snapshotTimeRetain(zero).build()
    expiring = java._call("table.Table", _table(java, path), "newExpireSnapshots")
    kind = "table.ExpireSnapshots"
    java._call(kind, expiring, "config", ("options.ExpireConfig", config))
    java._call(kind, expiring, "expire")


def create_branch(java, path, name, tag=None) -> None:
    """From a tag, or without any snapshot."""
    _do(java, path, "createBranch", *((name, tag) if tag is not None else (name,)))


def delete_branch(java, path, name) -> None:
    """The folder of the branch."""
    _do(java, path, "deleteBranch", name)


def fast_forward(java, path, name) -> None:
    """Main becomes what the branch is."""
    _do(java, path, "fastForward", name)


def delete_tag(java, path, name) -> None:
    """With the files that nothing else has, as Paimon sees it."""
    _do(java, path, "deleteTag", name)


def branch_names(java, path) -> list[str]:
    """The branches as Paimon lists them."""
    table = _table(java, path)
    return list(java._call("table.DataTable", table, "branchManager").branches())


def create_tag(java, path, name) -> None:
    """Of the newest snapshot."""
    _do(java, path, "createTag", name)


def read(java, path, branch) -> list[tuple]:
    """As ``JavaPaimon.read``, of a branch."""
    with _on(java, branch):
        return java.read(path)


def append(java, path, branch, rows) -> None:
    """As ``JavaPaimon.append``, to a branch."""
    with _on(java, branch):
        java.append(path, rows)


@contextlib.contextmanager
def _on(java, branch):
    """Within it the table is opened at this branch."""
    plain = java._open

    def switched(path):
        table, schema = plain(path)
        return java._call("table.FileStoreTable", table, "switchToBranch", ("java.lang.String", branch)), schema

    java._open = switched
    try:
        yield
    finally:
        del java._open


def _table(java, path):
    return java._open(path)[0]


def _do(java, path, method, *names) -> None:
    java._call("table.Table", _table(java, path), method, *(("java.lang.String", name) for name in names))


def roll_back_schema(java, path, schema_id) -> None:
    """The table's schema, which Paimon refuses where a snapshot or a tag has a later one."""
    manager, table = java._manager(path), _table(java, path)
    manager.rollbackTo(schema_id, table.snapshotManager(), table.tagManager(), table.changelogManager())


def add_column(java, path, branch, name, t) -> None:
    """To the schema of a branch."""
    manager, made = java._manager(path).copyWithBranch(branch), java._jvm.java.util.ArrayList()
    made.add(java._paimon.schema.SchemaChange.addColumn(name, java.data_type(t)))
    manager.commitChanges(made)
