"""Ports for servers that will be killed and come back on the same one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import tempfile
from pathlib import Path
from typing import Final

from uttu.clients.addresses import is_port_free

# Below the ports that systems hand to outgoing connections (Linux: from 32768): from those, another connection could
# take the port while its server is down, even one that tries to reach that very server and so meets itself.
_PORTS: Final = range(12_000, 22_000)

# Where the nodes of a Redis Cluster talk to each other, counted from their port; still below.
BUS: Final = 10_000


class Port:
    """A port nothing listens on at 127.0.0.1, nor on its bus port; nobody else gets it from here until it is released.

    Between the choice of a port and the start of its server there is time for another process to choose the same.
    So each is locked, by a file of its own, which the system unlocks however the process ends.
    """

    def __init__(self) -> None:
        folder = Path(tempfile.gettempdir(), f"uttu-ports-{os.getuid()}")
        folder.mkdir(mode=0o700, exist_ok=True)
        while True:
            self.number = random.choice(_PORTS)
            self._lock = os.open(folder / str(self.number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if is_port_free(self.number) and is_port_free(self.number + BUS):
                    return
            os.close(self._lock)

    def release(self) -> None:
        """Let others have it; again does no harm."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)
