"""Walks are drawn from a seed, walked, and shrunk to the shortest one that still goes wrong."""

import itertools
import random
from collections import Counter
from collections.abc import Mapping, Sequence

from tests.walks.distant_walker import DistantSeveralWalker, DistantWalker
from tests.walks.elsewhere.fan_out import FanOutWalker
from tests.walks.elsewhere.lakes import DeltaWalker, IcebergWalker
from tests.walks.elsewhere.walker import DatabaseWalker, ElsewhereWalker, KeptWalker, NotesWalker
from tests.walks.events import NOT_YET, Kind
from tests.walks.model import Wrong
from tests.walks.several_walker import SeveralWalker
from tests.walks.walker import SETUP, Walk, Walker

FEWEST, MOST = 4, 26
_NUMBERS = 1000
_LONGEST = 40
# Kinds that come even in a walk of few kinds: without them little happens at all.
_ALWAYS = ("batch", "produce", "stop", "kill", "heal", "crash", "wake")
# How one accident leads to the next. Half of the walks are put together of these, with random numbers and with other
# kinds in between.
_STORIES = tuple(
    map(
        str.split,
        (
            "letters produce batch produce crash drop_letters batch heal batch heal",
            "letters batch produce batch letters_expiry produce batch rollback batch heal",
            "letters produce batch crash letters_expiry letters_expiry batch heal batch",
            "letters produce batch drop_letters produce batch heal batch",
            "letters batch batch letters option rollback batch heal letters batch heal",
            "letters batch rename batch heal batch retire rename batch heal batch",
            "pause_at rollback foreign_append wake batch heal",
            "pause_at foreign_append foreign_append foreign_append expiry wake batch heal",
            "pause_at drop foreign_append wake batch heal batch heal",
            "pause_at batch rollback batch wake batch heal",
            "batch copy produce batch restore rename batch heal batch heal batch",
            "batch rename batch heal batch lose_checkpoint batch heal",
            "crash rename batch heal drop batch heal batch",
            "crash drop foreign_append foreign_append expiry rename batch heal batch heal",
            "run run lose_journal expiry run heal run same_run",
            "run lose_journal run lose_identity expiry run heal run",
            "copy produce batch copy restore produce batch restore batch heal",
            "run copy run copy restore run restore batch heal",
            "run copy lose_journal run copy restore run restore batch heal",
            "batch copy batch restore lose_checkpoint batch heal batch",
            "batch copy recreate batch heal restore batch heal batch",
            "leave_topic batch heal batch",
            "option batch batch crash foreign_append foreign_append expiry batch heal batch heal",
            "batch batch rollback foreign_append foreign_append expiry batch heal batch heal",
            "batch power rollback foreign_append foreign_append expiry batch heal heal",
            "batch tag rollback batch heal batch",
            "batch own_branch own_fast_forward batch own_expiry batch heal batch",
            "batch own_branch batch foreign_append own_fast_forward batch heal own_branch own_fast_forward batch",
            "batch own_partition_expiry batch own_expiry batch own_partition_expiry own_expiry batch heal",
            "batch own_tags batch compaction own_expiry batch own_tags own_expiry own_untag batch",
            (
                "half_published foreign_append foreign_append expiry foreign_append foreign_append expiry batch heal "
                "batch heal"
            ),
            "half_published lose_journal rename batch heal batch heal",
            "lose_journal foreign_append foreign_append expiry batch heal batch heal",
        ),
    )
)
# Seeds with this prefix are walks over several tables.
SEVERAL = "several-"
# Seeds with this prefix, which stands before the other one, are walks on S3.
ON_S3 = "s3-"
# Seeds with the prefix "<setup>-" of one of these are walks into a destination that is no table.
_ELSEWHERE = (ElsewhereWalker, DatabaseWalker, NotesWalker, KeptWalker, DeltaWalker, IcebergWalker, FanOutWalker)
ELSEWHERE = {walker.setup: walker for walker in _ELSEWHERE}
# "1-17~3" is a bred walk: 1-17, changed in one to three places that a generator with this seed chooses.
BRED = "~"


def walker_of(seed: str) -> type[Walker]:
    """The class that walks it."""
    if (kind := seed.partition("-")[0]) in ELSEWHERE:
        return ELSEWHERE[kind]
    is_several = seed.removeprefix(ON_S3).startswith(SEVERAL)
    if seed.startswith(ON_S3):
        return DistantSeveralWalker if is_several else DistantWalker
    return SeveralWalker if is_several else Walker


def draw(seed: str, kinds: Mapping[str, Kind] | None = None, fewest: int = FEWEST, most: int = MOST) -> Walk:
    """Draw a walk: kinds by their weights and arguments at random, whatever the world will be like."""
    if BRED in seed:
        return _bred(seed, draw(seed.rpartition(BRED)[0], kinds, fewest, most))
    chance = random.Random(seed)
    kinds = _kinds_of(seed, kinds)
    weights = [kind.weight for kind in kinds]
    # Each walk has a temper: some kinds come far more often, and most accidents not at all.
    weights = [
        weight * chance.choice((0, 0, 1, 1, 4)) if kind.name not in ("batch", "produce") else weight
        for kind, weight in zip(kinds, weights)
    ]
    # Half of them keep coming back to two or three kinds, so that an accident meets what the one before it has left.
    often = chance.sample(range(len(kinds)), chance.choice((0, 0, 2, 3)))
    if often and chance.randrange(2):  # Half of these have hardly any other kind.
        weights = [weight if kind.name in _ALWAYS else 0 for kind, weight in zip(kinds, weights)]
    for number in often:
        weights[number] = 10
    chosen = chance.choices(kinds, weights, k=chance.randint(fewest, most))
    if chance.randrange(2):
        stories = (*_STORIES, *walker_of(seed).stories)
        chosen = _of_stories(chance, stories, {kind.name: kind for kind in kinds}, len(chosen))
    numbers = lambda count: tuple(chance.randrange(_NUMBERS) for _ in range(count))  # noqa: E731
    return [(walker_of(seed).setup, *numbers(SETUP)), *((kind.name, *numbers(kind.size)) for kind in chosen)]


def _of_stories(
    chance: random.Random, stories: Sequence[list[str]], kinds: Mapping[str, Kind], most: int
) -> list[Kind]:
    """One or several stories, from which an event may be left out, and between whose events another one may come."""
    told: list[str] = ["produce", "batch"]
    while len(told) < min(most, _LONGEST // 2):
        for name in chance.choice(stories):
            between = chance.choices([*kinds, ""], [*(kind.weight for kind in kinds.values()), 400])
            told += [*between, *([name] if chance.randrange(12) else [])]
    return [kinds[name] for name in told if name in kinds]


def _kinds_of(seed: str, kinds: Mapping[str, Kind] | None = None) -> list[Kind]:
    return [kind for kind in (kinds or walker_of(seed).kinds).values() if kind.name not in NOT_YET]


def _bred(seed: str, walk: Walk) -> Walk:
    """Another walk near this one: with an event more, less or repeated, or with another number."""
    chance, kinds = random.Random(seed), _kinds_of(seed)
    for _ in range(chance.choice((1, 1, 2, 3))):
        way, at = chance.choice(("more", "more", "again", "number", "number", "less")), chance.randint(1, len(walk))
        if way == "more" or len(walk) < FEWEST:
            [kind] = chance.choices(kinds, [kind.weight for kind in kinds])
            walk = [*walk[:at], (kind.name, *(chance.randrange(_NUMBERS) for _ in range(kind.size))), *walk[at:]]
        elif way == "again":
            walk = [*walk[:at], chance.choice(walk[1:]), *walk[at:]]
        elif way == "less" or len(walk) > _LONGEST:
            walk = walk[:at] + walk[at + 1 :]
        elif len(event := walk[chance.randrange(len(walk))]) > 1:
            place, where = chance.randrange(1, len(event)), walk.index(event)
            walk = [
                *walk[:where],
                (*event[:place], chance.randrange(_NUMBERS), *event[place + 1 :]),
                *walk[where + 1 :],
            ]
    return walk


def outcome(walk: Walk, said: list | None = None) -> tuple[str, str]:
    """('', '') when all is well; otherwise what went wrong, in stable words, and in all words.
    said: gets every I/O call."""
    walkers = (Walker, SeveralWalker, DistantWalker, DistantSeveralWalker, *ELSEWHERE.values())
    walker = next(each for each in walkers if each.setup == walk[0][0])
    return walked(walker(walk), said)


def walk_all(seeds: Sequence[str]) -> tuple[list[tuple[str, str, str]], Counter]:
    """(seed, what went wrong, the same in all words) of each walk that went wrong,
    and how many events of each kind there were."""
    wrong, counts = [], Counter()
    for seed in seeds:
        walker = walker_of(seed)(draw(seed))
        what, more = walked(walker)
        if what:
            wrong.append((seed, what, more))
        counts += walker.counts
    return wrong, counts


def walked(walker: Walker, said: list | None = None) -> tuple[str, str]:
    try:
        walker.run(said)
    except Wrong as wrong:
        return wrong.what, str(wrong)
    except Exception as raw:
        return f"raw {type(raw).__name__}", str(raw)
    return "", ""


def shrink(walk: Walk, what: str, outcome=outcome) -> Walk:
    """The shortest walk that still ends with the same: first events are taken out, then numbers become smaller."""
    size = len(walk) // 2
    while size:
        for start in range(1, len(walk), size):
            shorter = walk[:start] + walk[start + size :]
            if len(shorter) < len(walk) and outcome(shorter)[0] == what:
                walk = shorter
                break
        else:
            size //= 2
    for number, place in itertools.product(range(len(walk)), range(1, 1 + max(map(len, walk)))):
        if place < len(walk[number]):
            for smaller in _smaller(walk[number][place]):
                event = walk[number][:place] + (smaller,) + walk[number][place + 1 :]
                if outcome(walk[:number] + [event] + walk[number + 1 :])[0] == what:
                    walk = walk[:number] + [event] + walk[number + 1 :]
                    break
    return walk


def _smaller(number: int) -> Sequence[int]:
    return sorted({n for n in (0, 1, 2, 3, 4, 5, number % 10, number % 100) if n < number})


def tell(walk: Walk) -> str:
    """The walk in the form in which ``outcome`` takes it."""
    return "[\n" + "".join(f"    {event!r},\n" for event in walk) + "]"
