"""Publish and subscribe messages between programs, on RabbitMQ, Kafka, Redis or in memory.

``base`` is the contract, ``topics`` the names, ``backend`` what every broker's bus shares; beside them a file or folder
per technology. Programs use the names below: ``bus = await connect("redis://127.0.0.1:6379")``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uttu.bus.base import (
        Bus,
        Capability,
        Delivery,
        Group,
        HeaderFilter,
        Message,
        Rejected,
        SubscribeOptions,
        Subscription,
    )

__all__ = [
    "Bus",
    "Capability",
    "Delivery",
    "Group",
    "HeaderFilter",
    "Message",
    "Rejected",
    "SubscribeOptions",
    "Subscription",
    "connect",
]


async def connect(url: str) -> Bus:
    """Connect to the message broker at ``url``; close the bus with ``await bus.close()``.

    :raises ConfigError: the URL is not that of a broker, or the broker needs an extra that is not installed.
    :raises BusError: the broker can't be reached, or refuses.
    """
    # By its name: the registry imports every bus, so this package must not import it.
    bus: Bus = await import_module("uttu.runtime.registry").open_bus(url)
    return bus


def __getattr__(name: str) -> Any:
    # Looked up when first asked for, so that importing one module of this package stays light.
    if name not in __all__:
        raise AttributeError(f"module 'uttu.bus' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module("uttu.bus.base"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
