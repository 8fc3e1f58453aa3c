"""Selections: what ``page.css`` and ``page.xpath`` give, in parsel's manner.

A selection is a sequence of matches. Of elements it can be narrowed further (``css``, ``xpath``);
``get`` and ``getall`` give strings: the text or attribute asked for, or the element's HTML.
Nothing is searched before it is asked for.
"""

from __future__ import annotations

import re as regex
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, overload

from selectolax.lexbor import LexborCSSSelector, LexborNode, SelectolaxError

from weft.spider.query import Query, parse

T = TypeVar("T")

# The engine that matches CSS, one for all pages: making one takes as long as parsing a small page.
_engine = LexborCSSSelector()  # type: ignore[no-untyped-call]


def find(query: Query, node: LexborNode, *, whole: bool, first: bool = False) -> list[LexborNode]:
    """The elements within a node that match, or only the first of them.

    ``whole``: it is the root of its document. There, elements of a name are found in half the time.

    :raises ValueError: it is not a selector.
    """
    css = query.css
    if whole and query.is_tag and not first:
        return node.parser.tags(css)
    try:
        return _engine.find_first(css, node) if first else _engine.find(css, node)  # type: ignore[attr-defined]
    except SelectolaxError as error:
        raise ValueError(f"{css!r} is not a CSS selector; a URL to follow goes into url=") from error


class Selection(ABC):
    """Matches, lazily found. See the module for the manner."""

    __slots__ = ()

    @abstractmethod
    def css(self, query: str) -> Selection:
        """Matches within these, by CSS with ``::text`` and ``::attr(name)``."""

    @abstractmethod
    def xpath(self, query: str, **variables: Any) -> Selection:
        """Matches within these, by XPath 1.0."""

    @abstractmethod
    def getall(self) -> list[str]:
        """All matches as strings."""

    @overload
    def get(self) -> str | None: ...
    @overload
    def get(self, default: str) -> str: ...
    def get(self, default: str | None = None) -> str | None:
        """The first match as a string, or ``default``."""
        return next(iter(self.getall()), default)

    @property
    @abstractmethod
    def attrib(self) -> dict[str, str]:
        """The attributes of the first element; empty if there is none."""

    @property
    @abstractmethod
    def text(self) -> str:
        """All text within the first match, trimmed; empty if there is none."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int | slice) -> Selection: ...

    def __iter__(self) -> Iterator[Selection]:
        return (self[index] for index in range(len(self)))

    def __bool__(self) -> bool:
        return len(self) > 0

    def re(self, pattern: str | regex.Pattern[str]) -> list[str]:
        """All matches of a regular expression: its group where it has one, else the whole."""
        return [found[found.re.groups and 1] for value in self.getall() for found in regex.finditer(pattern, value)]

    @overload
    def re_first(self, pattern: str | regex.Pattern[str]) -> str | None: ...
    @overload
    def re_first(self, pattern: str | regex.Pattern[str], default: str) -> str: ...
    def re_first(self, pattern: str | regex.Pattern[str], default: str | None = None) -> str | None:
        return next(iter(self.re(pattern)), default)

    def __repr__(self) -> str:
        values = self.getall()
        return f"<Selection of {len(values)}: {', '.join(repr(value[:40]) for value in values[:3])}>"


class Elements(Selection):
    """Elements found by CSS."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: Sequence[LexborNode]) -> None:
        self._nodes = nodes

    def css(self, query: str) -> Selection:
        return Pending(self._nodes, query)

    def xpath(self, query: str, **variables: Any) -> Selection:
        from weft.spider.xpath import select_in_fragments

        return select_in_fragments(self.getall(), query, variables)

    def getall(self) -> list[str]:
        return [node.html or "" for node in self._nodes]

    @property
    def attrib(self) -> dict[str, str]:
        return {name: value or "" for name, value in self._nodes[0].attributes.items()} if self._nodes else {}

    @property
    def text(self) -> str:
        return self._nodes[0].text().strip() if self._nodes else ""

    def attributes(self, name: str) -> list[str]:
        """This attribute of each element that has it."""
        return [value for node in self._nodes if (value := node.attributes.get(name)) is not None]

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, index: int | slice) -> Selection:
        return Elements(_part(self._nodes, index))


class Values(Selection):
    """Strings: texts and attributes."""

    __slots__ = ("_values",)

    def __init__(self, values: Sequence[str]) -> None:
        self._values = values

    def css(self, query: str) -> Selection:
        return Values([])

    def xpath(self, query: str, **variables: Any) -> Selection:
        return Values([])

    def getall(self) -> list[str]:
        return list(self._values)

    @property
    def attrib(self) -> dict[str, str]:
        return {}

    @property
    def text(self) -> str:
        return self._values[0].strip() if self._values else ""

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int | slice) -> Selection:
        return Values(_part(self._values, index))


class Pending(Selection):
    """A CSS query over roots that has not run yet; over one that is a document's, if they are ``whole``."""

    __slots__ = ("_found", "_queries", "_roots", "_whole")

    def __init__(self, roots: Sequence[LexborNode], query: str, *, whole: bool = False) -> None:
        self._roots = roots
        self._whole = whole
        self._queries = parse(query)
        self._found: Elements | Values | None = None

    @property
    def found(self) -> Elements | Values:
        if self._found is None:
            if self._queries[0].take == "element" and len(self._queries) == 1:
                self._found = Elements(self._nodes(self._queries[0]))
            else:
                self._found = Values([value for query in self._queries for value in self._values(query)])
        return self._found

    def _nodes(self, query: Query) -> list[LexborNode]:
        if len(self._roots) == 1:
            return find(query, self._roots[0], whole=self._whole)
        return [node for root in self._roots for node in find(query, root, whole=False)]

    def _values(self, query: Query) -> list[str]:
        return [value for node in self._nodes(query) for value in _values_of(node, query)]

    @overload
    def get(self) -> str | None: ...
    @overload
    def get(self, default: str) -> str: ...
    def get(self, default: str | None = None) -> str | None:
        if self._found is not None:
            return next(iter(self._found.getall()), default)
        # Mostly the first element will do, and the rest of the page need not be searched.
        if len(self._queries) == len(self._roots) == 1:
            query = self._queries[0]
            for node in find(query, self._roots[0], whole=self._whole, first=True):
                for value in _values_of(node, query):
                    return value
        return next(iter(self.getall()), default)

    def css(self, query: str) -> Selection:
        return self.found.css(query)

    def xpath(self, query: str, **variables: Any) -> Selection:
        return self.found.xpath(query, **variables)

    def getall(self) -> list[str]:
        return self.found.getall()

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


def _part(matches: Sequence[T], index: int | slice) -> Sequence[T]:
    return matches[index] if isinstance(index, slice) else [matches[index]]


def _values_of(node: LexborNode, query: Query) -> list[str]:
    match query.take:
        case "text":
            return [child.text_content or "" for child in node.iter(include_text=True) if child.is_text_node]
        case "attribute":
            attributes = node.attributes
            return [attributes[query.name] or ""] if query.name in attributes else []
        case "all_text":
            return [child.text_content or "" for child in node.traverse(include_text=True) if child.is_text_node]
        case "element":
            return [node.html or ""]
