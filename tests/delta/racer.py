"""A process that commits to one log as fast as it can: ``python -m tests.delta.racer uri options name versions``.

It begins when it is told so by a line, and prints, as a JSON list, the ids of records that it takes for committed."""

import json
import sys

from deltalake.exceptions import DeltaError

from streamsink.sinks.delta.log import DeltaLog, storage_options
from streamsink.storage.stores import store_of


def main(uri: str, options: str, name: str, versions: str) -> None:
    given = json.loads(options)
    log = DeltaLog(store_of(uri, given).open(), uri, uri, storage_options(uri, given))
    print("ready", flush=True)
    sys.stdin.readline()
    won, number = [], 0
    while (version := int(log.newest().version())) < int(versions):
        number += 1
        record = f"{name}-{number}"
        try:
            log.commit([], {name: number}, {"record": record})
        except (OSError, DeltaError):
            pass  # what is there says who has won
        entry = log.entry(version + 1)
        if entry is not None and entry.record_id == record:
            won.append(record)
    print(json.dumps(won))


if __name__ == "__main__":
    main(*sys.argv[1:])
