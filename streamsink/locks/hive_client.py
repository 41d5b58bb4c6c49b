"""The Thrift client of a Hive Metastore, which locks and the catalog share. Only plain Thrift, no SASL."""

import contextlib
import getpass
import os
import struct
from collections.abc import Callable
from typing import Any, TypeVar

CALL_TIMEOUT_MS = 10_000
DEFAULT_PORT = 9083
_Answer = TypeVar("_Answer")


class HiveClient:
    """One connection, which is made when it is needed. Used by one thread at a time.

    types: the module with the metastore's values and errors. broken: what a call raises when the metastore does not
    answer, or says that it has failed; it is the base of all of the metastore's own errors as well.
    """

    def __init__(self, host: str, port: int):
        """Raises ImportError when the package ``pymetastore`` is not installed."""
        from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes

        # Thrift has no type hints.
        from thrift import Thrift  # type: ignore[import-untyped]
        from thrift.protocol import TBinaryProtocol  # type: ignore[import-untyped]
        from thrift.transport import TSocket, TTransport  # type: ignore[import-untyped]

        self.url = f"{host}:{port}"
        self.types: Any = ttypes
        # The last two: an answer that no metastore gives, such as a text that is none.
        self.broken: tuple[type[Exception], ...] = (Thrift.TException, OSError, EOFError, ValueError, struct.error)
        self._place = host, port
        self._service, self._sockets = ThriftHiveMetastore, TSocket
        self._transports, self._protocols = TTransport, TBinaryProtocol
        self._transport: Any = None
        self._client: Any = None

    def call(self, action: Callable[[Any], _Answer], *, answers: tuple[type[Exception], ...] = ()) -> _Answer:
        """What ``action`` returns for the generated client. Connects if necessary.

        answers: errors that are answers, after which the connection goes on. After any other one it is closed: a late
        reply must not be taken for that of the next call.
        """
        try:
            if self._client is None:
                self._connect()
            return action(self._client)
        except answers:
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection, if there is one. Idempotent."""
        if self._transport is not None:
            with contextlib.suppress(OSError):
                self._transport.close()
        self._client = self._transport = None

    def _connect(self) -> None:
        channel = self._sockets.TSocket(*self._place)
        channel.setTimeout(CALL_TIMEOUT_MS)
        self._transport = self._transports.TBufferedTransport(channel)
        self._client = self._service.Client(self._protocols.TBinaryProtocol(self._transport))
        self._transport.open()


def user() -> str:
    """The name under which Hadoop's clients act: ``HADOOP_USER_NAME``, else the process's user."""
    try:
        return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    except (OSError, KeyError):  # in a container, a user id may have no name
        return "streamsink"
