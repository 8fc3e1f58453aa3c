"""Parse HTML, within bounds.

lexbor builds the tree of a page that browsers build, in linear time for ordinary pages. On hostile pages it takes
quadratic time or memory, and nothing can stop it once it has begun: 80,000 nested ``<div>`` take 15 s, a million
attributes of one element 20 minutes, and 13 KB of unclosed ``<b a=1><b a=2>…`` followed by ``<p>x<p>x…`` become a
million elements and 370 MB, because HTML opens unclosed formatting elements again in every paragraph.

So a page is checked before it is parsed, in three steps. Each step is only for the few pages that may still be slow
after the step before:

1. ``_is_surely_cheap``: its size, its number of ``<``, its formatting elements with attributes, the length of its tags.
   This takes 0.3 ns a byte and, for more than 1,200 tags, 18 ns a tag: 5 to 10 % of the time of parsing. The second
   pass also tells whether the source has a ``<base>``, ``<table>`` or ``<template>``, so that the tree of a large page
   is seldom searched for them.
2. :class:`TagSurvey`: a pass over its tags with a stack of the open ones. It takes 15 times as long as parsing.
3. If that exceeds a bound: the source is rewritten, so that its tree stays within the bounds.

The bounds are in :mod:`uttu.spider.html_rewriter`. A page that is rewritten is logged. The worst known page of 16 MB
takes about a second and 150 MB.

selectolax releases the GIL while it parses, so :func:`parse` can run in a thread.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import Final

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode

from uttu.spider.html_rewriter import ATTRIBUTE, FORMATTING, MAX_ATTRIBUTES, MAX_ELEMENTS, NAME, TagSurvey, any_case

THREAD_BYTES: Final = 256 * 1024
LOOP_BYTES: Final = 1024 * 1024
"""Pages larger than ``THREAD_BYTES`` are parsed in a thread, unless :func:`parse_if_cheap` parses them.

Parsing takes 5 to 7 ms a megabyte, and a thread with its memory up to 1 ms. Most real pages have 100 to 500 KB.
"""

# Any page below these bounds takes at most 0.4 s and 200 MB; measured with the worst known pages.
_SMALL_BYTES: Final = 6 * 1024
_FEW_TAGS: Final = 1_200
_MANY_TAGS: Final = 16_000
_SHORT_TAG: Final = 40 * 1024
_MAX_REOPENED: Final = 600_000
"""Formatting elements with attributes, times tags: as many elements can come of them."""
_MAX_ALIKE: Final = 3
"""HTML opens at most this many formatting elements again that have the same name and attributes."""
_WINDOW: Final = 16 * 1024
_SAMPLE_EVERY: Final = 128 * 1024
_FEW_NAMES: Final = 2_000
_LARGE_BYTES: Final = 2 * 1024 * 1024

# The tree as it is written, without the changes that browsers make after parsing; it is also a little faster.
_OPTIONS: Final = int(LexborDocumentOptions.WO_EVENTS)
_log = logging.getLogger("uttu.html")

SOUGHT: Final = frozenset(("base", "table", "template"))
"""Elements that are looked for in every page, and that few large pages have."""

_FORMATTING: Final = any_case(b"|".join(sorted(FORMATTING)))
# Finds the tags of formatting elements with attributes, up to the next "<" or ">", and "<" with the first three letters
# of SOUGHT. It also finds some others, such as <form>, because it only checks a few letters, which is faster.
_find_formatting_or_sought: Final = re.compile(
    rb"<[bisuetfcnBISUETFCN](?:[\t\n\f\r /mtioMTIO]"
    rb"(?:(?<=[\t\n\f\r /])|(?<=[eEtT][mMtT])[\t\n\f\r /]|(?<=[bsfcnBSFCN][mtioMTIO])[a-zA-Z]{1,4}[\t\n\f\r /])"
    rb"[^<>]*+>?|[aAeE][bBmMsS])"
).findall
_is_formatting: Final = re.compile(rb"<(?:%s)[\t\n\f\r /]" % _FORMATTING).match
# A formatting element whose tag ends at the first ">" beyond doubt. If two have the same text, they are alike.
_is_plain_formatting: Final = re.compile(
    rb"<(?:%s)(?:[\t\n\f\r ]+[a-zA-Z][a-zA-Z0-9_:.-]*"
    rb"(?:=(?:\"[^\"<>]*\"|'[^'<>]*'|[^\t\n\f\r \"'`=<>/]+))?)+[\t\n\f\r ]*>" % _FORMATTING
).fullmatch
_too_many_attributes: Final = re.compile(rb"</?%s(?:%s){%d}" % (NAME, ATTRIBUTE, MAX_ATTRIBUTES + 1))
_remove_quoted: Final = re.compile(rb"\"[^\"]*\"|'[^']*'").sub
_find_tags: Final = re.compile(rb"<[a-zA-Z][^<>]*").findall
_find_names: Final = re.compile(rb"[^\t\n\f\r \"'/=<>]+").findall


def parse(body: bytes) -> LexborHTMLParser:
    """The tree of a page in UTF-8, within the bounds of this module."""
    tree = parse_if_cheap(body)
    if tree is not None:
        return tree
    body = _cut_at_limit(body)
    if TagSurvey(body, rewrite=False).exceeds:
        _log.warning("Rewriting a page of %d bytes that exceeds the bounds of HTML", len(body))
        body = b"".join(TagSurvey(body, rewrite=True).pieces)
    return LexborHTMLParser(body, options=_OPTIONS)


def parse_if_cheap(body: bytes) -> LexborHTMLParser | None:
    """The tree of a page that surely parses in linear time; None for others."""
    if len(body) <= _SMALL_BYTES:
        return LexborHTMLParser(body, options=_OPTIONS)
    tags = body.count(b"<")
    tags_found: list[bytes] | None = _find_formatting_or_sought(body) if _FEW_TAGS < tags <= _MANY_TAGS else None
    if not _is_surely_cheap(body, tags, tags_found):
        return None
    if tags_found is None:
        return LexborHTMLParser(body, options=_OPTIONS)
    return _SearchedParser(body, _find_absent(tags_found))


class _SearchedParser(LexborHTMLParser):
    """A parser whose source was searched for the elements ``SOUGHT``, and has none of those in ``absent``."""

    __slots__ = ("_absent",)

    def __init__(self, body: bytes, absent: frozenset[str]) -> None:
        super().__init__(body, options=_OPTIONS)
        self._absent = absent

    def tags(self, name: str) -> list[LexborNode]:
        return [] if name in self._absent else super().tags(name)


def find_base_href(root: LexborNode) -> str | None:
    """The ``href`` of the first ``<base>`` that has one, anywhere in the page; else None."""
    for base in root.parser.tags("base"):
        attributes = base.attributes
        # In SVG, "base" is another element; there it is not void, so its HTML has an end tag.
        if "href" in attributes and not (base.html or "").endswith("</base>") and not _is_in_template(base):
            return attributes["href"] or ""
    return None


def has_base_in_noscript(body: bytes) -> bool:
    """Whether the source has a ``<base>`` in a ``<noscript>``."""
    source = body.lower()
    start = source.find(b"<noscript")
    while start >= 0:
        end = source.find(b"</noscript", start)
        if source.find(b"<base", start, end if end >= 0 else len(source)) >= 0:
            return True
        start = source.find(b"<noscript", end) if end >= 0 else -1
    return False


def _is_in_template(node: LexborNode) -> bool:
    """Whether a node is in a template. Selections include the content of templates, but browsers do not use it."""
    parent = node.parent
    while parent is not None and parent.tag != "template":
        parent = parent.parent
    return parent is not None


def _is_surely_cheap(body: bytes, tags: int, tags_found: list[bytes] | None) -> bool:
    """Whether the page surely parses in linear time. The checks are much cheaper than parsing.

    :param tags_found: the matches of ``_find_formatting_or_sought``; None if the number of tags makes it unnecessary.
    """
    size = len(body)
    if tags > _MANY_TAGS:
        return False
    if tags_found:
        formatting = [each for each in tags_found if not _is_sought(each)]
        count = len(formatting)
        if count * (tags - count) > _MAX_REOPENED:
            formatting = list(filter(_is_formatting, formatting))
            count = len(formatting) - _count_alike(formatting)
            if count * (tags - count) > _MAX_REOPENED:
                return False
    if size > _LARGE_BYTES:
        return _too_many_attributes.search(body) is None and not _has_many_names(body)
    if size > THREAD_BYTES and _has_many_names(body):
        return False
    return size <= _SHORT_TAG or not _has_long_tag(body)


def _is_sought(found: bytes) -> bool:
    """Whether a match of ``_find_formatting_or_sought`` is the beginning of an element of ``SOUGHT``."""
    return len(found) == 4 and found[1:].isalpha()


def _count_alike(formatting: list[bytes]) -> int:
    """How many formatting elements are never opened again: ``_MAX_ALIKE`` others have the same name and attributes."""
    counts = Counter(formatting).items()
    return sum(count - _MAX_ALIKE for tag, count in counts if count > _MAX_ALIKE and _is_plain_formatting(tag))


def _find_absent(tags_found: list[bytes]) -> frozenset[str]:
    """The elements of ``SOUGHT`` that ``_find_formatting_or_sought`` did not find."""
    beginnings = {each.lower() for each in set(tags_found) if _is_sought(each)}
    return frozenset(name for name in SOUGHT if b"<" + name[:3].encode() not in beginnings)


def _has_long_tag(body: bytes) -> bool:
    """Whether a tag that fills a window has too many attributes.

    Such a window has no ``<`` or no ``>``, unless its attributes quote both. Most of these windows are in scripts.
    """
    tag_start = checked = -1
    for start in range(_WINDOW, len(body) - _WINDOW, _WINDOW):
        tag_start = max(tag_start, body.rfind(b"<", start - _WINDOW, start))
        if body.find(b">", start, start + _WINDOW) < 0 or body.find(b"<", start, start + _WINDOW) < 0:
            if tag_start > checked and _too_many_attributes.match(body, tag_start):
                return True
            checked = tag_start
    return False


def _has_many_names(body: bytes) -> bool:
    """Whether samples of a large page have many different names of attributes."""
    names: set[bytes] = set()
    for start in range(_SAMPLE_EVERY, len(body), _SAMPLE_EVERY):
        names.update(_find_names(_remove_quoted(b"", b" ".join(_find_tags(body[start : start + _WINDOW])))))
    return len(names) > _FEW_NAMES


def _cut_at_limit(body: bytes) -> bytes:
    """Cut the page after four times as many ``<`` as a page may have elements."""
    remaining = 4 * MAX_ELEMENTS
    for start in range(0, len(body), _WINDOW):
        remaining -= body.count(b"<", start, start + _WINDOW)
        if remaining < 0:
            _log.warning("Cutting a page of %d bytes that exceeds the bounds of HTML", len(body))
            return body[:start]
    return body
