"""One process of a race: creates numbered names if they are absent, and prints those that it won."""

import json
import sys

from streamsink.storage.stores import Store, journal_place


def main(root: str, place: str, options: str, me: str, names: str) -> None:
    file_io = Store(journal_place(place or root), json.loads(options), flush=False).open()
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps([n for n in range(int(names)) if file_io.create_if_absent(f"{root}/race/{n}", me.encode())]))


if __name__ == "__main__":
    main(*sys.argv[1:])
