"""Ports for servers that will be killed and come back on the same one."""

from __future__ import annotations

import random
import socket
from typing import Final

# Below the ports that systems hand to outgoing connections (Linux: from 32768): from those, another connection could
# take the port while its server is down, even one that tries to reach that very server and so meets itself.
_PORTS: Final = range(12_000, 22_000)

# Where the nodes of a Redis Cluster talk to each other, counted from their port; still below.
BUS: Final = 10_000


def free_port() -> int:
    """A port nothing listens on at 127.0.0.1, nor on its bus port."""
    while True:
        port = random.choice(_PORTS)
        if _is_free(port) and _is_free(port + BUS):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
