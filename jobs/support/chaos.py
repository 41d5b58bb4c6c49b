"""The main job under fire:
a parent starts the driver again and again, each time with a step at which it dies by SIGKILL."""

import argparse
import os
import signal
import subprocess
import sys

from streamsink.testing.faults import VARIABLE
from support.places import Places
from support.progress import say

# (step, at which of its arrivals there that life of the driver dies). Mostly it is the second, so that a batch is
# published first. Steps of a restore that publishes come after a kill that left something pending.
STEPS = (
    ("write.staged", 3),
    ("precommit.saved", 2),
    ("restore.before_publish", 1),
    ("restore.published", 1),
    ("commit.before_publish", 2),
    ("restore.claimed", 1),
    ("commit.published", 2),
    ("precommit.before_record", 2),
    ("restore.before_sweep", 1),
    ("commit.placing", 2),
    ("commit.marked", 3),
    ("batch.end", 2),
)
# The steps that every destination has.
OF_ANY_SINK = tuple(each for each in STEPS if each[0] == "commit.marked" or not each[0].startswith("commit."))
NO_FAULT = ""
BATCHES = 25  # The source has more events than these lives publish.


def is_life() -> bool:
    """Whether this process was started by ``run``."""
    return VARIABLE in os.environ


def run(args: argparse.Namespace, places: Places, steps=STEPS, more: tuple[str, ...] = ()) -> int:
    """Start the driver until it ends by itself. more: arguments that each life gets besides those of every job.
    Returns the exit code: 0 when every planned kill happened and nothing is lost."""
    steps = steps[: args.kills]
    happened = []
    for step, occurrence in steps:
        code = _life(args, f"{step}@{occurrence}:kill", more)
        if code != -signal.SIGKILL:
            break
        happened.append(step)
        say(f"KILLED    at {step} in batch {places.newest_batch()}")
    else:
        code = _life(args, NO_FAULT, more)
    say(f"the driver was killed {len(happened)} times, at {', '.join(happened)}")
    if code == 0 and len(happened) < len(steps):
        say(f"only {len(happened)} of {len(steps)} kills: the work was done before; give more --events")
        return 1
    return code


def _life(args: argparse.Namespace, fault: str, more: tuple[str, ...]) -> int:
    """One life of the driver: this job again, without --chaos. Its output goes to ours."""
    command = [sys.executable, sys.argv[0], "--warehouse", args.warehouse, "--rows-per-batch", str(args.rows_per_batch)]
    command += [*more, *(("--metrics", args.metrics) if args.metrics else ())]
    if args.brokers:
        command += ["--brokers", args.brokers, "--topic", args.topic, "--until-caught-up"]
    else:
        command += ["--up-to", str(args.up_to)]
    return subprocess.run(command, env=os.environ | {VARIABLE: fault}).returncode
