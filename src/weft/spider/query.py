"""CSS queries with parsel's two additions, ``::text`` and ``::attr(name)``, taken apart."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

Take = Literal["element", "text", "all_text", "attribute"]

_PSEUDO = re.compile(r"(?P<css>.*?)(?P<space>\s*)::(?:(?P<text>text)|attr\(\s*(?P<name>[\w:.-]+)\s*\))\s*", re.DOTALL)

_TAG = re.compile(r"[A-Za-z][A-Za-z0-9]*").fullmatch


class Query(NamedTuple):
    """Which elements, and what of each: itself, its own text nodes, all text below it, an attribute.

    ``is_tag``: the selector is nothing but the name of an element.
    """

    css: str
    take: Take
    name: str = ""
    is_tag: bool = False


@lru_cache(maxsize=1024)
def parse(query: str) -> tuple[Query, ...]:
    """A query list; parts that take the same are one query, so their matches stay in document order.

    :raises ValueError: an unknown pseudo-element.
    """
    if "::" not in query:
        return (_query([query], "element"),)
    merged: dict[tuple[Take, str], list[str]] = {}
    for part in _split(query):
        one = _parse_one(part)
        merged.setdefault((one.take, one.name), []).append(one.css)
    return tuple(_query(parts, take, name) for (take, name), parts in merged.items())


def _query(parts: list[str], take: Take, name: str = "") -> Query:
    css = ", ".join(parts).strip()
    return Query(css, take, name, bool(_TAG(css)))


def _parse_one(part: str) -> Query:
    if "::" not in part:
        return Query(part.strip(), "element")
    found = _PSEUDO.fullmatch(part)
    if not found:
        raise ValueError(f"in the selector {part.strip()!r}: only ::text and ::attr(name) can follow '::'")
    css = found["css"].strip() or "*"
    if found["name"]:
        return Query(css, "attribute", found["name"])
    return Query(css, "all_text" if found["space"] and found["css"].strip() else "text")


def _split(query: str) -> list[str]:
    """At commas that stand in no bracket and no string."""
    parts, depth, quote, start = [], 0, "", 0
    for index, character in enumerate(query):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(query[start:index])
            start = index + 1
    parts.append(query[start:])
    return parts
