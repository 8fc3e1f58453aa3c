"""XML documents (feeds, sitemaps, API responses), and selections of them.

lxml parses with these options: broken markup is repaired, no external files are loaded, declared entities are not
expanded, and libxml2's limits on depth and size apply. cssselect translates CSS to XPath, as in parsel.

libxml2 needs about 120 bytes for each element, text and attribute, so a document like ``<b/>x`` grows by a factor of
50. A document is therefore cut after ``MAX_MARKUP`` tags, attributes and references.

lxml releases the GIL while it parses. The preparation with Python strings before that runs in windows of ``_WINDOW``
characters, so that a large document can be prepared in a thread without blocking the event loop.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from html.entities import name2codepoint
from typing import Any, Final

from cssselect import GenericTranslator, SelectorError
from cssselect.parser import Element
from cssselect.xpath import XPathExpr
from lxml import etree

from uttu.model.url import Joiner
from uttu.spider.query import Take, split_takes
from uttu.spider.selection import OutputBudget, Selection, get_part
from uttu.spider.xpath import evaluate, select

_SearchFunction = Callable[[str, int, int], "re.Match[str] | None"]

_log = logging.getLogger("uttu.xml")

# The prefix for unprefixed names in a selector, if the document has a default namespace.
_DEFAULT: Final = "uttu-default"

MAX_MARKUP: Final = 1_000_000
"""Tags, comments, attributes and references. References count because lxml stores an error for each undeclared one."""

_WINDOW: Final = 128 * 1024  # characters
_WINDOW_OVERLAP: Final = 64
"""More characters than any match of these patterns. Windows overlap by it, so that no match is missed."""
_DOCTYPE_CHARACTERS: Final = 64 * 1024  # of a DOCTYPE in which declarations of entities are read
_XML_ENTITIES: Final = ("&amp;", "&lt;", "&gt;", "&quot;", "&apos;")
_NUMBERED: Final = tuple(zip(_XML_ENTITIES, ("&#38;", "&#60;", "&#62;", "&#34;", "&#39;"), strict=True))
# An "&" that is not part of a reference that XML defines, with the name if it looks like a reference.
_bare: Final = re.compile(
    r"&(?!(?:amp|lt|gt|quot|apos|#[0-9]{1,10}|#x[0-9A-Fa-f]{1,8});)(?:(?P<name>[A-Za-z_][\w.-]{0,50});)?"
)
_literal: Final = re.compile(r"<!\[CDATA\[|<!--|<\?")
_LITERAL_ENDS: Final = {"<![CDATA[": "]]>", "<!--": "-->", "<?": "?>"}
_doctype_subset_end: Final = re.compile(r"\]\s*>")
_declared_entity: Final = re.compile(r"<!ENTITY\s+([A-Za-z_][\w.-]*)")
_declaration: Final = re.compile(r"<\?xml\s[^>]*\?>")
_BASE: Final = "{http://www.w3.org/XML/1998/namespace}base"
# RSS items may have a <guid>, and Atom entries an <id>, instead of a <link>.
_LINKS: Final = """descendant-or-self::*[
    local-name()='link' or local-name()='loc' or local-name()='a' or (
        (
            local-name()='id' and local-name(..)='entry'
            or local-name()='guid' and translate(normalize-space(@isPermaLink), 'FALSE', 'false')!='false'
        ) and not(../*[local-name()='link']) and starts-with(normalize-space(), 'http')
    )
]"""


class XmlDocument:
    """An XML document. If it has no root element, queries find nothing.

    Links are relative to ``base``: the ``xml:base`` of the root element, or the URL. Elements below the root may have
    an ``xml:base`` for the links inside them.
    """

    __slots__ = ("_bases", "base", "budget", "namespaces", "root")

    def __init__(self, text: str, url: str) -> None:
        self.namespaces: dict[str, str] = {}
        self.budget = OutputBudget(len(text))
        self.root = _parse(text)
        self.base = url
        self._bases: dict[Any, str] = {}
        if self.root is not None and "xml:base" in text:
            self.base = Joiner(url)(self.root.get(_BASE, "")) or url
            self._bases = {element: element.get(_BASE) for element in self.root.iterfind(f".//*[@{_BASE}]")}

    @property
    def _root_selection(self) -> XmlElements:
        return XmlElements(self, [] if self.root is None else [self.root])

    def css(self, query: str) -> Selection:
        return self._root_selection.css(query)

    def xpath(self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any) -> Selection:
        return self._root_selection.xpath(query, namespaces, **variables)

    def links(self) -> list[str]:
        """The links of feeds and sitemaps: ``<link>`` and ``<loc>`` in any namespace, and ``<a>``."""
        return self._root_selection.xpath(_LINKS)._get_links()

    def resolve(self, link: str, element: Any) -> str:
        """The link of an element, made absolute if an element below the root has an ``xml:base`` for it."""
        if not self._bases:
            return link
        bases = [self._bases[each] for each in (element, *element.iterancestors()) if each in self._bases]
        url = self.base
        for base in reversed(bases):
            url = Joiner(url)(base) or url
        return (Joiner(url)(link) or link) if bases else link

    @property
    def default_namespace(self) -> str:
        return (self.root.nsmap.get(None) or "") if self.root is not None else ""

    def remove_namespaces(self) -> None:
        """Remove the namespaces from all elements and attributes."""
        if self.root is None:
            return
        for element in self.root.iter("*"):
            element.tag = etree.QName(element).localname
            for name in [name for name in element.attrib if name.startswith("{")]:
                element.attrib[etree.QName(name).localname] = element.attrib.pop(name)
        etree.cleanup_namespaces(self.root)


class XmlElements(Selection):
    """Elements, comments and processing instructions of an XML document."""

    __slots__ = ("_document", "_nodes")

    def __init__(self, document: XmlDocument, nodes: Sequence[Any]) -> None:
        self._document = document
        self._nodes = nodes

    def css(self, query: str) -> Selection:
        default = self._document.default_namespace
        path = _css_to_xpath(query, bool(default))
        return self.xpath(path, {_DEFAULT: default} if default else None)

    def xpath(self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any) -> Selection:
        document = self._document
        all_namespaces = {**document.namespaces, **namespaces} if namespaces else document.namespaces
        results = evaluate(self._nodes, query, all_namespaces, variables)
        return select(results, lambda elements: XmlElements(document, elements))

    def _strings(self) -> Iterator[str]:
        spend = self._document.budget.spend
        return (spend(etree.tostring(node, encoding="unicode", with_tail=False)) for node in self._nodes)

    def _get_links(self) -> list[str]:
        """Each element's ``href``, else its ``src``, else its text if it has no child elements."""
        links = []
        for node in self._nodes:
            link = node.get("href", node.get("src"))
            if link is None and not len(node):
                link = (node.text or "").strip() or None
            if link is not None:
                links.append(self._document.resolve(link, node))
        return links

    @property
    def attrib(self) -> dict[str, str]:
        return {str(name): str(value) for name, value in self._nodes[0].attrib.items()} if self._nodes else {}

    @property
    def text(self) -> str:
        return self._document.budget.spend("".join(self._nodes[0].itertext())).strip() if self._nodes else ""

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, index: int | slice) -> Selection:
        return XmlElements(self._document, get_part(self._nodes, index))


def _parse(text: str) -> Any:
    """The root element, or None.

    After the first error in a document, libxml2 drops all named references, even ``&amp;``. So if a document has
    errors, its references are rewritten as numbers.
    """
    text = _cut(_declaration.sub("", text.lstrip("\ufeff \t\r\n").replace("\0", ""), count=1))
    if _find(_bare.search, text, 0) is None:
        root, is_broken = _parse_once(text)
        if not is_broken or "&" not in text:
            return root
    return _parse_once(_rewrite_references(text))[0]


def _parse_once(text: str) -> tuple[Any, bool]:
    """The root element or None, and whether there are errors."""
    parser = etree.XMLParser(
        recover=True, resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, encoding="utf-8"
    )
    try:
        root = etree.fromstring(text.encode("utf-8", "replace"), parser=parser)
    except etree.XMLSyntaxError:
        return None, True
    return root, len(parser.error_log) > 0


def _cut(text: str) -> str:
    """Cut the text after about ``MAX_MARKUP`` tags, attributes and references."""
    if len(text) <= MAX_MARKUP:
        return text
    remaining = MAX_MARKUP
    for start in range(0, len(text), _WINDOW):
        end = start + _WINDOW
        remaining -= text.count("<", start, end) + text.count("=", start, end) + text.count("&", start, end)
        remaining += sum(text.count(entity, start, end) for entity in _XML_ENTITIES)
        if remaining < 0:
            _log.warning("Cutting an XML document of %d characters that exceeds the bounds", len(text))
            return text[:start]
    return text


def _find(search: _SearchFunction, text: str, start: int) -> re.Match[str] | None:
    """The first match, searched window by window."""
    while start < len(text):
        match = search(text, start, start + _WINDOW)
        if match is not None:
            return match
        start += _WINDOW - _WINDOW_OVERLAP
    return None


def _rewrite_references(text: str) -> str:
    """Write the references that XML defines as numbers, and replace HTML entities, which feeds use although XML lacks
    them. An ``&`` that belongs to neither, as in ``?a=1&b=2``, becomes text.

    The DOCTYPE stays as it is, and so do the entities that it declares, CDATA, comments and processing instructions.
    """
    position, declared = _read_doctype(text)
    pieces = [text[:position]]
    while position < len(text):
        literal = _find(_literal.search, text, position)
        end = len(text) if literal is None else literal.start()
        while position < end:
            start, position = position, min(position + _WINDOW, end)
            if position < end:
                ampersand = text.rfind("&", position - _WINDOW_OVERLAP, position)
                position = ampersand if ampersand > start else position
            pieces.append(_rewrite(text[start:position], declared))
        if literal is not None:
            ending = _LITERAL_ENDS[literal[0]]
            found = text.find(ending, literal.end())
            position = len(text) if found < 0 else found + len(ending)
            pieces.append(text[end:position])
    return "".join(pieces)


def _read_doctype(text: str) -> tuple[int, frozenset[str]]:
    """Where the DOCTYPE ends, and the names of the entities that it declares. 0 without one."""
    start = text.find("<!DOCTYPE", 0, 4096)
    if start < 0:
        return 0, frozenset()
    limit = start + _DOCTYPE_CHARACTERS
    subset = text.find("[", start, limit)
    end = text.find(">", start, limit)
    if 0 <= subset < end:
        found = _doctype_subset_end.search(text, subset, limit)
        end = found.end() - 1 if found else -1
    if end < 0:
        return start, frozenset()
    return end + 1, frozenset(_declared_entity.findall(text, start, end))


def _rewrite(text: str, declared: frozenset[str]) -> str:
    def replace(found: re.Match[str]) -> str:
        name = found["name"]
        if name in declared:
            return found[0]
        if name in name2codepoint:
            return chr(name2codepoint[name])
        return "&#38;" + found[0][1:]

    if "&" not in text:
        return text
    text = _bare.sub(replace, text)
    for reference, number in _NUMBERED:
        text = text.replace(reference, number)
    return text


class _Translator(GenericTranslator):
    """Treats names without a prefix as names in the document's default namespace."""

    def xpath_element(self, selector: Element) -> XPathExpr:
        if selector.element and not selector.namespace:
            selector = Element(_DEFAULT, selector.element)
        return super().xpath_element(selector)


@lru_cache(maxsize=256)
def _css_to_xpath(query: str, has_default: bool) -> str:
    translator = _Translator() if has_default else GenericTranslator()
    paths = []
    for css, take, name in split_takes(query):
        try:
            path = translator.css_to_xpath(css)
        except SelectorError as error:
            raise ValueError(f"Invalid CSS selector {css!r}: {error}.") from error
        named = f"@*[name()={GenericTranslator.xpath_literal(name)}]"
        ending: dict[Take, str] = {
            "element": "",
            "text": "/text()",
            "all_text": "/descendant-or-self::text()",
            "attribute": f"/{named}",
            "all_attributes": f"/descendant-or-self::*/{named}",
        }
        paths.append(path + ending[take])
    return " | ".join(paths)
