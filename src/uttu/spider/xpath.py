"""XPath 1.0 with parsel's extensions on lxml trees, and the lxml mirror of an HTML tree.

This module is imported when XPath is first used: most spiders only need CSS.

lexbor parses HTML, but has no XPath. :class:`LxmlMirror` is an lxml tree with exactly the structure of the lexbor tree,
built node by node, once per page. libxml2 parses nothing, so the trees cannot differ, and every node has a twin in the
other tree. A query starts at the twins of its nodes; the elements and comments that it finds are mapped back. What
users see of an element (HTML, text, attributes) always comes from lexbor.

lxml refuses some names and characters. Characters in names become ``_``. Control characters become stand-ins from the
private use area, which are turned back in results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any, Final

from lxml import etree
from selectolax.lexbor import LexborNode

from uttu.spider.selection import MixedSelection, Selection, StringSelection, check_matches

_EXSLT: Final = {"re": "http://exslt.org/regular-expressions"}
# lxml registers these functions at every call, and libxml2 logs each time, so such queries are not cached.
_SETS: Final = {"set": "http://exslt.org/sets"}

_space: Final = re.compile(r"[ \t\n\r\f]+")
_name_with_class: Final = re.compile(r"\s*[A-Za-z][A-Za-z0-9]*(?:\.[A-Za-z_][\w-]*)+\s*").fullmatch
_looks_like_css: Final = re.compile(r"[\w\s>+~*.#-]*(?:[.#][A-Za-z_]|::(?:text|attr)|\w\s+\w|\w\s*[>+~])").match


def evaluate(
    nodes: Sequence[Any], query: str, namespaces: Mapping[str, str], variables: Mapping[str, Any]
) -> list[Any]:
    """The results of a query at each of the nodes, one after the other.

    :raises ValueError: ``query`` is not valid XPath, a variable or namespace is missing, or there are too many results.
    """
    try:
        compiled = _compile(query, namespaces)
        results: list[Any] = []
        for node in nodes:
            result = compiled(node, **variables)
            if isinstance(result, list):
                results += result
                check_matches(len(results))
            else:
                results.append(result)
    except etree.XPathError as error:
        hint = f". This is CSS: use css({query!r})" if _looks_like_css(query) else ""
        raise ValueError(f"XPath {query!r}: {error}{hint}") from error
    return results


def refuse_css(query: str) -> None:
    """Refuse a CSS selector such as ``li.next``, which in XPath is the name of an element that no HTML page has.

    :raises ValueError: ``query`` is a CSS selector.
    """
    if _name_with_class(query):
        raise ValueError(f"XPath {query!r} finds no element of that name. This is CSS: use css({query!r})")


def select(results: Sequence[Any], elements: Callable[[list[Any]], Selection]) -> Selection:
    """A selection of results. ``elements`` makes a selection from lxml elements."""
    kinds = {isinstance(each, etree._Element) for each in results}
    if kinds == {False}:
        return StringSelection([string(each) for each in results])
    if len(kinds) < 2:
        return elements(list(results))
    return MixedSelection(
        [elements([each]) if isinstance(each, etree._Element) else StringSelection([string(each)]) for each in results]
    )


def string(value: Any) -> str:
    """A result that is not an element: booleans as in parsel, numbers as XPath's ``string()`` writes them."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        if value != value:
            return "NaN"
        if value in (float("inf"), float("-inf")):
            return "Infinity" if value > 0 else "-Infinity"
        return f"{int(value)}" if value == int(value) else f"{Decimal(repr(value)):f}"
    return str(value)


def _compile(query: str, namespaces: Mapping[str, str]) -> etree.XPath:
    if not isinstance(query, str):
        raise TypeError(f"An XPath query is a string, not {type(query).__name__}")
    if "set:" in query:
        return _make(query, {**_EXSLT, **_SETS, **namespaces})
    return _cached(query, tuple(namespaces.items()))


@lru_cache(maxsize=1024)
def _cached(query: str, namespaces: tuple[tuple[str, str], ...]) -> etree.XPath:
    return _make(query, {**_EXSLT, **dict(namespaces)})


def _make(query: str, namespaces: dict[str, str]) -> etree.XPath:
    return etree.XPath(query, namespaces=namespaces, extensions=_EXTENSIONS, smart_strings=False)


def _has_class(context: Any, *classes: Any) -> bool:
    """``has-class("a", "b")``: whether the element has all of these classes."""
    if not classes or not all(isinstance(each, str) for each in classes):
        raise ValueError("XPath: has-class() takes one or more strings")
    own = _space.sub(" ", f" {context.context_node.get('class') or ''} ")
    return all(f" {each} " in own for each in classes)


_EXTENSIONS: Final = {(None, "has-class"): _has_class}


# Code points that lxml refuses, and their stand-ins.
_REFUSED: Final = [*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0xFFFE, 0xFFFF]
_TO_STAND_INS: Final = {code: 0x10F000 + index for index, code in enumerate(_REFUSED)}
_FROM_STAND_INS: Final = {stand_in: code for code, stand_in in _TO_STAND_INS.items()}
_refused_in_names: Final = re.compile(r"[&<>/\"'\s{}]")

# For documents of an HTML parser, lxml accepts names that XML does not allow, such as "@click".
_parser: Final = etree.HTMLParser()


class LxmlMirror:
    """The lxml twin of the tree below ``root``."""

    def __init__(self, root: LexborNode) -> None:
        top: Any = _parser.makeelement(root.tag or "html")
        self._root, self._top = root, top
        # Twins have the same index in both lists. The lists keep the lxml objects alive; otherwise lxml would create
        # new objects for the same nodes, and they could not be looked up.
        self._nodes: list[LexborNode] = [root]
        self._elements: list[Any] = [top]
        self._has_stand_ins = False
        self._set_attributes(top, root.attributes)
        self._build(root, top)
        self._add_outside(root, top)

    def xpath(
        self,
        nodes: Sequence[LexborNode],
        query: str,
        namespaces: Mapping[str, str],
        variables: Mapping[str, Any],
    ) -> list[Any]:
        """The results of a query at each of the nodes: lxml elements, strings, numbers, booleans.

        :raises ValueError: ``query`` is not valid XPath, or it is CSS.
        """
        starts = [self._top if node is self._root else self._element_of[node.mem_id] for node in nodes]
        results = evaluate(starts, query, namespaces, variables)
        if not results:
            refuse_css(query)
        if self._has_stand_ins:
            return [each.translate(_FROM_STAND_INS) if isinstance(each, str) else each for each in results]
        return results

    def nodes(self, elements: Sequence[Any]) -> list[LexborNode]:
        """The lexbor nodes of lxml elements and comments."""
        return [self._node_of[element] for element in elements]

    def select(self, results: Sequence[Any], selection: Callable[[list[LexborNode]], Selection]) -> Selection:
        """The results as a selection. ``selection`` makes a selection from lexbor nodes."""
        return select(results, lambda elements: selection(self.nodes(elements)))

    @cached_property
    def _element_of(self) -> dict[int, Any]:
        return {node.mem_id: element for node, element in zip(self._nodes, self._elements, strict=True)}

    @cached_property
    def _node_of(self) -> dict[Any, LexborNode]:
        return dict(zip(self._elements, self._nodes, strict=True))

    def _build(self, root: LexborNode, top: Any) -> None:
        add, hold, hold_twin = etree.SubElement, self._nodes.append, self._elements.append
        # A stack of: the next sibling to add, its lxml parent, and the lxml element before it.
        waiting: list[tuple[LexborNode | None, Any, Any]] = [(root.first_child, top, None)]
        while waiting:
            node, parent, last = waiting.pop()
            after_text = False
            while node is not None:
                tag = node.tag
                if tag == "-text":
                    try:
                        if after_text:
                            self._add_text(parent, last, node.text_content or "")
                        elif last is None:
                            parent.text = node.text_content
                        else:
                            last.tail = node.text_content
                    except ValueError:
                        self._add_text(parent, last, node.text_content or "")
                    after_text = True
                elif tag is None or tag == "-comment":
                    last = self._other(node)
                    parent.append(last)
                    after_text = False
                elif tag[0] != "-":
                    try:
                        last = add(parent, tag)
                    except ValueError:
                        last = add(parent, self._name(tag))
                    if attributes := node.attributes:
                        self._set_attributes(last, attributes)
                    hold(node)
                    hold_twin(last)
                    after_text = False
                    child = node.first_child
                    if child is not None:
                        waiting.append((node.next, parent, last))
                        node, parent, last = child, last, None
                        continue
                node = node.next

    def _add_outside(self, root: LexborNode, top: Any) -> None:
        """Add the comments and processing instructions before and after the root element."""
        node, first = root.prev, top
        while node is not None:
            if node.tag in (None, "-comment"):
                first.addprevious(twin := self._other(node))
                first = twin
            node = node.prev
        node, last = root.next, top
        while node is not None:
            if node.tag in (None, "-comment"):
                last.addnext(twin := self._other(node))
                last = twin
            node = node.next

    def _add_text(self, parent: Any, last: Any, text: str) -> None:
        """Append text after the element ``last``, or at the beginning of ``parent``. There may be text already."""
        text = self._stand_in(text)
        if last is None:
            parent.text = (parent.text or "") + text
        else:
            last.tail = (last.tail or "") + text

    def _other(self, node: LexborNode) -> Any:
        """The twin of a comment or a processing instruction."""
        html = node.html or ""
        twin: Any
        if node.is_comment_node:
            twin, text = etree.Comment(""), html[4:-3]
        else:
            target, _, text = html[2:-1].removesuffix("?").partition(" ")
            try:
                twin = etree.ProcessingInstruction(target)
            except ValueError:
                twin = etree.ProcessingInstruction("pi")
        try:
            twin.text = text
        except ValueError:
            twin.text = self._stand_in(text)
        self._nodes.append(node)
        self._elements.append(twin)
        return twin

    def _set_attributes(self, element: Any, attributes: Mapping[str, str | None]) -> None:
        for name, value in attributes.items():
            try:
                element.set(name if name[0] != "{" else self._name(name), value or "")  # "{" would start a namespace
            except ValueError:
                element.set(self._name(name), self._stand_in(value or ""))

    def _name(self, name: str) -> str:
        return _refused_in_names.sub("_", self._stand_in(name))

    def _stand_in(self, text: str) -> str:
        self._has_stand_ins = True
        return text.translate(_TO_STAND_INS)
