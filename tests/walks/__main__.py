"""``python -m tests.walks SEED-NUMBER`` walks one walk again and shrinks it; ``... --until-wrong SEED MOST`` says after
how many walks of that seed one goes wrong."""

import sys

from tests.walks.walking import draw, outcome, shrink, tell


def main(words: list[str]) -> int:
    if words[:1] == ["--until-wrong"]:
        for number in range(int(words[2])):
            what, more = outcome(draw(f"{words[1]}-{number}"))
            if what:
                print(f"WRONG after {number + 1} walks: {what}")
                return 1
        print(f"nothing in {words[2]} walks")
        return 0
    walk = draw(words[0])
    what, more = outcome(walk)
    print(tell(shrink(walk, what) if what else walk))
    print(more or "all is well")
    return bool(what)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
