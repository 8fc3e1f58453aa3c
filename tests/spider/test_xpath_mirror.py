"""The mirror has the structure of the tree, node by node."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from lxml import etree
from selectolax.lexbor import LexborHTMLParser, LexborNode

from uttu.spider.document import Document
from uttu.testing.pages import page_of

NAMES = [
    "p",
    "div",
    "a",
    "b",
    "i",
    "table",
    "tbody",
    "tr",
    "td",
    "th",
    "col",
    "colgroup",
    "caption",
    "thead",
    "select",
    "option",
    "svg",
    "math",
    "mi",
    "foreignObject",
    "title",
    "desc",
    "template",
    "script",
    "style",
    "textarea",
    "pre",
    "li",
    "ul",
    "br",
    "img",
    "form",
    "button",
    "body",
    "html",
    "head",
    "frameset",
    "noscript",
    "x:y",
    "my-element",
    "plaintext",
    "iframe",
    "h1",
    "nobr",
    "ruby",
    "rt",
    "a<b",
    'q"',
]
ATTRIBUTES = [
    "",
    ' class="a b"',
    " @click=x",
    " :class='{a: 1}'",
    " xmlns='http://www.w3.org/1999/xhtml'",
    " xml:lang=en",
    " xlink:href='#x'",
    " {{x}}",
    " [y]=1",
    " (z)",
    ' "',
    " a<b=1",
    " disabled",
    " viewBox=3",
    " title='&lt;\x01&#12;'",
    " data-é=ü",
    " class=1 CLASS=2",
    " =x=1",
]
TEXTS = [
    "x",
    " ",
    "\n",
    "&amp;",
    "&nbsp;",
    "é",
    "\x0c",
    "&#1;",
    "<!-- c -->",
    "<!--a--b-->",
    "<!x-->",
    "<?pi?>",
    "<![CDATA[d]]>",
    "]]>",
    "&lt;p>",
    "a > b",
    "\U0001f600",
    "&#xfffe;",
    "<!doctype html>",
    "\0",
]
openings = st.builds("<{}{}>".format, st.sampled_from(NAMES), st.sampled_from(ATTRIBUTES))
closings = st.builds("</{}>".format, st.sampled_from(NAMES))
sources = st.lists(st.one_of(openings, openings, closings, st.sampled_from(TEXTS)), max_size=40).map("".join)

Node = tuple[str, Any, Any]


def tree_of(node: LexborNode) -> Node:
    children: list[Any] = []
    for child in node.iter(include_text=True):
        if child.is_text_node:
            text = child.text_content or ""
            if children and isinstance(children[-1], str) and children[-1] != "<?pi?>":
                children[-1] += text
            else:
                children.append(text)
        elif child.is_comment_node:
            children.append(("comment", (child.html or "")[4:-3]))
        elif not child.is_element_node:
            children.append("<?pi?>")
        else:
            children.append(tree_of(child))
    return node.tag or "", {name: value or "" for name, value in node.attributes.items()}, children


def mirrored(document: Document, element: Any) -> Node:
    """The same of the mirror, as XPath shows it."""
    children: list[Any] = []
    comments = 0
    mirror = document.mirror
    (twin,) = mirror.nodes([element])
    for child in mirror.xpath([twin], "node()", {}, {}):
        if isinstance(child, str):
            children.append(child)
        elif child.tag is etree.ProcessingInstruction:
            children.append("<?pi?>")
        elif child.tag is etree.Comment:
            comments += 1
            children.append(("comment", *mirror.xpath([twin], f"string(comment()[{comments}])", {}, {})))
        else:
            children.append(mirrored(document, child))
    names = mirror.xpath([twin], "name()", {}, {})
    values = {
        name: value
        for index in range(1, 1 + len(twin.attributes))
        for name in mirror.xpath([twin], f"name(@*[{index}])", {}, {})
        for value in mirror.xpath([twin], f"string(@*[{index}])", {}, {})
    }
    return str(names[0]), values, children


def plain(node: Any) -> Any:
    """Without the names that lxml can't hold."""
    if isinstance(node, tuple) and len(node) == 3:
        name, attributes, children = node
        cut = str.maketrans(dict.fromkeys("&<>/\"'{}", "_"))
        return (
            name.translate(cut),
            {key.translate(cut): value for key, value in attributes.items()},
            [*map(plain, children)],
        )
    return node


@given(sources)
@example("<table><tr><td>1</tr></tbody>\n<tr></table>")
@example("<p>a<template><b>c</b><template>d</template>e</template>f")
@example("<!-- before --><html><body>x</body></html><!-- after -->")
@settings(max_examples=300, deadline=None)
def test_the_mirror_is_the_tree(source: str) -> None:
    document = page_of(source)._document
    assert isinstance(document, Document)
    for root in document.roots:
        (top,) = document.mirror.xpath([root], "/*", {}, {})
        assert plain(mirrored(document, top)) == plain(tree_of(root))


@given(sources)
@settings(max_examples=200, deadline=None)
def test_both_ways_find_the_same(source: str) -> None:
    page = page_of(source)
    assert page.xpath("//*").getall() == page.css("*").getall()
    assert page.xpath("//text()").getall() == page.css("::text").getall()
    assert page.xpath("//@class").getall() == page.css("::attr(class)").getall()
    assert page.xpath("//tr/*").getall() == page.css("tr > *").getall()
    for cell in page.css("tr, div, svg"):
        assert cell.xpath(".//*").getall() == [each.get() for each in cell.css("*")][1:]
        assert cell.xpath("..").css(":scope > *").getall() == cell.xpath("../*").getall()
        assert cell.xpath("self::*").getall() == cell.getall()
        assert cell.xpath(".//text()").getall() == cell.css("::text").getall()


@given(sources)
@settings(max_examples=300, deadline=None)
def test_implied_elements_go_and_written_ones_stay(source: str) -> None:
    """Marked by hand in the source, exactly the written ones are there; the rest of the tree stays as it was."""
    marked = source.replace("<tbody", "<tbody written").replace("<colgroup", "<colgroup written")
    page = page_of(marked)
    assert all("written" in each.attrib for each in page.css("tbody, colgroup"))
    untouched = LexborHTMLParser(marked, options=1)
    if untouched.tags("template"):
        return
    written = [node for name in ("tbody", "colgroup") for node in untouched.tags(name) if "written" in node.attributes]
    assert len(page.css("tbody, colgroup")) == len(written)
    others = [node.tag for node in untouched.css("*") if node.tag not in ("tbody", "colgroup")]
    assert page.xpath("//*[not(self::tbody or self::colgroup)]").xpath("name()").getall() == [
        (name or "").replace("<", "_").replace('"', "_") for name in others
    ]


def test_characters_that_xml_does_not_have() -> None:
    page = page_of("<p title='a\x0cb'>form\x0cfeed &#1;</p><!-- \x0c -->")
    assert page.xpath("//p/text()").getall() == page.css("p::text").getall() == ["form\x0cfeed \x01"]
    assert page.xpath("//p/@title").get() == "a\x0cb"
    assert page.xpath("string(//comment())").get() == " \x0c "


def test_odd_names_of_attributes() -> None:
    page = page_of("<a @click='go' :class='c' x-on:click.prevent=1 xml:lang=en xmlns='http://x/'>t</a>")
    assert page.xpath("//a/@*").getall() == ["go", "c", "1", "en", "http://x/"]
    assert page.xpath("//@*[name()='@click']").get() == "go"
    assert page.css("a::attr('@click')").get() == "go"


def test_comments() -> None:
    page = page_of("<!-- one --><html><body><p>x<!--two--></p></body></html><!--three-->")
    assert page.xpath("//comment()").getall() == ["<!-- one -->", "<!--two-->", "<!--three-->"]
    assert page.xpath("//comment()").css("p").getall() == []
    assert page.xpath("//comment()").text == ""
