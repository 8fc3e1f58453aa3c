"""Asks the private server one thing over a connection of its own.

Whoever starts and stops the server needs no more of the protocol than that, and no library that waits and retries.
"""

from __future__ import annotations

import socket
from typing import Final

from weft.jobs.embedded.place import Address

_PATIENCE: Final = 5.0


def ask(address: Address, command: str, password: str = "") -> str:
    """The answer to a command of one word or more that has no spaces inside; an error as it comes, behind a ``-``.

    :raises OSError: it can't be reached, hung up, or did not answer in a few seconds.
    """
    with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as connection:
        connection.settimeout(_PATIENCE)
        connection.connect(address)
        with connection.makefile("rb") as answers:
            if password:
                connection.sendall(f"AUTH {password}\r\n".encode())
                if (told := answers.readline()) != b"+OK\r\n":
                    return told.decode(errors="replace").strip()
            connection.sendall(f"{command}\r\n".encode())
            line = answers.readline().decode(errors="replace").strip()
            if not line:
                raise ConnectionResetError("the server hung up")
            return answers.read(int(line[1:])).decode(errors="replace") if line.startswith("$") else line
