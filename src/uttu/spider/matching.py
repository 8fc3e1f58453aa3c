"""Match CSS in linear time, on trees that are deep or wide.

lexbor starts at each element that matches the last compound of a selector and goes up. At every descendant combinator
it tries all ancestors, one after the other: ``x div div div`` takes 0.8 s on 200 nested ``<div>``, and the time grows
with the fourth power of the depth. ``h1 ~ p`` tries all preceding siblings, and ``:nth-child(2)`` counts them anew for
each element, so both take quadratic time if an element has many children.

So a selector that may be slow on a tree (:meth:`CostEstimator.is_costly`) is matched here from left to right. lexbor
finds the elements of each compound; those that are not in the right place relative to an element of the previous
compound are dropped. Each element is visited once per compound.
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
_MAX_VISITS: Final = 40_000_000
# Levels; ordinary pages are not deeper. lexbor takes 0.1 µs per element to find out.
_USUAL_DEPTH: Final = 40

_NTH: Final = re.compile(
    r":nth-(?P<last>last-)?(?P<kind>child|of-type)\(\s*"
    r"(?:(?P<word>odd|even)|(?P<step>[+-]?\d{0,8})n\s*(?P<offset>[+-]\s*\d{1,8})?|(?P<index>[+-]?\d{1,8}))\s*\)",
    re.IGNORECASE,
)
_Condition = Callable[[LexborNode], bool]


class CostEstimator:
    """Estimates what queries cost on one tree, from its size and depth. These are computed when first needed."""

    __slots__ = ("_deeper_than", "_root", "_shallower_than", "_tags", "_verdicts")

    def __init__(self, root: LexborNode) -> None:
        self._root = root
        self._tags = 0
        self._verdicts: dict[tuple[int, int, bool], bool] = {}
        self._deeper_than = 0
        self._shallower_than = 1_000_000

    def is_costly(self, query: Query) -> bool:
        """Whether lexbor may be slow for a query that has ``chains``."""
        kind = (query.descendant_steps, query.sibling_steps, query.counts_siblings)
        if kind not in self._verdicts:
            self._verdicts[kind] = self._estimate(query)
        return self._verdicts[kind]

    def _estimate(self, query: Query) -> bool:
        tags = self._tags = self._tags or self._root.parser.raw_html.count(b"<") + 4
        walked: int = tags ** (1 + max(query.sibling_steps, query.counts_siblings))
        if walked > _MAX_VISITS or query.descendant_steps < 2:
            return walked > _MAX_VISITS
        depth = _find_safe_depth(tags.bit_length(), query.descendant_steps, query.sibling_steps, _MAX_VISITS)
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
def _find_safe_depth(bits: int, descendant_steps: int, sibling_steps: int, max_visits: int) -> int:
    """The depth up to which lexbor visits at most ``max_visits`` elements of a tree with ``2**bits`` tags.

    HTML reopens unclosed formatting elements in each block, so there may be ``depth`` elements for each tag.
    """
    depth = descendant_steps
    while (
        depth < _USUAL_DEPTH and 2 ** (bits * (1 + sibling_steps)) * comb(depth + 3, descendant_steps + 1) <= max_visits
    ):
        depth += 1
    return depth


def find_by_levels(query: Query, node: LexborNode) -> list[LexborNode]:
    """The elements within ``node`` that match, in document order: the same that lexbor finds."""
    start = node.parent if query.includes_siblings and node.parent is not None else node
    node.attrs[SCOPE] = ""
    try:
        matches = [_match(chain, node, start) for chain in query.chains]
    finally:
        del node.attrs[SCOPE]
    if len(matches) == 1:
        return matches[0]
    wanted = {each.mem_id for nodes in matches for each in nodes}
    inside: Iterable[LexborNode] = engine.find("*", start)
    return [each for each in inside if each.mem_id in wanted]


def _match(chain: Sequence[str], node: LexborNode, start: LexborNode) -> list[LexborNode]:
    matches = _find(scope_of(chain[0]), node)
    for part in chain[1:]:
        if not matches:
            break
        compound = part.lstrip(" \t\r\n\f>+~")
        combinator = part[: len(part) - len(compound)].strip() or " "
        holds = _CONDITIONS[combinator]({each.mem_id for each in matches})
        matches = [each for each in _find(compound, start) if holds(each)]
    return matches


def _find(compound: str, start: LexborNode) -> list[LexborNode]:
    """The elements that match a compound. ``:nth-child()`` and similar conditions are counted here."""
    base, conditions = compound, []
    if "[" not in compound and "(" not in (rest := _NTH.sub("", compound)):
        base = rest or "*"
        conditions = [_is_nth(each) for each in _NTH.finditer(compound)]
    matches: list[LexborNode] = engine.find(base, start)
    for condition in conditions:
        matches = [each for each in matches if condition(each)]
    return matches


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
            position = other.mem_id
            if position in wanted:
                leads = True
                break
            if position in known:
                leads = known[position]
                break
            passed.append(position)
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


def _is_nth(nth: re.Match[str]) -> _Condition:
    if nth["word"]:
        step, offset = 2, int(nth["word"].lower() == "odd")
    elif nth["index"]:
        step, offset = 0, int(nth["index"])
    else:
        step = int(nth["step"] + "1" if nth["step"] in ("", "+", "-") else nth["step"])
        offset = int("".join((nth["offset"] or "0").split()))
    by_tag, from_end = nth["kind"].lower() != "child", bool(nth["last"])
    positions: dict[int, int] = {}

    def condition(node: LexborNode) -> bool:
        if node.mem_id not in positions:
            _count(node, positions, by_tag=by_tag, from_end=from_end)
        position = positions[node.mem_id] - offset
        return position == 0 if step == 0 else position % step == 0 and position // step >= 0

    return condition


def _count(node: LexborNode, positions: dict[int, int], *, by_tag: bool, from_end: bool) -> None:
    """Store the positions of all children of the node's parent, counted from 1."""
    if node.parent is None:
        positions[node.mem_id] = 1
        return
    children = [child for child in node.parent.iter() if child.is_element_node]
    counts_siblings: dict[str | None, int] = {}
    for child in reversed(children) if from_end else children:
        kind = child.tag if by_tag else ""
        counts_siblings[kind] = positions[child.mem_id] = counts_siblings.get(kind, 0) + 1
