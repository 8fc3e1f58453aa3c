"""A web site made for testing crawlers: ordinary pages, a shop, oddities, traps, and a log of who asked for what.

In this process: ``async with serve(Site()) as running``; in another one: ``with SiteProcess(Site()) as site``.
"""

from weft.testing.site.log import Record, fetches, gaps, overlaps
from weft.testing.site.model import Site
from weft.testing.site.process import SiteProcess
from weft.testing.site.server import Running, serve

__all__ = ["Record", "Running", "Site", "SiteProcess", "fetches", "gaps", "overlaps", "serve"]
