"""A TCP relay in front of a server, which can lose replies: the server has done what was asked, and the client never
hears of it. It can also be cut off, as a network is that loses what it is given."""

import contextlib
import socket
import threading

from tests.services.ports import LOOPBACK

CHUNK = 65536


class LossyRelay:
    """Relays to `port` on 127.0.0.1. A context manager that closes it on exit.

    at: where it listens itself, as host and port; 0 for any port.
    """

    def __init__(self, port: int, at: tuple[str, int] = (LOOPBACK, 0)) -> None:
        self._to = port
        self._listener = socket.create_server(at)
        self.port = self._listener.getsockname()[1]
        self.to_lose = 0  # So many replies are lost from now on.
        self.changed: dict[bytes, bytes] = {}  # What replies have, by what comes in its place, of the same length.
        self.lost = 0
        self._is_cut_off = False
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def __enter__(self) -> "LossyRelay":
        return self

    def __exit__(self, *_) -> None:
        # Before it is closed nobody may wait on it: the next relay's listener may get its number, and a thread of this
        # one would accept its connections.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()

    def cut_off(self) -> None:
        """From now on nothing comes through. Connections stay open and new ones are made, without a word to anybody."""
        self._is_cut_off = True

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((LOOPBACK, self._to))
                threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, replies: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                if self._is_cut_off:
                    continue
                if replies and self.to_lose:
                    self.to_lose -= 1
                    self.lost += 1
                    break
                for said, instead in self.changed.items() if replies else ():
                    data = data.replace(said, instead)
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
