"""How many crash states a run of the tests has tried: printed at its end, and a whole gate tries ``LEAST`` or more.

A state is counted when the worlds of ``tests/crash`` and of fan-outs die: in one that a sweep has found (each is
another one), or at a call or a step of a run (each is another instant). So neither a harness that became faster nor a
shorter gate tries fewer without being noticed.
"""

import pytest

# 3,577 were tried with one seed; which tests take their turns depends on it, so it is that less a fifth.
LEAST = 2_800
_NAME = "crash_states"
_KEY = pytest.StashKey[int]()
_here = 0


def note() -> None:
    """One more has been tried in this process."""
    global _here
    _here += 1


def of_worker(node) -> None:
    """Add what a worker of pytest-xdist has tried. node: as ``pytest_testnodedown`` has it."""
    stash = node.config.stash
    stash[_KEY] = stash.get(_KEY, 0) + getattr(node, "workeroutput", {}).get(_NAME, 0)


def finish(session: pytest.Session) -> None:
    """Hand the number on to the process that sums them up; there, fail a whole gate that has tried too few."""
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput[_NAME] = _here
        return
    config.stash[_KEY] = config.stash.get(_KEY, 0) + _here
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    is_gate = is_whole and config.option.markexpr == "not soak" and not config.option.collectonly
    if is_gate and not session.exitstatus and config.stash[_KEY] < LEAST:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def say(reporter, config: pytest.Config) -> None:
    """Print the number."""
    if tried := config.stash.get(_KEY, 0):
        reporter.write_line(f"streamsink: {tried:,} crash states were tried; a whole gate tries {LEAST:,} at least")
