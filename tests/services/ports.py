"""Free ports that stay free while a server is down between a kill and its restart."""

import random
import socket

# These ports are below the range from which the kernel picks ports for outgoing connections: such a connection could
# sit on a killed server's port.
FIRST, LAST = 20000, 31999
ATTEMPTS = 200
LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Servers do so as well: a connection of the previous run that lingers in TIME_WAIT does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """`count` different free ports on 127.0.0.1."""
    found: set[int] = set()
    # It is not the seeded generator: two test processes must not walk through the same ports.
    chooser = random.SystemRandom()
    for _ in range(ATTEMPTS):
        if len(found) == count:
            return sorted(found)
        port = chooser.randint(FIRST, LAST)
        if is_free(port):
            found.add(port)
    raise OSError(f"no {count} free ports between {FIRST} and {LAST}")
