"""Match CSS in linear time, on trees that are deep or wide.

lexbor starts at each element that matches the last compound of a selector and goes up. At every descendant combinator
it tries all ancestors, one after the other: ``x div div div`` takes 0.8 s on 200 nested ``<div>``, and the time grows
with the fourth power of the depth. ``h1 ~ p`` tries all preceding siblings, and ``:nth-child(2)`` counts them anew for
each element, so both take quadratic time if an element has many children.

So a selector that may be slow on a tree (:meth:`Shape.is_costly`) is matched here from left to right. lexbor finds the
elements of each compound; those that are not in the right place relative to an element of the previous compound are
dropped. Each element is visited once per compound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import comb
from typing import Final

from selectolax.lexbor import LexborNode

from uttu.spider.query import SCOPE, Query, engine, scope_of

# Maximum number of elements that lexbor may visit for one query: about half a second.
_MOST_LOOKS: Final = 40_000_000
# Levels; ordinary pages are not deeper. lexbor takes 0.1 µs per element to find out.
_DEEP: Final = 40

_nth: Final = re.compile(
    r":nth-(?P<last>last-)?(?P<kind>child|of-type)\(\s*"
    r"(?:(?P<word>odd|even)|(?P<step>[+-]?\d{0,8})n\s*(?P<offset>[+-]\s*\d{1,8})?|(?P<index>[+-]?\d{1,8}))\s*\)",
    re.IGNORECASE,
)
_Condition = Callable[[LexborNode], bool]


class Shape:
    """The size and depth of a tree, as far as queries have needed them."""

    __slots__ = ("_deeper_than", "_known", "_root", "_shallower_than", "_tags")

    def __init__(self, root: LexborNode) -> None:
        self._root = root
        self._tags = 0
        self._known: dict[tuple[int, int, bool], bool] = {}
        self._deeper_than = 0
        self._shallower_than = 1_000_000

    def is_costly(self, query: Query) -> bool:
        """Whether lexbor may be slow for a query that has ``chains``."""
        kind = (query.climbs, query.walks, query.counts)
        if kind not in self._known:
            self._known[kind] = self._judge(query)
        return self._known[kind]

    def _judge(self, query: Query) -> bool:
        tags = self._tags = self._tags or self._root.parser.raw_html.count(b"<") + 4
        walked: int = tags ** (1 + max(query.walks, query.counts))
        if walked > _MOST_LOOKS or query.climbs < 2:
            return walked > _MOST_LOOKS
        depth = _harmless_depth(tags.bit_length(), query.climbs, query.walks, _MOST_LOOKS)
        return depth < tags and self._is_deeper_than(depth)

    def _is_deeper_than(self, depth: int) -> bool:
        if depth >= self._shallower_than:
            return False
        if depth > self._deeper_than:
            # If an element has this depth, so does the first child of its parent, so it is enough to look for that.
            chain = "* > " * depth + ":first-child"
            if not engine.find_first(chain, self._root):  # type: ignore[attr-defined]
                self._shallower_than = depth
                return False
            self._deeper_than = depth
        return True


@lru_cache(maxsize=1024)
def _harmless_depth(bits: int, climbs: int, walks: int, most: int) -> int:
    """The depth up to which lexbor visits at most ``most`` elements of a tree with ``2**bits`` tags.

    HTML reopens unclosed formatting elements in each block, so there may be ``depth`` elements for each tag.
    """
    depth = climbs
    while depth < _DEEP and 2 ** (bits * (1 + walks)) * comb(depth + 3, climbs + 1) <= most:
        depth += 1
    return depth


def find_by_levels(query: Query, node: LexborNode) -> list[LexborNode]:
    """The elements within ``node`` that match, in document order: the same that lexbor finds."""
    start = node.parent if query.beside and node.parent is not None else node
    node.attrs[SCOPE] = ""
    try:
        found = [_match(chain, node, start) for chain in query.chains]
    finally:
        del node.attrs[SCOPE]
    if len(found) == 1:
        return found[0]
    wanted = {each.mem_id for nodes in found for each in nodes}
    inside: Iterable[LexborNode] = engine.find("*", start)
    return [each for each in inside if each.mem_id in wanted]


def _match(chain: Sequence[str], node: LexborNode, start: LexborNode) -> list[LexborNode]:
    found = _find(scope_of(chain[0]), node)
    for part in chain[1:]:
        if not found:
            break
        compound = part.lstrip(" \t\r\n\f>+~")
        combinator = part[: len(part) - len(compound)].strip() or " "
        holds = _CONDITIONS[combinator]({each.mem_id for each in found})
        found = [each for each in _find(compound, start) if holds(each)]
    return found


def _find(compound: str, start: LexborNode) -> list[LexborNode]:
    """The elements that match a compound. ``:nth-child()`` and similar conditions are counted here."""
    base, conditions = compound, []
    if "[" not in compound and "(" not in (rest := _nth.sub("", compound)):
        base = rest or "*"
        conditions = [_is_nth(each) for each in _nth.finditer(compound)]
    found: list[LexborNode] = engine.find(base, start)
    for condition in conditions:
        found = [each for each in found if condition(each)]
    return found


def _has_ancestor(wanted: set[int]) -> _Condition:
    return _leads_to(wanted, lambda node: node.parent)


def _has_sibling_before(wanted: set[int]) -> _Condition:
    return _leads_to(wanted, lambda node: node.prev)


def _leads_to(wanted: set[int], step: Callable[[LexborNode], LexborNode | None]) -> _Condition:
    """Whether repeated steps from a node lead to a wanted one. Results are cached, so each step is done once."""
    known: dict[int, bool] = {}

    def condition(node: LexborNode) -> bool:
        passed = []
        leads = False
        other = step(node)
        while other is not None:
            place = other.mem_id
            if place in wanted:
                leads = True
                break
            if place in known:
                leads = known[place]
                break
            passed.append(place)
            other = step(other)
        known.update(dict.fromkeys(passed, leads))
        return leads

    return condition


def _has_parent(wanted: set[int]) -> _Condition:
    return lambda node: node.parent is not None and node.parent.mem_id in wanted


def _is_next_to(wanted: set[int]) -> _Condition:
    def condition(node: LexborNode) -> bool:
        before = node.prev
        while before is not None and not before.is_element_node:
            before = before.prev
        return before is not None and before.mem_id in wanted

    return condition


_CONDITIONS: Final[dict[str, Callable[[set[int]], _Condition]]] = {
    " ": _has_ancestor,
    ">": _has_parent,
    "+": _is_next_to,
    "~": _has_sibling_before,
}


def _is_nth(found: re.Match[str]) -> _Condition:
    if found["word"]:
        step, offset = 2, int(found["word"].lower() == "odd")
    elif found["index"]:
        step, offset = 0, int(found["index"])
    else:
        step = int(found["step"] + "1" if found["step"] in ("", "+", "-") else found["step"])
        offset = int("".join((found["offset"] or "0").split()))
    by_tag, from_end = found["kind"].lower() != "child", bool(found["last"])
    places: dict[int, int] = {}

    def condition(node: LexborNode) -> bool:
        if node.mem_id not in places:
            _count(node, places, by_tag=by_tag, from_end=from_end)
        place = places[node.mem_id] - offset
        return place == 0 if step == 0 else place % step == 0 and place // step >= 0

    return condition


def _count(node: LexborNode, places: dict[int, int], *, by_tag: bool, from_end: bool) -> None:
    """Store the positions of all children of the node's parent, counted from 1."""
    if node.parent is None:
        places[node.mem_id] = 1
        return
    children = [child for child in node.parent.iter() if child.is_element_node]
    counts: dict[str | None, int] = {}
    for child in reversed(children) if from_end else children:
        kind = child.tag if by_tag else ""
        counts[kind] = places[child.mem_id] = counts.get(kind, 0) + 1
