"""Which files in the folders of a table are a commit's, told by their names alone."""

import uuid

from streamsink.storage.memory import MemoryCalls
from streamsink.table import leftovers
from tests.table.entries import new_table


def test_all_files_of_a_commit_s_tries_are_found_and_no_others(rng):
    """Lists, manifests, index manifests and temporary files, of each try; among files of commits that were not asked for."""
    table = new_table(MemoryCalls())
    names = [str(uuid.UUID(int=rng.getrandbits(128))) for _ in range(60)]
    manifest_dir, snapshot_dir = table.layout.manifest_dir, table.layout.snapshot_dir
    made = {}
    for name in names:
        tries = [f"{name}-{rng.getrandbits(32):08x}-{attempt}" for attempt in (1, 2)]
        made[name] = {
            path for one in tries for path in (
                f"{manifest_dir}/manifest-list-{one}-0", f"{manifest_dir}/manifest-list-{one}-1", f"{manifest_dir}/manifest-{one}-d",
                f"{manifest_dir}/manifest-{one}-m0", f"{manifest_dir}/index-manifest-{one}",
                f"{snapshot_dir}/.snapshot-{rng.randint(1, 99)}.{one}.tmp", f"{snapshot_dir}/.LATEST.{one}.tmp",
            )
        }
    others = [f"{manifest_dir}/manifest-{names[0][:-1]}x-0", f"{manifest_dir}/data-{names[0]}", f"{snapshot_dir}/snapshot-1"]
    for path in [path for paths in made.values() for path in paths] + others:
        table.file_io.write(path, b"")
    asked = rng.sample(names, 20) + [str(uuid.uuid4())]
    found = leftovers.look(table, asked)
    assert {name: set(paths) for name, paths in found.items()} == {name: made[name] for name in asked[:-1]}
    assert all(len(paths) == len(set(paths)) for paths in found.values()), "a file is named twice"
