"""Hosts that harm crawlers, by accident or on purpose. Each kind of harm has its own host and address.

``python -m uttu.testing.site.hostile --list`` prints the kinds. ``python -m tests.harness.nemesis.hostile`` measures
how a crawl copes with them. Groups:

============  ===================================================================================
``content``   HTML: depth, counts, sizes, links (:mod:`.content`)
``charsets``  bytes that are not what their label says (:mod:`.charsets`)
``documents`` JSON, XML, feeds (:mod:`.documents`)
``codings``   Content-Encoding: bombs, members, lies (:mod:`.codings`)
``http1``     HTTP/1: slow, endless, contradictory (:mod:`.http1`)
``tls``       certificates, handshakes, and the two groups above over TLS (:mod:`.tls`)
``http2``     frames that no library sends (:mod:`.http2`)
``robots``    robots.txt (:mod:`.robots`)
``sitemaps``  sitemaps (:mod:`.sitemaps`)
``cookies``, ``redirects``, ``rates``, ``traps``  well-formed, but harmful (:mod:`.manners`)
============  ===================================================================================
"""

from typing import Final

from uttu.testing.site.hostile import (
    charsets,
    codings,
    content,
    documents,
    http1,
    http2,
    manners,
    robots,
    sitemaps,
    tls,
)
from uttu.testing.site.hostile.model import Kind, matching
from uttu.testing.site.hostile.process import HostileProcess

KINDS: Final[tuple[Kind, ...]] = (
    *content.KINDS,
    *charsets.KINDS,
    *documents.KINDS,
    *codings.KINDS,
    *http1.KINDS,
    *tls.KINDS,
    *http2.KINDS,
    *robots.KINDS,
    *sitemaps.KINDS,
    *manners.KINDS,
)

__all__ = ["KINDS", "HostileProcess", "Kind", "matching"]
