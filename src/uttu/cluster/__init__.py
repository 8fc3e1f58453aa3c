"""Agree in a fleet: members, locks, leaders and live configuration, with ZooKeeper, Redis, or nothing to install.

``base`` is the contract, a tree of nodes; ``locks``, ``members`` and ``config`` are built on top of it; ``session`` and
``watching`` are what technologies share; beside them a file or folder per technology. Programs use the names below::

    cluster = await connect("zookeeper://127.0.0.1")
    async with Lock(cluster, "login:shop", seconds=30) as token:
        ...
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uttu.cluster.base import Check, Coordinator, Create, Delete, Node, SessionState, Write
    from uttu.cluster.config import LiveConfig
    from uttu.cluster.locks import Election, Lock
    from uttu.cluster.members import Membership

__all__ = [
    "Check",
    "Coordinator",
    "Create",
    "Delete",
    "Election",
    "LiveConfig",
    "Lock",
    "Membership",
    "Node",
    "SessionState",
    "Write",
    "connect",
]

_MODULES = {"Election": "locks", "LiveConfig": "config", "Lock": "locks", "Membership": "members"}


async def connect(url: str, session_seconds: float = 10.0) -> Coordinator:
    """Connect to the coordinator at ``url``; end the session with ``await cluster.close()``.

    :param url: ``local:FOLDER``, ``redis://…`` or ``zookeeper://HOST,HOST2/PATH``.
    :param session_seconds: how long the fleet waits for a process that does not answer.
    :raises ConfigError: the URL is not that of a coordinator, or it needs an extra that is not installed.
    :raises ClusterError: it can't be reached, or refuses.
    """
    # By its name: the registry imports every coordinator, so this package must not import it.
    opened: Coordinator = await import_module("uttu.runtime.registry").open_coordinator(url, session_seconds)
    return opened


def __getattr__(name: str) -> Any:
    # Looked up when first asked for, so that importing one module of this package stays light.
    if name not in __all__:
        raise AttributeError(f"module 'uttu.cluster' has no attribute {name!r}")
    module = import_module(f"uttu.cluster.{_MODULES.get(name, 'base')}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
