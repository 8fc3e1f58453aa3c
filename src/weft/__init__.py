"""Weft: a distributed web crawler. One spider file, from a laptop to a fleet."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from weft.version import __version__

if TYPE_CHECKING:
    from weft.errors import WeftError
    from weft.model import Request, Response
    from weft.spider import Failure, Page, Selection, Spider

__all__ = ["Failure", "Page", "Request", "Response", "Selection", "Spider", "WeftError", "__version__"]

# Looked up when first asked for: the command line imports this package, too, and must answer at once.
_WHERE = {
    "Failure": "weft.spider",
    "Page": "weft.spider",
    "Request": "weft.model",
    "Response": "weft.model",
    "Selection": "weft.spider",
    "Spider": "weft.spider",
    "WeftError": "weft.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return value
