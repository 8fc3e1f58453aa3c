"""An HTML page's tree, and selections of it.

The tree is lexbor's, which parses as browsers do, brought back to what the source says in two places:

- Browsers put a ``<tbody>`` around rows and a ``<colgroup>`` around columns that have none. Those that no tag in the
  source stands for are removed, so ``table > tr`` finds the rows.
- Browsers keep what is inside a ``<template>`` apart from the document. Here it stays inside.

CSS is matched by lexbor; XPath, and what only XPath can express, by the :mod:`mirror <uttu.spider.xpath>`. The matches
of a query list whose parts take different things, such as ``a::attr(href), title::text``, are merged in document order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from selectolax.lexbor import LexborNode

from uttu.spider.matching import Shape, find_by_levels
from uttu.spider.nodes import (
    STEPS_UP,
    attribute,
    elements_below,
    get_link,
    get_names,
    open_templates,
    outermost,
    own_text_nodes,
    remove_implied,
    text_nodes,
    texts_below,
)
from uttu.spider.query import SCOPE, Query, Search, engine, parse
from uttu.spider.selection import Allowance, MixedSelection, Selection, StringSelection, check_matches, part

if TYPE_CHECKING:
    from uttu.spider.xpath import LxmlMirror


class Document:
    """The tree of an HTML page; ``roots`` is empty or its root element."""

    __slots__ = ("_around", "_mirror", "_shape", "_tables_settled", "allowance", "namespaces", "roots")

    def __init__(self, roots: tuple[LexborNode, ...], size: int) -> None:
        """``size``: that of the page, in bytes."""
        self.roots = roots
        self.allowance = Allowance(size)
        self.namespaces: dict[str, str] = {}
        self._mirror: LxmlMirror | None = None
        self._tables_settled = False
        # An element, and what it and those around it are called. Queries are mostly on the children of one element.
        self._around: tuple[int, frozenset[str]] | None = None
        for root in roots:
            self._shape = Shape(root)
            before = root.prev
            while before is not None and before.tag != "-doctype":
                before = before.prev
            if before is not None:
                before.decompose()  # or lexbor takes <html> for the second child
            if root.parser.tags("template"):
                open_templates(root)

    def css(self, query: str) -> Selection:
        return LazySelection(self, self.roots, query)

    def xpath(self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any) -> Selection:
        return ElementSelection(self, self.roots).xpath(query, namespaces, **variables)

    @property
    def mirror(self) -> LxmlMirror:
        """The mirror of the tree; there must be a root."""
        if self._mirror is None:
            from uttu.spider.xpath import LxmlMirror

            self.settle_tables()
            self._mirror = LxmlMirror(self.roots[0])
        return self._mirror

    def settle_tables(self) -> None:
        """Remove elements that the parser put into tables. Before that, they must be neither seen nor found."""
        if not self._tables_settled:
            self._tables_settled = True
            self._around = None
            for root in self.roots:
                remove_implied(root)

    def find(self, query: Query, node: LexborNode, *, first: bool = False) -> list[LexborNode]:
        """The elements that match, in document order; the node itself is one of them if it matches.

        With ``first``, at least the first of them.
        """
        is_root = node is self.roots[0]
        if not self._tables_settled and not query.ignores_tables:
            self.settle_tables()
        if query.is_tag and is_root and not first:
            return node.parser.tags(query.css)  # in half the time
        if query.xpath:
            return self.mirror.nodes(self.mirror.xpath([node], query.xpath, {}, {}))
        if query.chains and node.is_element_node and self._shape.is_costly(query):
            return find_by_levels(query, node)
        search = query.search if is_root else query.within
        if search is not None and (is_root or not query.anchors or self._has_around(node, query.anchors)):
            return _unique(_find_in_steps(search, node), query) if node.is_element_node else []
        if first:
            found: list[LexborNode] = engine.find_first(query.css, node)  # type: ignore[attr-defined]
            return found
        return _unique(engine.find(query.css, node), query)

    def _has_around(self, node: LexborNode, anchors: frozenset[str]) -> bool:
        """Whether an element around a node has one of these tags, classes or ids; true if that takes long to say."""
        parent = node.parent
        if parent is None:
            return False
        if self._around is None or self._around[0] != parent.mem_id:
            names: set[str] = set()
            each: LexborNode | None = parent
            for _ in range(STEPS_UP):
                if each is None:
                    break
                names.update(get_names(each))
                each = each.parent
            if each is not None:
                return True
            self._around = parent.mem_id, frozenset(names)
        return not anchors.isdisjoint(self._around[1])


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
        given = {**document.namespaces, **namespaces} if namespaces else document.namespaces
        mirror = document.mirror
        results = mirror.xpath(self._nodes, query, given, variables)
        return mirror.select(results, lambda nodes: ElementSelection(document, nodes))

    def _strings(self) -> Iterator[str]:
        self._document.settle_tables()
        take = self._document.allowance.take
        return (take(node.html or "") for node in self._nodes)

    def _searched(self) -> Iterator[str]:
        # lexbor writes no-break spaces as entities; a regular expression is to see the character.
        return (html.replace("&nbsp;", "\xa0") for html in self._strings())

    def _links(self) -> list[str]:
        nodes = self._nodes
        links = [link for node in nodes if (link := node.attributes.get("href")) is not None]
        return links if len(links) == len(nodes) else [link for link in map(get_link, nodes) if link is not None]

    @property
    def attrib(self) -> dict[str, str]:
        return {name: value or "" for name, value in self._nodes[0].attributes.items()} if self._nodes else {}

    @property
    def text(self) -> str:
        return self._document.allowance.take(self._nodes[0].text()).strip() if self._nodes else ""

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, index: int | slice) -> Selection:
        return ElementSelection(self._document, part(self._nodes, index))


class LazySelection(Selection):
    """A CSS query that has not run yet."""

    __slots__ = ("_document", "_found", "_nodes", "_queries")

    def __init__(self, document: Document, nodes: Sequence[LexborNode], query: str) -> None:
        self._document = document
        self._nodes = nodes
        self._queries = parse(query)
        self._found: Selection | None = None

    @property
    def found(self) -> Selection:
        if self._found is None:
            query = self._queries[0]
            if len(self._queries) > 1:
                self._found = self._mixed()
            elif query.take == "element":
                find, nodes = self._document.find, self._nodes
                if len(nodes) == 1:
                    self._found = ElementSelection(self._document, find(query, nodes[0]))
                else:
                    found: list[LexborNode] = []
                    for each in nodes:
                        found += find(query, each)
                        check_matches(len(found))
                    self._found = ElementSelection(self._document, found)
            else:
                find = self._document.find
                values: list[str] = []
                for each in self._nodes:
                    values += _values(query, each, find(query, each))
                    check_matches(len(values))
                self._found = StringSelection(values)
        return self._found

    def _mixed(self) -> Selection:
        """Several queries that take different things: their matches in document order, each once."""

        matches: list[Selection] = []
        for node in self._nodes:
            matches += merge_matches(self._document, node, self._queries)
        return MixedSelection(matches)

    @overload
    def get(self) -> str | None: ...
    @overload
    def get(self, default: str) -> str: ...
    def get(self, default: str | None = None) -> str | None:
        if self._found is None and len(self._queries) == len(self._nodes) == 1:
            # Mostly the first element will do, and the rest of the page need not be searched.
            query = self._queries[0]
            if query.take == "element":
                self._document.settle_tables()
            found = self._document.find(query, self._nodes[0], first=True)
            if not found:
                return default
            value = _first_value(query, found[0])
            if value is not None:
                return self._document.allowance.take(value) if query.take == "element" else value
        return self.found.get() if default is None else self.found.get(default)

    def css(self, query: str) -> Selection:
        return self.found.css(query)

    def xpath(self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any) -> Selection:
        return self.found.xpath(query, namespaces, **variables)

    def _strings(self) -> Iterator[str]:
        return self.found._strings()

    def _searched(self) -> Iterator[str]:
        return self.found._searched()

    def _links(self) -> list[str]:
        return self.found._links()

    @property
    def attrib(self) -> dict[str, str]:
        return self.found.attrib

    @property
    def text(self) -> str:
        return self.found.text

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, index: int | slice) -> Selection:
        return self.found[index]


def _values(query: Query, context: LexborNode, nodes: Sequence[LexborNode]) -> list[str]:
    """What a query takes of the elements found."""
    match query.take:
        case "element":
            return [node.html or "" for node in nodes]
        case "attribute":
            return [value for node in nodes if (value := attribute(node, query.name)) is not None]
        case "text":
            return [node.text_content or "" for node in own_text_nodes(nodes)]
        case "all_text":
            chosen = [context] if query.is_all else outermost(nodes)
            return [text.text_content or "" for node in chosen for text in text_nodes(node)]
        case "all_attributes":
            chosen = [context] if query.is_all else outermost(nodes)
            below = (each for node in chosen for each in node.traverse())
            return [value for node in below if (value := attribute(node, query.name)) is not None]


def _first_value(query: Query, node: LexborNode) -> str | None:
    """What the first match gives, if that is the first value of all; else None."""
    match query.take:
        case "attribute":
            return attribute(node, query.name)
        case "text":
            child = node.first_child
            return child.text_content if child is not None and child.is_text_node else None
        case "element":
            return node.html or ""
        case "all_text":
            return next((text.text_content for text in text_nodes(node)), None)
        case "all_attributes":
            return None


def _unique(nodes: list[LexborNode], query: Query) -> list[LexborNode]:
    """lexbor gives an element once for each selector of a list that matches it."""
    if not query.is_list or len(nodes) < 2:
        return nodes
    seen: dict[int, LexborNode] = {}
    for node in nodes:
        seen.setdefault(node.mem_id, node)
    return list(seen.values())


def _find_in_steps(search: Search, node: LexborNode) -> list[LexborNode]:
    start = node.parent if search.beside and node.parent is not None else node
    marked = [(node, SCOPE)]
    node.attrs[SCOPE] = ""
    try:
        for css, mark in search.steps:
            for found in engine.find(css, start if css.startswith(f"[{SCOPE}") else node):
                found.attrs[mark] = ""
                marked.append((found, mark))
        result: list[LexborNode] = engine.find(search.css, start)
    finally:
        for each, mark in marked:
            if mark in each.attrs:
                del each.attrs[mark]
    return result


# A place in the document: which node, and which of its attributes.
_Position = tuple[int, int]


def merge_matches(document: Document, context: LexborNode, queries: Sequence[Query]) -> list[Selection]:
    """The matches of all queries in document order, each once, as selections of one."""
    found = [(query, document.find(query, context)) for query in queries]
    places = {node.mem_id: index for index, node in enumerate(document.roots[0].traverse(include_text=True))}
    matches: dict[_Position, Selection] = {}
    for query, nodes in found:
        if query.take == "element":
            matches |= {(places[node.mem_id], 0): ElementSelection(document, [node]) for node in nodes}
        elif query.take in ("text", "all_text"):
            texts = own_text_nodes(nodes) if query.take == "text" else texts_below(nodes)
            matches |= {(places[node.mem_id], 0): StringSelection([node.text_content or ""]) for node in texts}
        else:
            for node in nodes if query.take == "attribute" else elements_below(nodes):
                value = attribute(node, query.name)
                if value is not None:
                    names = [name.lower() for name in node.attributes]
                    matches[places[node.mem_id], 1 + names.index(query.name.lower())] = StringSelection([value])
    return [matches[place] for place in sorted(matches)]
