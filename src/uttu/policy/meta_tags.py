"""Read refreshes and robots directives from a page's ``<meta>`` elements and headers.

The engine needs both before the handler runs, so the tags are read without building a tree. The time is linear in the
length of the text, whatever it contains. Comments are skipped, and so is the content of elements that a browser with
scripts does not read as markup: ``<script>``, ``<style>``, ``<noscript>``, ``<template>``, ``<title>``, ``<textarea>``
and ``<iframe>``.

Refresh: ``<meta http-equiv=refresh>`` and the ``Refresh`` header are redirects that a browser follows after some
seconds. They are parsed by the HTML standard's "shared declarative refresh steps". Every page is checked and almost
none has a refresh, so :func:`may_refresh` searches for the word first.

Robots: ``<meta name=robots>`` and ``X-Robots-Tag`` address all robots or one by its name. The rules of both add up and
the stricter one wins. Only ``nofollow``, ``noindex`` and ``none`` (both) matter here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import unescape
from typing import Final, NamedTuple

import msgspec

_tag: Final = re.compile(
    r"<(?:(?P<comment>!--)|(?P<skipped>script|style|noscript|template|title|textarea|iframe)(?=[\s/>])"
    r"|(?P<wanted>meta|base)(?=[\s/>]))",
    re.IGNORECASE | re.ASCII,  # ASCII: in HTML only ASCII spaces end a name, and U+017F is not the letter s
).search
# An attribute, or the end of the tag. Any other character is skipped.
_attribute: Final = re.compile(
    r"""[\s/]*(?:(?P<end>>)|(?P<name>[^\s/>=][^\s/>=]*)(?:\s*=\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^\s>"'][^\s>]*))?)?)""",
    re.ASCII,
).match


def find_metas(text: str) -> Iterator[dict[str, str]]:
    """The attributes of each ``<meta>``, names in lower case. The first of several attributes with one name counts."""
    return (attributes for tag, attributes in find_tags(text) if tag == "meta")


def find_tags(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The name (``meta`` or ``base``) and the attributes of each such element."""
    index = 0
    lowered = ""
    while match := _tag(text, index):
        index = match.end()
        if match["comment"]:
            # Two characters back, because "<!-->" is a complete comment.
            end = text.find("-->", index - 2)
            if end < 0:
                return
            index = end + 3
        elif match["skipped"]:
            lowered = lowered or text.lower()
            end = lowered.find(f"</{match['skipped'].lower()}", index)
            if end < 0:
                return
            index = end + 2
        else:
            attributes, index = _attributes(text, index)
            if attributes is None:
                return
            yield match["wanted"].lower(), attributes


def _attributes(text: str, index: int) -> tuple[dict[str, str] | None, int]:
    """The attributes of the tag whose name ends at ``index`` (None if it is not closed), and the end of the tag."""
    attributes: dict[str, str] = {}
    while index < len(text):
        match = _attribute(text, index)
        if match is None:
            index += 1
            continue
        index = match.end()
        if match["end"]:
            return attributes, index
        value = match["double"] or match["single"] or match["bare"] or ""
        attributes.setdefault(match["name"].lower(), unescape(value))
    return None, index


REFRESH_BYTES: Final = 4096
"""How far into a page a refresh is looked for."""
MAX_REFRESH_SECONDS: Final = 100.0
"""Refreshes after more seconds than this are ignored: they are meant for people who read the page."""

_SPACE: Final = " \t\n\f\r"
_time: Final = re.compile(r"[ \t\n\f\r]*(?:([0-9]+)|(?=\.))[0-9.]*").match
_separator: Final = re.compile(r"[ \t\n\f\r]*[;,]?[ \t\n\f\r]*").match
_url_equals: Final = re.compile(r"url[ \t\n\f\r]*=[ \t\n\f\r]*", re.IGNORECASE).match


class Refresh(NamedTuple):
    """A refresh: ``url`` as written, empty for the page itself; ``base`` is the ``href`` of a ``<base>`` before it."""

    seconds: float
    url: str
    base: str = ""


def parse_refresh(content: str) -> Refresh | None:
    """Parse a ``content`` attribute or a ``Refresh`` header; None if browsers would ignore it."""
    match = _time(content)
    if match is None:
        return None
    # Cut to 300 digits, which float() still takes as a finite number.
    seconds = float((match[1] or "0")[:300])
    rest = content[match.end() :]
    if not rest:
        return Refresh(seconds, "")
    if rest[0] not in ";," + _SPACE:
        return None
    separator = _separator(rest)
    url = rest[separator.end() :] if separator else rest
    if equals := _url_equals(url):
        url = url[equals.end() :]
    elif url[:1].lower() == "u":
        return Refresh(seconds, url)  # no "url=", so a quote is a part of the URL
    if url[:1] in ("'", '"'):
        url = url[1:].partition(url[0])[0]
    return Refresh(seconds, url)


def may_refresh(body: bytes) -> bool:
    """Whether a page may have a refresh. Searches for the letter q of ``http-equiv`` first, which is rare and fast."""
    return (_has_equiv(body, b"q") or _has_equiv(body, b"Q")) and b"refresh" in body[:REFRESH_BYTES].lower()


def _has_equiv(body: bytes, letter: bytes) -> bool:
    index = body.find(letter, 0, REFRESH_BYTES)
    while index >= 0:
        if body[index - 1] in b"eE" and body[max(index - 2, 0) : index + 4].lower() == b"-equiv":
            return True
        index = body.find(letter, index + 1, REFRESH_BYTES)
    return False


def cut_prefix(body: bytes) -> bytes:
    """The first ``REFRESH_BYTES`` of a page, cut after the last ``>``, so that no character is split."""
    prefix = body[:REFRESH_BYTES]
    return prefix[: prefix.rfind(b">") + 1]


def find_refresh(text: str) -> Refresh | None:
    """The first refresh in the beginning of a page."""
    base: str | None = None
    for tag, attributes in find_tags(text):
        if tag == "base":
            base = attributes.get("href") if base is None else base
        elif attributes.get("http-equiv", "").strip(_SPACE).lower() == "refresh":
            refresh = parse_refresh(attributes.get("content", ""))
            if refresh is not None:
                return refresh._replace(base=base or "")
    return None


DIRECTIVE_BYTES: Final = 256 * 1024
"""How far into a page its ``<meta>`` elements are looked for."""

# Rules with a value after a colon, which are not names of robots.
_WITH_VALUE: Final = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})


class RobotsDirectives(msgspec.Struct, frozen=True):
    nofollow: bool = False
    noindex: bool = False

    def __or__(self, other: RobotsDirectives) -> RobotsDirectives:
        return RobotsDirectives(self.nofollow or other.nofollow, self.noindex or other.noindex)


def read_header(values: Iterable[str], token: str) -> RobotsDirectives:
    """The directives in ``X-Robots-Tag`` headers for one robot.

    In ``googlebot: noindex, nofollow`` the name applies to all directives after it in the same header.

    :param token: The product token of the robot's user agent.
    """
    directives = RobotsDirectives()
    for value in values:
        addressed = True
        for rule in value.lower().split(","):
            name, colon, rest = rule.partition(":")
            if colon and name.strip() not in _WITH_VALUE:
                addressed = name.strip() in (token, "*", "robots")
                rule = rest
            if addressed:
                directives |= _parse_rule(rule)
    return directives


def read_metas(text: str, token: str) -> RobotsDirectives:
    """The directives in the ``<meta>`` elements of a page for the robot with this product token."""
    directives = RobotsDirectives()
    for meta in find_metas(text):
        if meta.get("name", "").strip().lower() in ("robots", token or "robots"):
            for rule in meta.get("content", "").lower().split(","):
                directives |= _parse_rule(rule)
    return directives


def is_nofollow(rel: str) -> bool:
    """Whether a link with this ``rel`` attribute asks not to be followed."""
    return "nofollow" in rel.lower().split()


def _parse_rule(rule: str) -> RobotsDirectives:
    rule = rule.strip()
    return RobotsDirectives(rule in ("nofollow", "none"), rule in ("noindex", "none"))
