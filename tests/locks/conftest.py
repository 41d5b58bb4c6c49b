"""Every kind of lock on its real server."""

import pytest

from tests.locks.places import KINDS, PASSWORDS, place_of
from tests.services import forking


@pytest.fixture(scope="session", autouse=True)
def passwords():
    """They are in the environment, as the options want it, before any process of the tests starts."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in PASSWORDS.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def processes(passwords):
    """A clean process that forks quickly, because this one has threads."""
    return forking.context()


# The length of a lease is the server's there, and waits for it are long.
IN_TURN = {"hive": pytest.mark.in_turn("locks of Hive", 3)}


@pytest.fixture(params=[pytest.param(kind, marks=IN_TURN.get(kind, ())) for kind in KINDS])
def place(request, tmp_path):
    """One kind of lock after the other."""
    return place_of(request.param, request, tmp_path)
