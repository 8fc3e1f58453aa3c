"""Asks a Redis server one thing over a connection of its own.

Enough of the protocol to see whether a server answers and to set it up; a library would do more, but
would wait, retry and reconnect just where a test wants to see what is.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import BinaryIO, Final

Reply = str | int | None | list["Reply"]
Address = tuple[str, int] | Path

_PATIENCE: Final = 5.0


class CommandRefused(Exception):
    """The server answered with an error, which is the message."""


def ask(address: Address, *words: str | int, password: str = "", tls: bool = False) -> Reply:
    """Send one command and return the answer.

    :raises Refused: it answered with an error.
    :raises OSError: it can't be reached, hung up, or did not answer in a few seconds.
    """
    with _connect(address, tls) as connection, connection.makefile("rb") as answers:
        if password:
            connection.sendall(_command("AUTH", password))
            _read(answers)
        connection.sendall(_command(*words))
        return _read(answers)


def _connect(address: Address, tls: bool) -> socket.socket:
    if isinstance(address, Path):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_PATIENCE)
        try:
            connection.connect(str(address))
        except OSError:
            connection.close()
            raise
        return connection
    connection = socket.create_connection(address, _PATIENCE)
    if not tls:
        return connection
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        return context.wrap_socket(connection)
    except OSError:
        connection.close()
        raise


def _command(*words: str | int) -> bytes:
    encoded = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)


def _read(answers: BinaryIO) -> Reply:
    line = answers.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionResetError("the server hung up")
    mark, text = line[:1], line[1:-2].decode()
    match mark:
        case b"+":
            return text
        case b"-":
            raise CommandRefused(text)
        case b":":
            return int(text)
        case b"$" if text == "-1":
            return None
        case b"$":
            body = answers.read(int(text) + 2)
            if len(body) < int(text) + 2:
                raise ConnectionResetError("the server hung up")
            return body[:-2].decode(errors="replace")
        case b"*":
            return [_read(answers) for _ in range(int(text))]
    raise ConnectionResetError(f"not an answer of Redis: {line!r}")
