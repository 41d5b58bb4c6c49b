"""What PostgreSQL says of a login that it refuses is known by its code, in whatever language its messages are."""

import contextlib
import os
import resource
from dataclasses import replace

import pytest

from streamsink.errors import Misuse, Retryable
from tests.databases.places import place_of
from tests.services.lossy import LossyRelay

SECRET = "s3cr3t-value"
# What the server says, and what it says in another language; "wrong" is what is wrong with the login.
_IN_ANOTHER_LANGUAGE = {
    b'password authentication failed for user "': b'Passwort falsch: keine Anmeldung von    "',
    b'" does not exist': b'" gibt es nicht.',
}


@pytest.mark.parametrize(("wrong", "code"), [("password", "28P01"), ("user", "28P01"), ("database", "3D000")])
def test_a_login_is_refused_in_whatever_language_the_server_speaks(request, tmp_path, monkeypatch, wrong, code):
    """Formerly the English text was looked for, and any other was taken for a server that is away: the query was
    started again and again."""
    place = place_of("postgresql", request, tmp_path)
    if wrong == "password":
        monkeypatch.setenv("STREAMSINK_TEST_POSTGRES", SECRET)
    with LossyRelay(place.server.port) as relay:
        assert all(len(said) == len(instead) for said, instead in _IN_ANOTHER_LANGUAGE.items())
        relay.changed, place.port = _IN_ANOTHER_LANGUAGE, relay.port
        sink = place.sink(str(tmp_path / "journal"))
        sink = replace(sink, user="nobody") if wrong == "user" else sink
        sink = replace(sink, url=f"{sink.url}_of_nobody") if wrong == "database" else sink
        with pytest.raises(Misuse, match=f"SQLSTATE {code}") as refused:
            sink.identity({})
    assert refused.value.kind == "database.refused" and SECRET not in str(refused.value)


def test_a_server_that_starts_is_no_refused_login(request, tmp_path, monkeypatch):
    """Its reply has a code of its own, which passes; so does a failure without any reply."""
    place = place_of("postgresql", request, tmp_path)
    with LossyRelay(place.server.port) as relay:
        relay.changed, place.port = {b"C28P01": b"C57P03"}, relay.port
        monkeypatch.setenv("STREAMSINK_TEST_POSTGRES", SECRET)
        with pytest.raises(Retryable, match="SQLSTATE 57P03") as failed:
            place.sink(str(tmp_path / "journal")).identity({})
    assert failed.value.kind == "database.unavailable"


def test_a_login_is_refused_also_where_many_files_are_open(request, tmp_path, monkeypatch):
    """select() takes no number above 1,023: its ValueError was shown, and said nothing of a login."""
    place = place_of("postgresql", request, tmp_path)
    monkeypatch.setenv("STREAMSINK_TEST_POSTGRES", SECRET)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 2048), before[1]))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        for _ in range(1024):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        with pytest.raises(Misuse, match="SQLSTATE 28P01"):
            place.sink(str(tmp_path / "journal")).identity({})
