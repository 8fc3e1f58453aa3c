"""Functions on nodes of lexbor's tree: attributes, texts, order, and the elements that browsers imply."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

from uttu.spider.html_rewriter import any_case
from uttu.spider.query import IMPLIED

MAX_STEPS_UP: Final = 32
"""How many ancestors are checked one by one. Deeper trees use a method whose time does not depend on the depth."""
_WRITTEN_MARK: Final = "uttu-written"
# Tags after which a row or column is outside of a section: the parser adds one around it.
_find_outside: Final = re.compile(
    rb"<(?:%s|/(?:%s)|(?P<doubt>%s))(?=[\s/>])"
    % (any_case(b"table|colgroup"), any_case(b"tbody|thead|tfoot"), any_case(b"col|caption"))
).finditer
_SECTION: Final = rb"/?(?:%s)|%s" % (any_case(b"table|tbody|thead|tfoot"), any_case(b"colgroup"))
_IN_DOUBT: Final = any_case(b"tr|td|th|svg|math")
_RAW: Final = rb"(?:%s)(?=[\s/>])" % any_case(b"script|style|textarea|title|iframe|xmp|noembed|noframes")
# The next tag of a table, or a comment or raw text as a whole. Raw text without an end is in doubt, too.
_find_table_tag: Final = re.compile(
    rb"<(?:(?P<section>%s)(?=[\s/>])|(?P<doubt>%s)(?=[\s/>])"
    rb"|!--[^-]*+(?:-(?!->)[^-]*+)*+|%s[^<]*+(?:<(?!/%s)[^<]*+)*+(?:<|(?P<unclosed>)\Z))"
    % (_SECTION, _IN_DOUBT, _RAW, _RAW)
).search
_written: Final = re.compile(rb"<(?:%s)(?=[\s/>])" % "|".join(IMPLIED).encode(), re.IGNORECASE)
_find_written, _mark_written = _written.search, _written.sub


def get_attribute(node: LexborNode, name: str) -> str | None:
    """The value of an attribute, whose name is case-insensitive. None if the element does not have it."""
    attributes = node.attributes
    value = attributes.get(name)
    if value is not None:
        return value
    lower = name.lower()
    return next((value or "" for key, value in attributes.items() if key.lower() == lower), None)


def get_link(node: LexborNode) -> str | None:
    attributes = node.attributes
    link = attributes.get("href")
    return link if link is not None else attributes.get("src") or attributes.get("xlink:href")


def get_names(node: LexborNode) -> Iterator[str]:
    """The tag, ``.class`` and ``#id`` of an element, in lower case, since pages without a doctype ignore case."""
    yield (node.tag or "").lower()
    attributes = node.attributes
    if attributes.get("id"):
        yield f"#{attributes['id']}".lower()
    for name in (attributes.get("class") or "").split():
        yield f".{name}".lower()


def iterate_outermost(nodes: Sequence[LexborNode]) -> Iterator[LexborNode]:
    """Nodes in document order without those that lie within another one."""
    inside: set[int] = set()
    for index, node in enumerate(nodes):
        if node.mem_id not in inside:
            yield node
            if index + 1 < len(nodes) and _is_within(nodes[index + 1], node):
                inside = {each.mem_id for each in node.traverse()}


def iterate_text_nodes(node: LexborNode) -> Iterator[LexborNode]:
    """All text nodes within a node, in document order."""
    return (each for each in node.traverse(include_text=True) if each.is_text_node)


def child_text_nodes(nodes: Sequence[LexborNode]) -> list[LexborNode]:
    """The text nodes that are children of these nodes, in document order."""
    texts: list[LexborNode] = []
    wanted: set[int] = set()
    inside: set[int] = set()
    for index, node in enumerate(nodes):
        if inside and node.mem_id in inside:
            continue
        child = node.first_child
        if child is None or (child.is_text_node and child.next is None):  # true for most elements
            texts += [child] if child is not None else []
            continue
        children = list(node.iter(include_text=True))
        child_texts = [child for child in children if child.is_text_node]
        if len(child_texts) < len(children) and index + 1 < len(nodes) and _is_within(nodes[index + 1], node):
            # With elements inside of each other, their texts alternate in document order.
            wanted = wanted or {each.mem_id for each in nodes}
            inside = {each.mem_id for each in node.traverse()}
            child_texts = [
                text for text in iterate_text_nodes(node) if text.parent is not None and text.parent.mem_id in wanted
            ]
        texts += child_texts
    return texts


def elements_within(nodes: Sequence[LexborNode]) -> list[LexborNode]:
    return [each for node in iterate_outermost(nodes) for each in node.traverse()]


def text_nodes_within(nodes: Sequence[LexborNode]) -> list[LexborNode]:
    return [text for node in iterate_outermost(nodes) for text in iterate_text_nodes(node)]


def _is_within(node: LexborNode, outer: LexborNode) -> bool:
    wanted = outer.mem_id
    sibling_of = outer.parent.mem_id if outer.parent is not None else 0
    parent = node.parent
    for _ in range(MAX_STEPS_UP):
        if parent is None:
            return False
        parent_id = parent.mem_id
        if parent_id == wanted:
            return True
        if parent_id == sibling_of:
            return False
        parent = parent.parent
    # The tree is deep. A search of the subtree takes time in proportion to its elements, whatever its depth.
    wanted = node.mem_id
    return any(each.mem_id == wanted for each in outer.traverse())


def open_templates(root: LexborNode) -> None:
    """Move the content of templates into the tree, also of templates within templates."""
    fragments = root.template_fragments()
    while fragments:
        fragment = fragments.pop()
        template = fragment.parent
        for child in list(fragment.iter(include_text=True)):
            if template is not None:
                template.insert_child(child, move=True)
                if child.is_element_node:
                    fragments += child.template_fragments()


def remove_implied(root: LexborNode, *, has_templates: bool) -> None:
    """Remove the ``IMPLIED`` elements that have no tag in the source, and keep their content.

    The parser adds them to tables, and to the content of templates that begins like that of a table.
    """
    parser = root.parser
    if not has_templates and not parser.tags("table"):
        return
    nodes = {name: parser.tags(name) for name in IMPLIED}
    if not any(nodes.values()) or not (has_templates or _may_imply(parser.raw_html)):
        return
    implied = _find_implied(parser, nodes)
    for node in implied:
        node.unwrap()
    if implied:
        root.merge_text_nodes()


def _may_imply(source: bytes) -> bool:
    """Whether the parser may have added an ``IMPLIED`` element to a table; true if in doubt.

    It adds one where a row stands in a table outside of a section, or a column outside of a group. This takes less time
    than parsing again, and most pages need no more.
    """
    left = 4 * len(source)  # bytes to look at: comments within comments could take quadratic time
    for outside in _find_outside(source):
        if outside["doubt"] is not None:
            return True
        position = outside.end()
        while (tag := _find_table_tag(source, position)) is not None and tag["section"] is None:
            left -= tag.end() - position
            if tag["doubt"] is not None or tag["unclosed"] is not None or left < 0:
                return True
            position = tag.end()
    return False


def _find_implied(parser: LexborHTMLParser, nodes: dict[str, list[LexborNode]]) -> list[LexborNode]:
    """The nodes for which the source has no tag. ``nodes``: all elements of the tree, by name, in document order."""
    if not _find_written(parser.raw_html):
        return [node for each in nodes.values() for node in each]
    # Parse again with a mark in all tags of the source. Elements without the mark are implied.
    source = _mark_written(rb"\g<0> %s " % _WRITTEN_MARK.encode(), parser.raw_html)
    marked_parser = LexborHTMLParser(source, options=parser.options)
    if marked_parser.root is not None and marked_parser.tags("template"):
        open_templates(marked_parser.root)
    return [
        node
        for name, each in nodes.items()
        for node, twin in zip(each, marked_parser.tags(name), strict=False)
        if _WRITTEN_MARK not in twin.attributes
    ]
