"""What tests of advice for a query into several tables share: the world after four batches, and what happens to it."""

import dataclasses
from collections import Counter

import pytest

from streamsink.errors import StreamsinkError
from streamsink.format.manifest_list import write_manifest_list
from tests.advice.accidents import damage
from tests.advice.following import Advice, advice
from tests.crash.many_world import BOUNDARIES, ROOT, ManyWorld

JOURNAL = f"{ROOT}/streamsink/streamsink"


def four_of_five_batches() -> ManyWorld:
    world = ManyWorld(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:4])
    return world


def refused(world, kind: str, run=None) -> Advice:
    before = world.rows()
    with pytest.raises(StreamsinkError) as told:
        run() if run else world.run()
    said = advice(told.value, kind)
    assert ROOT in said.message, "no table is named"
    assert world.rows() == before
    return said


def accept(world, **options) -> None:
    world.driver.options = dataclasses.replace(world.driver.options, **options)


def files_in(world, folder: str) -> dict[str, bytes]:
    return {
        path: file.data
        for path, file in world.calls._names.items()
        if path.startswith(f"{folder}/") and "/hold" not in path
    }


def put_back(world, files: dict[str, bytes]) -> None:
    for path, data in files.items():
        if path in world.calls._names:
            damage(world, path, data)
        else:
            world.file_io().create_if_absent(path, data)


def once(world, without=()) -> None:
    """Assert that each row is there once, except those that were in the lost tables."""
    numbers = Counter(number for _, number, _ in world.rows())
    assert set(numbers.values()) == {1}
    assert set(numbers) | set(without) == set(range(BOUNDARIES[-1])) and not set(numbers) & set(without)


def commit_of_another(world, name: str, *, keeps_states: bool = False, keeps_earlier: bool = True) -> None:
    """Another writer has rewritten or deleted what the table had last, and every snapshot before its own has expired,
    so that nobody can tell any more what the table had.

    keeps_earlier: what the table had before that is still there.
    """
    newest, empty = world.table(name).snapshots.latest(), write_manifest_list([])
    world.file_io().write(f"{ROOT}/{name}/manifest/manifest-list-empty", empty)
    base = (
        (newest.base_manifest_list, newest.base_manifest_list_size)
        if keeps_earlier
        else ("manifest-list-empty", len(empty))
    )
    foreign = dataclasses.replace(
        newest,
        id=newest.id + 1,
        properties=newest.properties if keeps_states else None,
        commit_user="compactor",
        base_manifest_list=base[0],
        delta_manifest_list="manifest-list-empty",
        base_manifest_list_size=base[1],
        delta_manifest_list_size=len(empty),
        total_record_count=0,
        delta_record_count=0,
    )
    world.file_io().write(f"{ROOT}/{name}/snapshot/snapshot-{foreign.id}", foreign.to_json())
    for old in range(1, foreign.id):
        world.file_io().delete(f"{ROOT}/{name}/snapshot/snapshot-{old}")
    world.file_io().delete(f"{ROOT}/{name}/snapshot/LATEST")
