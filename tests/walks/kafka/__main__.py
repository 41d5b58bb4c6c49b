"""``python -m tests.walks.kafka SEED NUMBER`` walks so many walks; ``... 1-17`` walks one again, and shows it."""

import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.services.kafka import KafkaBroker
from tests.walks.kafka.walking import Walker, draw, walk_all
from tests.walks.walking import tell


def main(words: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder, KafkaBroker(Path(folder) / "broker") as broker:
        if "-" in words[0]:
            print(tell(draw(words[0])), flush=True)
            try:
                Walker(draw(words[0]), broker.bootstrap, Path(folder) / "walk", broker).run()
            except Exception:
                traceback.print_exc()
                return 1
            return 0
        failed = 0
        for number in range(int(words[1])):
            begun = time.monotonic()
            wrong, counts = walk_all([f"{words[0]}-{number}"], broker.bootstrap, Path(folder) / "walk", broker)
            for seed, _, more in wrong:
                failed += 1
                print(f"WRONG {seed}: {more}", flush=True)
            print(f"{words[0]}-{number}: {time.monotonic() - begun:.1f} s {dict(counts)}", flush=True)
        return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
