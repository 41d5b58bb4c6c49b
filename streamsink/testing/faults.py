"""Arms named fault points: a real SIGKILL or SIGSTOP of this process, or an exception.

``STREAMSINK_FAULT="commit.published@2:kill"`` kills this process when that step is reached for the second time. Nothing
in the library reads the variable; the driver of a test calls ``arm_from_env()``.
"""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping

from streamsink import faults
from streamsink.errors import Misuse

VARIABLE = "STREAMSINK_FAULT"


class InjectedCrash(BaseException):
    """Ends the run of a test as the death of its process would: no handler for ordinary errors catches it."""


def kill() -> None:
    """End this process at once, as the kernel's out-of-memory killer would."""
    _signal_myself(signal.SIGKILL)


def stop() -> None:
    """Pause this process until somebody sends SIGCONT."""
    _signal_myself(signal.SIGSTOP)


def _signal_myself(number: int) -> None:
    """Send the signal to this thread, which therefore does nothing more.

    If it were sent to the process, another thread might take it while this one goes on.
    """
    signal.pthread_kill(threading.get_ident(), number)


def crash() -> None:
    """Crash within the process: raise ``InjectedCrash``."""
    raise InjectedCrash


ACTIONS: Mapping[str, Callable[[], None]] = {"kill": kill, "stop": stop, "crash": crash}


def arm(step: str, occurrence: int, action: Callable[[], None]) -> None:
    """Call ``action`` when ``step`` is reached for the ``occurrence``-th time (from 1).

    Raises Misuse when there is no such step.
    """
    if step not in faults.STEPS:
        raise Misuse(f"there is no step '{step}'; see streamsink.faults.STEPS", kind="fault.step")
    seen: Counter[str] = Counter()

    def hook(reached: str) -> None:
        seen[reached] += 1
        if reached == step and seen[reached] == occurrence:
            action()

    faults.arm(hook)


def arm_from_env(environment: Mapping[str, str] = os.environ) -> None:
    """Arm what the environment variable says: ``step@occurrence:action``. Do nothing when it is not set.

    Raises Misuse when the step or the action does not exist; ValueError when the occurrence is no number.
    """
    text = environment.get(VARIABLE)
    if not text:
        return
    where, _, action = text.partition(":")
    step, _, occurrence = where.partition("@")
    if action not in ACTIONS:
        raise Misuse(f"{VARIABLE}={text}: the action is one of {', '.join(ACTIONS)}", kind="fault.action")
    arm(step, int(occurrence or 1), ACTIONS[action])
