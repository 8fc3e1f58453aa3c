"""The bus that a command is about."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import typer

from weft import assembly, config
from weft.bus.base import Bus


@contextlib.asynccontextmanager
async def bus_at(url: str) -> AsyncIterator[Bus]:
    """The bus at a URL; the one of the settings without it.

    :raises ConfigError: there is nothing of that kind.
    :raises BusError: it can't be reached, or says no.
    """
    async with assembly.opened_bus(url_of(url)) as bus:
        yield bus


def url_of(url: str) -> str:
    """What was given, or what is set. Neither is wrong usage."""
    found = url or config.load_bus()
    if not found:
        raise typer.BadParameter("say which bus: --bus URL, or the setting bus in weft.toml or WEFT_BUS")
    return found
