"""Weft: a distributed web crawler. One spider file, from a laptop to a fleet."""

from weft.errors import WeftError
from weft.model import Request, Response
from weft.spider import Failure, Page, Selection, Spider
from weft.version import __version__

__all__ = ["Failure", "Page", "Request", "Response", "Selection", "Spider", "WeftError", "__version__"]
