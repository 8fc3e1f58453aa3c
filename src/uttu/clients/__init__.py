"""Addresses, connections and error mapping for each kind of server, shared by all backends that use it.

One folder or module per kind of server: ``redis``, ``amqp``, ``kafka``. No module here knows whether it serves a bus or
a frontier.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class ConnectionState(StrEnum):
    """What a client says of its connection to a server."""

    UP = "connected"
    LOST = "lost, and being restored"
    CLOSED = "closed"


ConnectionListener = Callable[[ConnectionState, str], None]
"""Called on every change with the new state and what happened."""
