"""What PostgreSQL says of a login that it refuses is known by its code, in whatever language its messages are."""

import contextlib
import os
import resource
from dataclasses import replace

import pytest

from streamsink.errors import Misuse, Retryable
from streamsink.locks import libpq_login
from tests.databases.places import place_of
from tests.locks.places import place_of as lock_of
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


# A user that may not log in: by a line of pg_hba.conf, as one that nobody knows and no password is asked of, or by a
# setting of the user.
_REFUSED = {
    "reject": "host all refused_here all reject",
    "trust": "host all unknown_here all trust",
    "nologin": "host all nologin_here all trust",
}
_NAMES = {"reject": "refused_here", "trust": "unknown_here", "nologin": "nologin_here"}
_MOST_LOOKS = 1_000


@contextlib.contextmanager
def refusing(server):
    """Within it the server refuses these users."""
    rules = server.data_dir / "data" / "pg_hba.conf"
    before = rules.read_text()
    with server.connect() as connection:

        def use(text: str, name: str, method: str) -> None:
            rules.write_text(text)
            connection.execute("SELECT pg_reload_conf()")
            asked = "SELECT count(*) FROM pg_hba_file_rules WHERE user_name = ARRAY[%s] AND auth_method = %s"
            for _ in range(_MOST_LOOKS):
                if connection.execute(asked, (name, method)).fetchone() == (1,):
                    return
            raise AssertionError("the server has not read its rules")

        connection.execute("DROP ROLE IF EXISTS nologin_here")
        connection.execute("CREATE ROLE nologin_here NOLOGIN")
        use("\n".join([*_REFUSED.values(), before]), _NAMES["reject"], "reject")
        try:
            yield
        finally:
            rules.write_text(before)
            connection.execute("SELECT pg_reload_conf()")
            connection.execute("DROP ROLE nologin_here")


@pytest.mark.parametrize("libpq", ["found", "not found"])
@pytest.mark.parametrize("why", _REFUSED)
def test_whoever_may_not_log_in_is_told_so(request, tmp_path, monkeypatch, why, libpq):
    """Not by the password (28P01) but by who it is, or from where (28000): the sink and the lock took it for a server
    that is away. Where no libpq is found, the English text tells."""
    place, lock = place_of("postgresql", request, tmp_path), lock_of("postgresql", request, tmp_path)
    monkeypatch.setenv("STREAMSINK_TEST_POSTGRES", SECRET)
    if libpq == "not found":
        monkeypatch.setattr(libpq_login, "_libpq", lambda: None)
    with refusing(place.server):
        sink = replace(place.sink(str(tmp_path / "journal")), user=_NAMES[why])
        with pytest.raises(Misuse, match="SQLSTATE 28000" if libpq == "found" else "no login") as refused:
            sink.identity({})
        with pytest.raises(Misuse, match="Check 'lock', 'lock_user'") as locked:
            lock.lock(lock_user=_NAMES[why]).acquire()
    assert (refused.value.kind, locked.value.kind) == ("database.refused", "lock.refused")
    assert SECRET not in f"{refused.value}{locked.value}"
