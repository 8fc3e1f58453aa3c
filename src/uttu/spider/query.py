"""CSS queries for lexbor: parse them, split off parsel's ``::text`` and ``::attr(name)``, and rewrite the selector.

lexbor matches CSS. If it behaves differently from CSS or parsel, the selector is rewritten here:

- Within an element, parsel's ``div a`` needs the ``div`` inside that element (or to be it); lexbor also accepts
  ancestors outside. So the first compound gets the condition that it lies within the element, which carries
  ``SCOPE`` during the search: ``div:is([s], [s] *) a``. ``:scope`` is the element itself: ``[s]``.
- For ``li:not(.x) a``, lexbor gives up on an ``a`` if its nearest ``li`` fails the condition, though one further up may
  meet it. So such a selector is matched in steps: find ``li:not(.x)``, mark the result with an attribute, find
  ``[mark] a``.
- Selectors that lexbor does not support, or treats differently (``:contains``, ``:lang``, ``[a!=b]`` …), are translated
  to XPath by cssselect, as in parsel, and run on the lxml mirror of the tree (:mod:`uttu.spider.xpath`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from selectolax.lexbor import LexborCSSSelector, LexborHTMLParser, SelectolaxError

Take = Literal["element", "text", "all_text", "attribute", "all_attributes"]

# The attribute that marks an element while the search is limited to it.
SCOPE: Final = "uttu-scope"

# Elements that the parser adds around rows and columns.
IMPLIED: Final = ("tbody", "colgroup")

# The engine that matches CSS, shared by all pages: creating one takes as long as parsing a small page.
engine: Final = LexborCSSSelector()  # type: ignore[no-untyped-call]
_EMPTY_NODE: Final = LexborHTMLParser("").create_node("p")

_match_tag: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*").fullmatch
# One token of a selector: an escape, a string, a comment, or a character.
_TOKEN: Final = re.compile(r"""\\.|"(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?|/\*.*?\*/|.""", re.DOTALL)
_match_pseudo_element: Final = re.compile(
    r"""::(?:(?P<text>text)|attr\(\s*(?:(?P<name>[\w:.-]+)|"(?P<double>[^"]*)"|'(?P<single>[^']*)')\s*\))\s*""",
    re.IGNORECASE,
).fullmatch
_match_anchor: Final = re.compile(
    r"(?:(?P<tag>[a-z][a-z0-9]*)|(?=[.#]))(?P<mark>[.#][a-z_][a-z0-9_-]*)?(?![^.#:\[])", re.IGNORECASE | re.ASCII
).match
_search_universal_end: Final = re.compile(r"(?<![\s>+~])\s+\*$").search
_match_scope: Final = re.compile(r":scope(?![\w-])", re.IGNORECASE).match
# lexbor does not support :contains, and matches :enabled on every element.
_search_xpath_only: Final = re.compile(r":(?:contains|lang)\(|:enabled(?![\w-])|!=", re.IGNORECASE).search
_search_functional: Final = re.compile(r":(?:is|not|where|has|nth-(?:last-)?child)\(", re.IGNORECASE).search
_search_nth: Final = re.compile(r":nth-", re.IGNORECASE).search
_SPACES: Final = " \t\r\n\f"
_match_xpath: Final = re.compile(r"\s*\(*\.{0,2}/|\s*@[\w*]|.*/(?:@|text\(|\w+::)|\s*[\w-]+\(.*//", re.DOTALL).match


class SearchStep(NamedTuple):
    """The selector of a step, and the attribute that marks the elements found for the next step."""

    css: str
    mark: str


class Search(NamedTuple):
    """A selector for lexbor. The ``steps`` are done first.

    ``includes_siblings``: siblings after the searched element may match, too.
    """

    css: str
    steps: tuple[SearchStep, ...] = ()
    includes_siblings: bool = False


class Query(NamedTuple):
    """Which elements to find, and what to take of each.

    - ``take``: the element, its own text nodes, all text within, one attribute of it (``name``), or that attribute of
      all elements within.
    - ``search`` is for a whole document, ``within`` for an element that carries ``SCOPE``. If None, use ``css``.
    - ``anchors``: the tag, ``.class`` or ``#id`` of the first compound of each selector, in lower case; empty if one of
      them is not that simple. If no ancestor of the searched element has any of them, ``css`` finds the same as
      ``within`` in half the time.
    - ``xpath``: if not empty, use it instead of the selectors.
    - ``is_tag``: ``css`` is only a name. ``is_list``: lexbor may find an element twice. ``is_all``: every element
      matches.
    - ``ignores_tables``: only names decide, and neither they nor the taken values depend on ``IMPLIED`` elements.

    The other fields tell whether lexbor may be slow (:mod:`uttu.spider.matching`). ``descendant_steps`` and
    ``sibling_steps`` are the number of descendant combinators and of ``~``, the maximum over the selectors of the list.
    ``counts_siblings``: siblings are counted, as for ``:nth-child()``. A query with two ``descendant_steps``, with
    ``sibling_steps`` or with ``counts_siblings`` has ``chains``: the compounds of each selector, all but the first with
    their combinator. ``includes_siblings``: siblings after the element may match, too.
    """

    css: str
    take: Take = "element"
    name: str = ""
    search: Search | None = None
    within: Search | None = None
    anchors: frozenset[str] = frozenset()
    is_tag: bool = False
    is_list: bool = False
    is_all: bool = False
    ignores_tables: bool = False
    xpath: str = ""
    descendant_steps: int = 0
    sibling_steps: int = 0
    counts_siblings: bool = False
    includes_siblings: bool = False
    chains: tuple[tuple[str, ...], ...] = ()


@lru_cache(maxsize=1024)
def parse(query: str) -> tuple[Query, ...]:
    """Parse a list of selectors. Parts that take the same are merged into one query.

    :raises ValueError: ``query`` is not a valid selector.
    """
    merged: dict[tuple[Take, str], list[str]] = {}
    for css, take, name in split_takes(query):
        merged.setdefault((take, name), []).append(css)
    return tuple(_prepare(parts, take, name) for (take, name), parts in merged.items())


def split_takes(query: str) -> list[tuple[str, Take, str]]:
    """For each selector of a list: the selector without its pseudo-element, what to take, and the attribute's name.

    :raises ValueError: a pseudo-element is unknown.
    """
    if "::" not in query and "," not in query:
        return [(query.strip(), "element", "")]
    return [_split_take(part) for part in _split_list(query)]


def is_selector(text: str) -> bool:
    """Whether ``text`` is a valid selector."""
    try:
        parse(text)
    except ValueError:
        return False
    return True


def iterate_top_level(css: str) -> Iterator[tuple[int, str]]:
    """The characters outside brackets, strings and comments, with their positions."""
    depth = 0
    for match in _TOKEN.finditer(css):
        token = match[0]
        if token in "([":
            depth += 1
        elif token in ")]":
            depth -= 1
        elif depth <= 0 and len(token) == 1:
            yield match.start(), token


def _split_list(query: str) -> list[str]:
    commas = [index for index, character in iterate_top_level(query) if character == ","] if "," in query else []
    starts, ends = [0, *(index + 1 for index in commas)], [*commas, len(query)]
    return [query[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def _split_take(part: str) -> tuple[str, Take, str]:
    """A selector without its pseudo-element, what to take, and the attribute's name.

    :raises ValueError: the pseudo-element is unknown.
    """
    colons = [index for index, character in iterate_top_level(part) if character == ":"] if "::" in part else []
    start = next((index for index in colons if index + 1 in colons), None)
    if start is None:
        return part, "element", ""
    match = _match_pseudo_element(part, start)
    if not match:
        raise ValueError(f"Invalid CSS selector {part!r}: only ::text and ::attr(name) can follow '::', at its end.")
    css = part[:start]
    name = match["name"] or match["double"] or match["single"] or ""
    bare = css.rstrip()
    if bare.endswith((">", "+", "~")):
        return f"{bare} *", "attribute" if name else "text", name
    # After a space, or without a selector, it applies to all elements below. parsel treats "a *::text" as "a ::text".
    above = _search_universal_end(css)
    if above:
        bare = css[: above.start()]
    if not bare or bare == "*" or bare != css or above:
        return bare or "*", "all_attributes" if name else "all_text", name
    return bare, "attribute" if name else "text", name


def _prepare(parts: list[str], take: Take, name: str) -> Query:
    css = ", ".join(parts)
    if any(not part or part[0] in ">+~" for part in parts) or _match_xpath(_without_strings(css)):
        raise ValueError(_explain_invalid(css))
    if css == "*":
        return Query(css, take, name, is_all=True)
    names = {part.lower() for part in parts if _match_tag(part)}
    by_name = len(names) == len(parts)
    ignores_tables = all(_ignores_tables(part, take) for part in parts)
    if _match_tag(css):
        return Query(css, take, name, is_tag=True, ignores_tables=ignores_tables)
    plain = ", ".join(_replace_scope_by_root(part) for part in parts)
    if _search_xpath_only(_without_strings(css)) or not _is_valid(plain):
        return Query(css, take, name, xpath=_to_xpath(css))
    search, within = _search(parts), _search_within(parts)
    chains = tuple(tuple(_split_compounds(part)) for part in parts)
    descendant_steps, sibling_steps = max(map(_count_descendant_steps, chains)), max(map(_count_sibling_steps, chains))
    counts_siblings = any(_search_nth(part) for part in parts)
    return Query(
        plain,
        take,
        name,
        search=search if search.steps else None,
        within=within if within != Search(plain) else None,
        anchors=_find_anchors(parts) if not within.steps and not within.includes_siblings else frozenset(),
        is_list=len(parts) > 1 and not by_name,
        ignores_tables=ignores_tables,
        descendant_steps=descendant_steps,
        sibling_steps=sibling_steps,
        counts_siblings=counts_siblings,
        includes_siblings=within.includes_siblings,
        chains=chains if descendant_steps > 1 or sibling_steps or counts_siblings else (),
    )


def _ignores_tables(part: str, take: Take) -> bool:
    """Whether neither the matches of a selector nor what is taken of them depend on ``IMPLIED`` elements.

    These have no attributes. So a compound of a name, classes, ids and attributes does not match them, unless the name
    is theirs. Of the texts that are children of an element, only those of a table are in another place with them.
    """
    if not _match_plain_descendants(part):
        return False
    names = [name.lower() for name in _find_compound_names(part)]
    if not set(names).isdisjoint(IMPLIED):
        return False
    if take == "text":
        last = _find_compound_names(part.split()[-1])
        return bool(last) and last[0].lower() not in ("table", "template")
    return take in ("element", "attribute")


_VALUE: Final = r"""(?:"[^"\s\\]*"|'[^'\s\\]*'|[\w-]+)"""
# A name, classes, ids and attributes, without spaces.
_COMPOUND: Final = rf"(?=\S)(?:[a-zA-Z][\w-]*)?(?:[.#][a-zA-Z_][\w-]*|\[[a-zA-Z][\w-]*(?:[~|^$*]?={_VALUE})?\])*"
# Such compounds, with only descendant combinators between them.
_match_plain_descendants: Final = re.compile(rf"{_COMPOUND}(?:\s+{_COMPOUND})*", re.ASCII).fullmatch
_find_compound_names: Final = re.compile(r"(?<!\S)[a-zA-Z][\w-]*", re.ASCII).findall


def scope_of(compound: str) -> str:
    """A compound with the attribute ``SCOPE`` in place of ``:scope``."""
    match = _match_scope(compound)
    return f"[{SCOPE}]{compound[match.end() :]}" if match else compound


def _count_descendant_steps(chain: Sequence[str]) -> int:
    return sum(part[0] in _SPACES and part.lstrip(_SPACES)[0] not in ">+~" for part in chain[1:])


def _count_sibling_steps(chain: Sequence[str]) -> int:
    return sum(part.lstrip(_SPACES)[0] == "~" for part in chain[1:])


def _replace_scope_by_root(part: str) -> str:
    match = _match_scope(part)
    return ":root" + part[match.end() :] if match else part


def _search(parts: list[str]) -> Search:
    """The search of a list of selectors in a whole document."""
    steps: list[SearchStep] = []
    css = ", ".join(_split_steps(_split_compounds(_replace_scope_by_root(part)), steps) for part in parts)
    return Search(css, tuple(steps))


def _search_within(parts: list[str]) -> Search:
    """The search within an element that carries ``SCOPE``: the first compound of each selector must lie within it."""
    steps: list[SearchStep] = []
    limited = []
    chains = [_split_compounds(part) for part in parts]
    includes_siblings = any(len(chain) > 1 and chain[1].lstrip()[0] in "+~" for chain in chains)
    for chain in chains:
        if _match_scope(chain[0]):
            chain[0] = scope_of(chain[0])
            limited.append(_split_steps(chain, steps))
        elif includes_siblings or any(map(_search_functional, chain[:-1])):
            limited.append(_split_steps(chain, steps, first=True))
        else:
            if len(chain) > 1:
                chain[0] += f":is([{SCOPE}], [{SCOPE}] *)"
            limited.append("".join(chain))
    return Search(", ".join(limited), tuple(steps), includes_siblings)


def _find_anchors(parts: list[str]) -> frozenset[str]:
    """See :class:`Query`. Empty if there is a ``:scope``, since that depends on the element that is searched."""
    if any(":scope" in part.lower() for part in parts):
        return frozenset()
    firsts = [chain[0] for chain in map(_split_compounds, parts) if len(chain) > 1]
    anchors = [match and (match["mark"] or match["tag"]) for match in map(_match_anchor, firsts)]
    return frozenset(each.lower() for each in anchors if each) if all(anchors) else frozenset()


def _split_steps(chain: list[str], steps: list[SearchStep], *, first: bool = False) -> str:
    """The last step of a selector. The steps before it are added to ``steps``.

    :param first: make the first compound a step, too.
    """
    css = ""
    for index, compound in enumerate(chain):
        css += compound
        if (index == 0 and first) or (index + 1 < len(chain) and _search_functional(compound)):
            steps.append(SearchStep(css, f"{SCOPE}-{len(steps)}"))
            css = f"[{SCOPE}-{len(steps) - 1}]"
    return css


def _split_compounds(part: str) -> list[str]:
    """The compounds of a selector, all but the first with the combinator in front of them."""
    starts = [0]
    in_combinator = False
    for index, character in iterate_top_level(part):
        is_combinator = character in " \t\r\n\f>+~"
        if is_combinator and not in_combinator:
            starts.append(index)
        in_combinator = is_combinator
    return [part[start:end] for start, end in zip(starts, [*starts[1:], len(part)], strict=True)]


def _is_valid(css: str) -> bool:
    try:
        engine.find(css, _EMPTY_NODE)
    except SelectolaxError:
        return False
    return True


def _to_xpath(css: str) -> str:
    """The selector as XPath, translated by cssselect.

    :raises ValueError: ``css`` is not a valid selector.
    """
    from cssselect import HTMLTranslator, SelectorError

    try:
        return HTMLTranslator().css_to_xpath(css)
    except SelectorError as error:
        raise ValueError(_explain_invalid(css, str(error))) from error


def _without_strings(css: str) -> str:
    return "".join(match[0] for match in _TOKEN.finditer(css) if match[0][0] not in "\"'\\")


def _explain_invalid(css: str, reason: str = "") -> str:
    message = f"Invalid CSS selector {css!r}"
    if _match_xpath(_without_strings(css)):
        return f"{message}: this is XPath. Use xpath({css!r})."
    if css.lstrip().startswith((">", "+", "~")):
        return f"{message}: it begins with a combinator. Use ':scope {css.lstrip()}'."
    if not css.strip():
        return f"{message}: it is empty."
    return f"{message}{': ' if reason else ''}{reason}."
