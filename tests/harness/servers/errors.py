"""What can go wrong with a server of one's own."""

from __future__ import annotations


class ServerError(RuntimeError):
    """A server did not start, did not answer or did not come to the state that was waited for; with its last words."""


class ServerMissing(ServerError):
    """The program is not installed; the message says how to get it."""
