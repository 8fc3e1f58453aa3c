"""A web site for testing crawlers: ordinary pages, a shop, oddities, traps, and a log of all requests.

In this process: ``async with serve(Site()) as running``. In another one: ``with SiteProcess(Site()) as site``. It
listens on loopback addresses only.
"""

from uttu.testing.site.log import Record, fetches, gaps, overlaps
from uttu.testing.site.model import Site
from uttu.testing.site.process import SiteProcess
from uttu.testing.site.server import Running, serve

__all__ = ["Record", "Running", "Site", "SiteProcess", "fetches", "gaps", "overlaps", "serve"]
