"""XPath selections, on lxml. Imported when first used: most spiders get by with CSS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import lxml.etree
import lxml.html
from selectolax.lexbor import LexborHTMLParser

from weft.spider.selection import Pending, Selection, Values

# ``re:test(., '…')`` and its like, as parsel's users know them.
_NAMESPACES = {"re": "http://exslt.org/regular-expressions"}


class XPathElements(Selection):
    """Elements found by XPath."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: Sequence[lxml.html.HtmlElement]) -> None:
        self._nodes = nodes

    def css(self, query: str) -> Selection:
        parsed = [LexborHTMLParser(html, is_fragment=True) for html in self.getall()]
        return Pending([tree.root for tree in parsed if tree.root is not None], query)

    def xpath(self, query: str, **variables: Any) -> Selection:
        return _run(self._nodes, query, variables)

    def getall(self) -> list[str]:
        return [lxml.html.tostring(node, encoding="unicode", with_tail=False) for node in self._nodes]

    @property
    def attrib(self) -> dict[str, str]:
        return {str(name): str(value) for name, value in self._nodes[0].attrib.items()} if self._nodes else {}

    @property
    def text(self) -> str:
        return str(self._nodes[0].text_content()).strip() if self._nodes else ""

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, index: int | slice) -> Selection:
        return XPathElements(self._nodes[index] if isinstance(index, slice) else [self._nodes[index]])


def parse_document(text: str) -> lxml.html.HtmlElement | None:
    """The tree of a page; None where there is nothing to parse."""
    # lxml refuses text that carries an encoding declaration, so it gets bytes and is told what they are.
    parser = lxml.html.HTMLParser(encoding="utf-8", huge_tree=False)
    try:
        return lxml.html.document_fromstring(text.encode("utf-8", "replace"), parser=parser)
    except lxml.etree.ParserError:
        return None


def select_in_document(root: lxml.html.HtmlElement | None, query: str, variables: Mapping[str, Any]) -> Selection:
    return Values([]) if root is None else _run([root], query, variables)


def select_in_fragments(fragments: Sequence[str], query: str, variables: Mapping[str, Any]) -> Selection:
    """XPath within elements that were found by CSS; ``./`` and ``.//`` start at each of them."""
    return _run([lxml.html.fragment_fromstring(html) for html in fragments], query, variables)


def _run(nodes: Sequence[lxml.html.HtmlElement], query: str, variables: Mapping[str, Any]) -> Selection:
    try:
        compiled = lxml.etree.XPath(query, namespaces=_NAMESPACES)
        results = [compiled(node, **variables) for node in nodes]
    except lxml.etree.XPathError as error:
        raise ValueError(f"XPath {query!r}: {error}") from error
    found = [each for result in results for each in (result if isinstance(result, list) else [result])]
    if found and all(isinstance(each, lxml.etree._Element) for each in found):
        return XPathElements(found)
    return Values([_string(each) for each in found])


def _string(value: Any) -> str:
    if isinstance(value, lxml.etree._Element):
        return str(lxml.html.tostring(value, encoding="unicode", with_tail=False))
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
