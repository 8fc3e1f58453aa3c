"""Decide whether a response is HTML or XML.

``Content-Type`` decides, except that

- a feed or sitemap is XML, whatever its type, and ``<html>`` is HTML, also as ``application/xml``;
- a document that begins with ``<?xml`` is XML if its type is neither HTML nor XML, or missing, or if its type is
  ``text/html`` and its root is not one of ``_HTML_ROOTS``: PHP serves all documents as ``text/html`` by default.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from uttu.model import Response

_SNIFFED_BYTES: Final = 4096  # bytes at the beginning of a body in which is_xml looks for the first element
# Matches declarations, comments, doctypes and processing instructions, then the first element.
_match_first_element: Final = re.compile(
    rb"(?:\s|<\?[^>]*>|<!--(?>.*?-->)|<!DOCTYPE(?:[^\[>]|\[[^\]]*\])*+>)*+<(?:[\w.-]+:)?([A-Za-z][\w.-]*)",
    re.DOTALL | re.I,
).match
_FEED_ROOTS: Final = frozenset((b"rss", b"feed", b"rdf", b"urlset", b"sitemapindex", b"opml"))
# The first elements of HTML documents and of parts of them, which may begin with "<?xml", too.
_HTML_ROOTS: Final = frozenset(
    b"a article aside b base blockquote body br center div dl em fieldset figure font footer form frameset h1 h2 h3 h4 "
    b"h5 h6 head header hr html i iframe img input li link main meta nav noscript ol option p pre script section "
    b"select small span strong style svg table tbody td template tr u ul video".split()
)
_FEED_BEGINNINGS: Final = (b"<?xml", b"<rss", b"<feed", b"<rdf", b"<urls", b"<site", b"<opml")


def is_xml(response: Response) -> bool:
    """Whether to parse a response as XML."""
    media_type = _get_media_type(response.headers.get("content-type") or "")
    body = response.body
    if media_type == "text/html" and (
        body[:2] == b"<!" or not _strip_beginning(body[:64]).lower().startswith(_FEED_BEGINNINGS)
    ):
        return False
    start = _strip_beginning(body[:_SNIFFED_BYTES])
    match = _match_first_element(start)
    root = match[1].lower() if match else b""
    if root in _FEED_ROOTS:
        return True
    has_html_doctype = b"<!doctype html" in start[: match.start(1) if match else 14].lower()
    if root == b"html" or media_type == "application/xhtml+xml" or has_html_doctype:
        return False
    if media_type == "text/html":
        return start.startswith(b"<?xml") and root != b"" and root not in _HTML_ROOTS
    return media_type.endswith(("/xml", "+xml")) or start.startswith(b"<?xml")


@lru_cache(maxsize=256)
def _get_media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _strip_beginning(body: bytes) -> bytes:
    """The first bytes, without a byte order mark. Zero bytes are dropped, so that UTF-16 reads as ASCII."""
    return (
        body.removeprefix(b"\xef\xbb\xbf")
        .removeprefix(b"\xff\xfe")
        .removeprefix(b"\xfe\xff")
        .replace(b"\0", b"")
        .lstrip()
    )
