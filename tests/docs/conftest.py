"""The checkout that the pages' commands are given in."""

import pytest

from tests.docs.checkout import Checkout


@pytest.fixture(scope="session")
def checkout(tmp_path_factory) -> Checkout:
    """A copy of this one. Its first command makes an environment there, as a reader's does."""
    return Checkout(tmp_path_factory.mktemp("checkout"))
