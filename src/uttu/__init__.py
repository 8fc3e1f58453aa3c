"""Uttu: a distributed web crawler. One spider file, from a laptop to a fleet.

These are the public names for spiders and programs, imported on first use: the ``uttu`` command starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uttu.errors import UttuError
    from uttu.model import Request, Response
    from uttu.runtime.crawl import CrawlSummary
    from uttu.runtime.run import run, run_async, stream
    from uttu.spider import Failure, Page, Selection, Spider

__all__ = [
    "CrawlSummary",
    "Failure",
    "Page",
    "Request",
    "Response",
    "Selection",
    "Spider",
    "UttuError",
    "__version__",
    "run",
    "run_async",
    "stream",
]

__version__ = "0.1.0"

# Looked up when first asked for: the command line imports this package, too, and must answer at once.
_WHERE = {
    "CrawlSummary": "uttu.runtime.crawl",
    "Failure": "uttu.spider",
    "Page": "uttu.spider",
    "Request": "uttu.model",
    "Response": "uttu.model",
    "Selection": "uttu.spider",
    "Spider": "uttu.spider",
    "UttuError": "uttu.errors",
    "run": "uttu.runtime.run",
    "run_async": "uttu.runtime.run",
    "stream": "uttu.runtime.run",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'uttu' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
