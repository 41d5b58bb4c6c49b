"""Every kind of database on its real server."""

import pytest

from tests.databases.places import KINDS, PASSWORDS, SERVERS, place_of


@pytest.fixture(scope="session", autouse=True)
def passwords():
    """They are in the environment, as the sink wants it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in PASSWORDS.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(params=KINDS)
def place(request, tmp_path):
    """One kind of database after the other."""
    return place_of(request.param, request, tmp_path)


@pytest.fixture(params=SERVERS)
def served(request, tmp_path):
    """The kinds that have a server."""
    return place_of(request.param, request, tmp_path)
