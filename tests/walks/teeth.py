"""Says after how many walks a defect is found that nobody told them of: ``python -m tests.walks.teeth [words]``, for
the defects of tests/sabotage.

First walks go through a copy of the tree that reports which defects' places each walk comes to (``reach.py``). Where
few come to a place, others are bred from those that do. Then each defect is tried only on the walks that come to its
place. WALKS says how many walks of one table are drawn; of several tables, and on S3, there are half as many. A
walk that goes wrong without any defect is reported as well: breeding looks for holes where walks seldom come.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.sabotage.defect import Defect, put
from tests.sabotage.defects import DEFECTS
from tests.sabotage.run import ROOT, Copy
from tests.walks import reach
from tests.walks.not_found import ELSEWHERE
from tests.walks.store import Process, Time
from tests.walks.walker import Walk
from tests.walks.walking import BRED, ON_S3, SEVERAL, draw, outcome

MOST = 1_000
_SEED = "1"
# How many walks one process walks.
_PIECE = 125
# Where fewer walks come than are enough, so many rounds of walks are bred, with so many walks a round and defect.
ROUNDS, _CHILDREN, _ENOUGH = 6, 40, 200
# So many defects whose other value does something are found at most.
_FIRST = 60


@dataclass(frozen=True)
class Found:
    """walk: seed of the first walk that went wrong; "" when none did.
    what: what was wrong. comes: how many walks come to the defect's place."""

    defect: Defect
    walk: str
    what: str
    comes: int


class _Walking(Copy):
    """A copy of the tree that is walked instead of tested."""

    seeds: Sequence[str] = ()

    def walk(self, function: str, seeds: Iterable[str]):
        """What a function of ``tests.walks.teeth`` says of these walks, in a process of its own."""
        command = [sys.executable, "-B", "-c", f"from tests.walks import teeth; teeth.answer(teeth.{function})"]
        env = {**os.environ, "PYTHONPATH": str(self._root)}
        done = subprocess.run(
            command, cwd=self._root, env=env, capture_output=True, text=True, input=json.dumps(list(seeds))
        )
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        return json.loads(done.stdout.splitlines()[-1])

    def _first_failure(self, tests):
        return self.walk("until_wrong", self.seeds) or None

    def instrument(self, defects, without=frozenset()) -> None:
        reach.instrument(ROOT, self._root, defects, without)


def answer(function: Callable[[list[str]], object]) -> None:
    """Read seeds from standard input and write what the function says of them. The process then ends at once, because
    drivers that died in it have threads."""
    print(json.dumps(function(json.load(sys.stdin))), flush=True)
    os._exit(0)


def until_wrong(seeds: list[str]) -> list[str]:
    """The first walk that goes wrong, and what is wrong; nothing when none does."""
    for seed in seeds:
        what, _ = outcome(draw(seed))
        if what:
            return [seed, what]
    return []


def wrong_with(defect: Defect, walk: Walk) -> str:
    """What goes wrong on this walk with the defect; "" when nothing does."""
    with tempfile.TemporaryDirectory(prefix="streamsink-teeth-") as folder:
        copy, module = _Walking(Path(folder)), Path(folder, "streamsink", defect.file)
        put(module, defect.applied(module.read_text(encoding="utf-8")))
        return copy.walk("outcomes", [walk])[0]


def outcomes(walks: list[list[list]]) -> list[str]:
    """What goes wrong on each walk."""
    return [outcome([tuple(event) for event in walk])[0] for walk in walks]


def reached_by(seeds: list[str]) -> tuple[list[list[int] | None], list[int]]:
    """The defects that each walk comes to, None for a walk that goes wrong without any;
    and the defects that are uneven."""
    done = [0]

    def counting(function):
        def counted(*arguments, **named):
            done[0] += 1
            return function(*arguments, **named)

        return counted

    Process._do, Time.look = counting(Process._do), counting(Time.look)
    reach.effects = lambda: done[0]
    found = []
    for seed in seeds:
        reach.reached.clear()
        what, _ = outcome(draw(seed))
        found.append(None if what else sorted(reach.reached))
    return found, sorted(reach.uneven)


def seeds_of(seed: str, number: int) -> list[str]:
    """The seeds of so many walks, those of one table on a disk first; half as many of several tables, and on S3."""
    parts = {"": number, SEVERAL: number // 2, ON_S3: number // 2, ON_S3 + SEVERAL: number // 4}
    return [f"{of}{seed}-{n}" for of, most in parts.items() for n in range(most)]


def bite(defects: Sequence[Defect], seeds: Sequence[str], tell=lambda found: None, rounds: int = 0) -> list[Found]:
    """Try each defect on the walks that come to its place, on all cores.
    tell: called with each result as it is done. rounds: of breeding."""
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="streamsink-teeth-") as folder, ThreadPoolExecutor(cores) as pool:
        copies: SimpleQueue[_Walking] = SimpleQueue()
        for number in range(cores):
            copies.put(_Walking(Path(folder, str(number))))
        reaching = _Reaching(_Walking(Path(folder, "telling")), list(enumerate(defects)), pool)
        reaching.walk(seeds)
        for number in range(rounds):
            reaching.walk(reaching.children(number))
        comes = reaching.comes

        def one(number: int) -> Found:
            copy = copies.get()
            try:
                copy.seeds = comes[number]
                said = copy.try_out(defects[number]).by if copy.seeds else None
            finally:
                copies.put(copy)
            tell(found := Found(defects[number], *(said or ("", "")), len(comes[number])))
            return found

        return list(pool.map(one, range(len(defects))))


class _Reaching:
    """comes: which walks come to the place of each defect, by its number."""

    def __init__(self, copy: _Walking, numbered: list[tuple[int, Defect]], pool: ThreadPoolExecutor):
        self._copy, self._numbered, self._pool = copy, numbered, pool
        self._uneven: set[int] | None = None
        self.comes: dict[int, list[str]] = {number: [] for number, _ in numbered}

    def walk(self, seeds: Sequence[str]) -> None:
        """Walk these as well."""
        if self._uneven is None:  # To look at the other value of these would change the walk for all others.
            self._copy.instrument(self._numbered)
            some = dict.fromkeys([*seeds[:_FIRST], *seeds[-_FIRST:]])
            self._uneven = set(self._copy.walk("reached_by", some)[1])
        while True:
            self._copy.instrument(self._numbered, frozenset(self._uneven))
            pieces = [seeds[at : at + _PIECE] for at in range(0, len(seeds), _PIECE)]
            told = list(self._pool.map(lambda piece: self._copy.walk("reached_by", piece), pieces))
            more = {number for _, some in told for number in some}
            if not more:
                break
            self._uneven |= more
        reached = dict(zip(seeds, (numbers for found, _ in told for numbers in found)))
        if wrong := [seed for seed, numbers in reached.items() if numbers is None]:
            print(f"walks that go wrong without any defect: {wrong}", flush=True)
        for seed, numbers in reached.items():
            for number in numbers or ():
                self.comes[number].append(seed)

    def children(self, round_number: int) -> list[str]:
        """Walks bred from those that come to places where few do.
        The newest come first, so that they go on from each other."""
        born = {}
        for found in self.comes.values():
            for child in range(_CHILDREN if 0 < len(found) < _ENOUGH else 0):
                parent = found[-1 - child % len(found)]
                born[f"{parent}{BRED}{round_number}.{child}"] = None
        return list(born)


def main(words: list[str]) -> int:
    """Print one line for each defect."""
    chosen = [
        d for d in DEFECTS if not d.file.startswith(ELSEWHERE) and (not words or any(word in d.name for word in words))
    ]
    seeds = seeds_of(os.environ.get("STREAMSINK_SEED", _SEED), int(os.environ.get("WALKS") or MOST))

    def tell(found: Found) -> None:
        said = f"found by {found.walk}: {found.what}" if found.walk else "not found"
        print(f"{found.defect.name} ({found.defect.file}): {said}; {found.comes} walks come to it", flush=True)

    found = bite(chosen, seeds, tell, ROUNDS)
    print(f"{sum(bool(each.walk) for each in found)} of {len(chosen)} defects are found by walks")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
