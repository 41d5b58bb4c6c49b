"""The SQLSTATE with which a PostgreSQL server refuses a connection, whatever the language of its messages. Driver only.

psycopg knows no code of a connection that was never made, and the text is in the language of the server's
``lc_messages``. libpq knows the code, and shows it in the place of the text when it is asked to before the connection
is made, which psycopg does not do. So libpq itself is asked, by one more try to connect.
"""

import ctypes
import ctypes.util
import importlib.util
import re
import selectors
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamsink.clock import Clock

_SQLSTATE_ONLY = 3  # PQERRORS_SQLSTATE
_FAILED, _READING, _WRITING, _CONNECTED = range(4)  # of PostgresPollingStatusType
_MOST_POLLS = 1_000
# What the server says of a login in English, for where no libpq is found that would tell the code.
_WORDS = (
    *("authentication failed", "pg_hba.conf", "no password supplied", "does not exist", "SASL"),
    *("not permitted to log in", "no PostgreSQL user name", "permission denied for database"),
)
# Codes of a login that comes to the same however often it is tried: the user or the password is wrong, the user may not
# log in from here or into this database, or there is no such database.
_REFUSED = re.compile(r"28...|3D000|42501|0P000")
_CODE = re.compile(r":  ([0-9A-Z]{5})\s*$")


def is_login(said: str) -> bool:
    """Whether the server refuses the user, by what it says in English."""
    return any(words in said for words in _WORDS)


def is_refused_by(state: str) -> bool:
    """Whether this SQLSTATE, of a try to connect, means that waiting cannot help."""
    return bool(_REFUSED.fullmatch(state))


def sqlstate_of(parameters: Mapping[str, object], timeout_s: int) -> str:
    """Try to connect, and return the code with which the server refuses it.

    '' when it does not refuse any more, does not answer, or libpq is not found. parameters: as of libpq.
    """
    libpq = _libpq()
    if libpq is None:
        return ""
    given = {name: str(value).encode() for name, value in parameters.items() if value is not None}
    texts = ctypes.c_char_p * (len(given) + 1)
    names = texts(*[name.encode() for name in given], None)
    connection = libpq.PQconnectStartParams(names, texts(*given.values(), None), 0)
    if not connection:
        return ""
    try:
        libpq.PQsetErrorVerbosity(connection, _SQLSTATE_ONLY)
        if _is_refused(libpq, connection, timeout_s):
            found = _CODE.search(libpq.PQerrorMessage(connection).decode(errors="replace"))
            return found[1] if found else ""
        return ""
    finally:
        libpq.PQfinish(connection)


def _is_refused(libpq: Any, connection: int, timeout_s: int) -> bool:
    """Whether the try to connect has come to an end, and has failed."""
    clock, state = Clock(), _WRITING
    until_ms = clock.monotonic_ms() + 1000 * timeout_s
    for _ in range(_MOST_POLLS):
        socket, left_s = libpq.PQsocket(connection), (until_ms - clock.monotonic_ms()) / 1000
        if socket < 0 or left_s <= 0:
            return socket < 0
        with selectors.DefaultSelector() as selector:  # select() takes none above 1,023
            selector.register(socket, selectors.EVENT_READ if state == _READING else selectors.EVENT_WRITE)
            selector.select(left_s)
        state = libpq.PQconnectPoll(connection)
        if state in (_FAILED, _CONNECTED):
            return bool(state == _FAILED)
    return False


def _libpq() -> Any:
    """The library that psycopg brings, or that of the system; None where there is none."""
    binary = importlib.util.find_spec("psycopg_binary")
    beside = Path(binary.origin).parent if binary is not None and binary.origin else None
    folders = [beside.parent / "psycopg_binary.libs", beside / ".dylibs"] if beside is not None else []
    found = [str(path) for folder in folders for path in sorted(folder.glob("libpq*"))]
    for name in (*found, ctypes.util.find_library("pq")):
        try:
            library = ctypes.CDLL(name) if name else None
        except OSError:
            continue
        if library is not None:
            return _declared(library)
    return None


def _declared(library: Any) -> Any:
    """Pointers are larger than the numbers for which ctypes takes what is not declared."""
    pointer, texts = ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p)
    library.PQconnectStartParams.restype, library.PQerrorMessage.restype = pointer, ctypes.c_char_p
    library.PQconnectStartParams.argtypes = [texts, texts, ctypes.c_int]
    library.PQsetErrorVerbosity.argtypes = [pointer, ctypes.c_int]
    for name in ("PQconnectPoll", "PQsocket", "PQerrorMessage", "PQfinish"):
        getattr(library, name).argtypes = [pointer]
    return library
