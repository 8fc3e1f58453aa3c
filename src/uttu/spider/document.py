"""The tree of an HTML page, and selections of it.

lexbor parses as browsers do. In two places its tree is changed back to what the source says:

- Browsers add a ``<tbody>`` around rows and a ``<colgroup>`` around columns. Such elements without a tag in the source
  are removed, so ``table > tr`` finds the rows.
- Browsers keep the content of a ``<template>`` apart from the document. Here it is part of the tree.

lexbor matches CSS. XPath, and CSS that lexbor does not support, runs on the :mod:`mirror <uttu.spider.xpath>`. If the
selectors of a list take different things, such as ``a::attr(href), title::text``, their matches are merged in document
order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from selectolax.lexbor import LexborNode

from uttu.spider.matching import CostEstimator, find_by_levels
from uttu.spider.nodes import (
    MAX_STEPS_UP,
    child_text_nodes,
    elements_within,
    get_attribute,
    get_link,
    get_names,
    iterate_outermost,
    iterate_text_nodes,
    open_templates,
    remove_implied,
    text_nodes_within,
)
from uttu.spider.query import SCOPE, Query, Search, engine, parse
from uttu.spider.selection import MixedSelection, OutputBudget, Selection, StringSelection, check_matches, get_part

if TYPE_CHECKING:
    from uttu.spider.xpath import LxmlMirror


class Document:
    """The tree of an HTML page. ``roots`` holds the root element, or is empty.

    :param size: of the page in bytes.
    """

    __slots__ = (
        "_ancestor_names",
        "_cost",
        "_has_templates",
        "_implied_removed",
        "_mirror",
        "budget",
        "namespaces",
        "roots",
    )

    def __init__(self, roots: tuple[LexborNode, ...], size: int) -> None:
        self.roots = roots
        self.budget = OutputBudget(size)
        self.namespaces: dict[str, str] = {}
        self._mirror: LxmlMirror | None = None
        self._implied_removed = False
        # An element, and the names (see get_names) of it and its ancestors. Cached, because queries are often on
        # siblings.
        self._ancestor_names: tuple[int, frozenset[str]] | None = None
        self._cost: CostEstimator | None = None
        self._has_templates = False
        for root in roots:
            before = root.prev
            while before is not None and before.tag != "-doctype":
                before = before.prev
            if before is not None:
                before.decompose()  # otherwise lexbor counts the doctype as the first child
            if root.parser.tags("template"):
                self._has_templates = True
                open_templates(root)

    def css(self, query: str) -> Selection:
        return LazySelection(self, self.roots, query)

    def xpath(self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any) -> Selection:
        return ElementSelection(self, self.roots).xpath(query, namespaces, **variables)

    @property
    def mirror(self) -> LxmlMirror:
        """The mirror of the tree, which must have a root."""
        if self._mirror is None:
            from uttu.spider.xpath import LxmlMirror

            self.remove_implied_elements()
            self._mirror = LxmlMirror(self.roots[0])
        return self._mirror

    def remove_implied_elements(self) -> None:
        """Remove the elements that the parser added to tables. Call this before any result could depend on them."""
        if not self._implied_removed:
            self._implied_removed = True
            self._ancestor_names = None
            for root in self.roots:
                remove_implied(root, has_templates=self._has_templates)

    def find(self, query: Query, node: LexborNode, *, first: bool = False) -> list[LexborNode]:
        """The elements that match, in document order; also the node itself if it matches.

        :param first: return at least the first one, and skip the others if that is faster.
        """
        is_root = node is self.roots[0]
        if not self._implied_removed and not query.ignores_tables:
            self.remove_implied_elements()
        if query.is_tag and is_root and not first:
            return node.parser.tags(query.css)  # takes half the time
        if query.xpath:
            return self.mirror.nodes(self.mirror.xpath([node], query.xpath, {}, {}))
        if query.chains and node.is_element_node and self._is_costly(query):
            return find_by_levels(query, node)
        search = query.search if is_root else query.within
        if search is not None and (is_root or not query.anchors or self._has_ancestor_named(node, query.anchors)):
            return _remove_duplicates(_find_in_steps(search, node), query) if node.is_element_node else []
        if first:
            nodes: list[LexborNode] = engine.find_first(query.css, node)  # type: ignore[attr-defined]
            return nodes
        return _remove_duplicates(engine.find(query.css, node), query)

    def _is_costly(self, query: Query) -> bool:
        if self._cost is None:
            self._cost = CostEstimator(self.roots[0])
        return self._cost.is_costly(query)

    def _has_ancestor_named(self, node: LexborNode, anchors: frozenset[str]) -> bool:
        """Whether an ancestor has one of these tags, classes or ids. True beyond ``MAX_STEPS_UP`` ancestors."""
        parent = node.parent
        if parent is None:
            return False
        if self._ancestor_names is None or self._ancestor_names[0] != parent.mem_id:
            names: set[str] = set()
            each: LexborNode | None = parent
            for _ in range(MAX_STEPS_UP):
                if each is None:
                    break
                names.update(get_names(each))
                each = each.parent
            if each is not None:
                return True
            self._ancestor_names = parent.mem_id, frozenset(names)
        return not anchors.isdisjoint(self._ancestor_names[1])


class ElementSelection(Selection):
    """Elements of an HTML page, and comments."""

    __slots__ = ("_document", "_nodes")

    def __init__(self, document: Document, nodes: Sequence[LexborNode]) -> None:
        self._document = document
        self._nodes = nodes

    def css(self, query: str) -> Selection:
        return LazySelection(self._document, self._nodes, query)

    def xpath(self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any) -> Selection:
        document = self._document
        if not self._nodes:
            return self
        all_namespaces = {**document.namespaces, **namespaces} if namespaces else document.namespaces
        mirror = document.mirror
        results = mirror.xpath(self._nodes, query, all_namespaces, variables)
        return mirror.select(results, lambda nodes: ElementSelection(document, nodes))

    def _strings(self) -> Iterator[str]:
        self._document.remove_implied_elements()
        spend = self._document.budget.spend
        return (spend(node.html or "") for node in self._nodes)

    def _strings_to_search(self) -> Iterator[str]:
        # lexbor writes no-break spaces as entities, but a regular expression should match the character.
        return (html.replace("&nbsp;", "\xa0") for html in self._strings())

    def _get_links(self) -> list[str]:
        nodes = self._nodes
        links = [link for node in nodes if (link := node.attributes.get("href")) is not None]
        return links if len(links) == len(nodes) else [link for link in map(get_link, nodes) if link is not None]

    @property
    def attrib(self) -> dict[str, str]:
        return {name: value or "" for name, value in self._nodes[0].attributes.items()} if self._nodes else {}

    @property
    def text(self) -> str:
        return self._document.budget.spend(self._nodes[0].text()).strip() if self._nodes else ""

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, index: int | slice) -> Selection:
        return ElementSelection(self._document, get_part(self._nodes, index))


class LazySelection(Selection):
    """A CSS query that has not run yet."""

    __slots__ = ("_document", "_nodes", "_queries", "_result")

    def __init__(self, document: Document, nodes: Sequence[LexborNode], query: str) -> None:
        self._document = document
        self._nodes = nodes
        self._queries = parse(query)
        self._result: Selection | None = None

    @property
    def result(self) -> Selection:
        if self._result is None:
            query = self._queries[0]
            if len(self._queries) > 1:
                self._result = self._merge()
            elif query.take == "element":
                find, nodes = self._document.find, self._nodes
                if len(nodes) == 1:
                    self._result = ElementSelection(self._document, find(query, nodes[0]))
                else:
                    matches: list[LexborNode] = []
                    for each in nodes:
                        matches += find(query, each)
                        check_matches(len(matches))
                    self._result = ElementSelection(self._document, matches)
            else:
                find = self._document.find
                values: list[str] = []
                for each in self._nodes:
                    values += _extract_values(query, each, find(query, each))
                    check_matches(len(values))
                self._result = StringSelection(values)
        return self._result

    def _merge(self) -> Selection:
        """The matches of several queries that take different things, in document order, each once."""
        matches: list[Selection] = []
        for node in self._nodes:
            matches += merge_matches(self._document, node, self._queries)
        return MixedSelection(matches)

    @overload
    def get(self) -> str | None: ...
    @overload
    def get(self, default: str) -> str: ...
    def get(self, default: str | None = None) -> str | None:
        if self._result is None and len(self._queries) == len(self._nodes) == 1:
            # Usually the first element has the value, and the rest of the page is not searched.
            query = self._queries[0]
            if query.take == "element":
                self._document.remove_implied_elements()
            nodes = self._document.find(query, self._nodes[0], first=True)
            if not nodes:
                return default
            value = _extract_first(query, nodes[0])
            if value is not None:
                return self._document.budget.spend(value) if query.take == "element" else value
        return self.result.get() if default is None else self.result.get(default)

    def css(self, query: str) -> Selection:
        return self.result.css(query)

    def xpath(self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any) -> Selection:
        return self.result.xpath(query, namespaces, **variables)

    def _strings(self) -> Iterator[str]:
        return self.result._strings()

    def _strings_to_search(self) -> Iterator[str]:
        return self.result._strings_to_search()

    def _get_links(self) -> list[str]:
        return self.result._get_links()

    @property
    def attrib(self) -> dict[str, str]:
        return self.result.attrib

    @property
    def text(self) -> str:
        return self.result.text

    def __len__(self) -> int:
        return len(self.result)

    def __getitem__(self, index: int | slice) -> Selection:
        return self.result[index]


def _extract_values(query: Query, context: LexborNode, nodes: Sequence[LexborNode]) -> list[str]:
    """The values that a query takes of the matched elements."""
    match query.take:
        case "element":
            return [node.html or "" for node in nodes]
        case "attribute":
            return [value for node in nodes if (value := get_attribute(node, query.name)) is not None]
        case "text":
            return [node.text_content or "" for node in child_text_nodes(nodes)]
        case "all_text":
            chosen = [context] if query.is_all else iterate_outermost(nodes)
            return [text.text_content or "" for node in chosen for text in iterate_text_nodes(node)]
        case "all_attributes":
            chosen = [context] if query.is_all else iterate_outermost(nodes)
            below = (each for node in chosen for each in node.traverse())
            return [value for node in below if (value := get_attribute(node, query.name)) is not None]


def _extract_first(query: Query, node: LexborNode) -> str | None:
    """The value of the first match if it is the first value of all; else None."""
    match query.take:
        case "attribute":
            return get_attribute(node, query.name)
        case "text":
            child = node.first_child
            return child.text_content if child is not None and child.is_text_node else None
        case "element":
            return node.html or ""
        case "all_text":
            return next((text.text_content for text in iterate_text_nodes(node)), None)
        case "all_attributes":
            return None


def _remove_duplicates(nodes: list[LexborNode], query: Query) -> list[LexborNode]:
    """Remove duplicates: lexbor returns an element once for each selector of a list that matches it."""
    if not query.is_list or len(nodes) < 2:
        return nodes
    seen: dict[int, LexborNode] = {}
    for node in nodes:
        seen.setdefault(node.mem_id, node)
    return list(seen.values())


def _find_in_steps(search: Search, node: LexborNode) -> list[LexborNode]:
    start = node.parent if search.includes_siblings and node.parent is not None else node
    marked = [(node, SCOPE)]
    node.attrs[SCOPE] = ""
    try:
        for css, mark in search.steps:
            for match in engine.find(css, start if css.startswith(f"[{SCOPE}") else node):
                match.attrs[mark] = ""
                marked.append((match, mark))
        result: list[LexborNode] = engine.find(search.css, start)
    finally:
        for each, mark in marked:
            if mark in each.attrs:
                del each.attrs[mark]
    return result


# A position in document order: the index of the node, and the number of its attribute (0: the node itself).
_Position = tuple[int, int]


def merge_matches(document: Document, context: LexborNode, queries: Sequence[Query]) -> list[Selection]:
    """The matches of all queries in document order, each once, as selections of one."""
    found = [(query, document.find(query, context)) for query in queries]
    positions = {node.mem_id: index for index, node in enumerate(document.roots[0].traverse(include_text=True))}
    matches: dict[_Position, Selection] = {}
    for query, nodes in found:
        if query.take == "element":
            matches |= {(positions[node.mem_id], 0): ElementSelection(document, [node]) for node in nodes}
        elif query.take in ("text", "all_text"):
            texts = child_text_nodes(nodes) if query.take == "text" else text_nodes_within(nodes)
            matches |= {(positions[node.mem_id], 0): StringSelection([node.text_content or ""]) for node in texts}
        else:
            for node in nodes if query.take == "attribute" else elements_within(nodes):
                value = get_attribute(node, query.name)
                if value is not None:
                    names = [name.lower() for name in node.attributes]
                    matches[positions[node.mem_id], 1 + names.index(query.name.lower())] = StringSelection([value])
    return [matches[position] for position in sorted(matches)]
