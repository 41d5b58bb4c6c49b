"""The store around a store, which creates names under a lock and hands everything else on.

``tests/storage/test_conformance.py`` runs over it as well.
"""

import ast
import inspect

import pytest

from streamsink.errors import Misuse, Retryable
from streamsink.locks.configured import lock_of
from streamsink.locks.locked_file_io import LockedFileIO, under_lock
from streamsink.options import SinkOptions
from streamsink.storage.file_io import FileIO, local_file_io
from tests.locks import replacing

CHANGED = {"__init__", "create_if_absent"}


@pytest.fixture
def tables(tmp_path):
    """Two tables of one warehouse, with the options of each."""
    paths = [str(tmp_path / "shop.db" / name) for name in ("orders", "returns")]
    return [(path, SinkOptions.of(path, {"lock": "file", "lock_acquire_timeout_ms": 0})) for path in paths]


def _handing_on(method: ast.FunctionDef) -> str:
    """The call of the wrapped store's method of the same name with the same arguments; its value where it is none."""
    names = [arg.arg for arg in method.args.args[1:]] + [f"{arg.arg}={arg.arg}" for arg in method.args.kwonlyargs]
    arguments = "" if [ast.unparse(d) for d in method.decorator_list] == ["property"] else f"({', '.join(names)})"
    return f"self._inner.{method.name}{arguments}"


def test_every_public_name_of_a_store_is_handed_on_as_it_is():
    """What were missing would run on this object, with the calls of a local disk, and not in the store."""
    [tree] = ast.parse(inspect.getsource(LockedFileIO)).body
    methods = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name, method in methods.items():
        if name not in CHANGED:
            [statement] = method.body
            assert ast.unparse(statement.value) == _handing_on(method)
    public = {name: of for name, of in inspect.getmembers(FileIO) if not name.startswith("_")}
    attributes = {name for name, of in public.items() if not callable(of) and not isinstance(of, property)}
    assert methods.keys() - CHANGED == public.keys() - attributes - CHANGED
    for name in methods.keys() & public.keys() - {"atomic_create"}:
        assert inspect.signature(getattr(LockedFileIO, name)) == inspect.signature(public[name]), name


def test_the_attributes_of_a_store_are_those_of_the_wrapped_one(tables):
    """Callers read them, for instance the size of the largest file."""
    path, options = tables[0]

    class Special(replacing.ReplacingFileIO):
        takes_files_of_others, lists_sizes, largest_file = False, True, 7
        names_at_once, largest_written, is_distant = True, 9, True

    bare = replacing.store()
    locked = under_lock(Special(bare._calls, bare._new_id, False), path, options)
    names = [name for name, of in inspect.getmembers(Special) if not name.startswith("_") and not callable(of)]
    assert sorted(names) == [
        "atomic_create",
        "is_distant",
        "largest_file",
        "largest_written",
        "lists_sizes",
        "names_at_once",
        "takes_files_of_others",
    ]
    assert isinstance(locked, LockedFileIO)
    assert [getattr(locked, name) for name in names] == [getattr(Special, name) for name in names]


def test_a_store_that_needs_no_lock_is_not_wrapped(tables):
    """Nor is one that needs it where no lock is configured: it refuses to create names."""
    path, options = tables[0]
    atomic, bare = local_file_io(), replacing.store()
    assert under_lock(atomic, path, options) is atomic
    assert under_lock(bare, path, SinkOptions.of(path, {})) is bare
    with pytest.raises(Misuse) as refused:
        bare.create_if_absent(f"{path}/name", b"x")
    assert refused.value.kind == "lock.missing" and not bare.exists(path)


def test_each_table_of_a_store_has_its_own_lock(tables):
    """While another writer has the lock of one, names of the other are created, and the store itself has no lock."""
    (ours, options), (other, options_of_other) = tables
    bare = replacing.store()
    locked = [under_lock(bare, path, of) for path, of in tables]
    with lock_of(ours, options).acquire():
        with pytest.raises(Retryable) as waited:
            locked[0].create_if_absent(f"{ours}/name", b"x")
        assert waited.value.kind == "lock.timeout" and not bare.exists(f"{ours}/name")
        assert locked[1].create_if_absent(f"{other}/name", b"x")
    assert locked[0].create_if_absent(f"{ours}/name", b"x")
    with pytest.raises(Misuse, match="Set the option 'lock'"):
        bare.create_if_absent(f"{other}/second", b"x")


def test_a_name_that_is_taken_keeps_its_bytes_and_nothing_is_left_of_what_was_prepared(tables):
    """The name is found before the creation begins, so the creation itself removes nothing."""
    path, options = tables[0]
    locked = under_lock(replacing.store(), path, options)
    assert locked.create_if_absent(f"{path}/names/record-1", b"first")
    with locked.flush_group() as group:
        locked.prepare(group, f"{path}/names/record-1", b"second", "b")
        group.flush()
    assert len(locked.names(f"{path}/names")) == 2
    assert not locked.create_if_absent(f"{path}/names/record-1", b"second", "b", prepared=True)
    assert locked.names(f"{path}/names") == ["record-1"] and locked.read(f"{path}/names/record-1") == b"first"
