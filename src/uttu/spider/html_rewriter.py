"""Rewrite HTML that exceeds the bounds of a tree.

:class:`TagSurvey` reads the tags of a page as a parser would, with a stack of open elements. It says whether the page
exceeds a bound, and writes a source that doesn't. The bounds:

- ``MAX_DEPTH``: deeper elements become siblings, as in browsers.
- ``MAX_ATTRIBUTES`` of one element: the others are dropped.
- ``MAX_FORMATTING`` formatting elements in one another: others become ``<span>``.
- ``MAX_ELEMENTS``: the rest of the page is cut off.
- ``MAX_NAMES``: elements of further names become ``<span>``, further attributes are dropped.

Text and links of deep elements stay.
"""

from __future__ import annotations

import re
from typing import Final

MAX_DEPTH: Final = 512
MAX_ATTRIBUTES: Final = 1000
MAX_FORMATTING: Final = 16
MAX_ELEMENTS: Final = 150_000
MAX_NAMES: Final = 20_000
"""Different names of elements and attributes. lexbor looks them up in a hash table that does not grow."""


def any_case(names: bytes) -> bytes:
    """A regular expression for names that are separated by "|", in upper and lower case.

    Unlike the flag ``IGNORECASE``, it lets the search go from one ``<`` to the next: five times as fast.
    """
    return re.sub(rb"[a-z]", lambda found: b"[%s%s]" % (found[0].upper(), found[0]), names)


_MADE_BY_END: Final = frozenset((b"p", b"br"))  # their end tags make elements where none is open

FORMATTING: Final = frozenset(b"b big code em font i nobr s small strike strong tt u".split())
_VOID: Final = frozenset(
    b"area base basefont bgsound br col embed frame hr image img input keygen link meta param source track wbr".split()
)
_RAW: Final = frozenset(b"script style textarea title xmp iframe noembed noframes".split())
_ONCE: Final = frozenset((b"html", b"head", b"body"))
_CLOSES_P: Final = frozenset(
    b"address article aside blockquote center dd details dialog dir div dl dt fieldset figcaption figure footer form "
    b"h1 h2 h3 h4 h5 h6 header hgroup hr li listing main menu nav ol p plaintext pre search section summary table ul "
    b"xmp".split()
)
# Elements that end tags from inside don't reach beyond.
_SCOPES: Final = frozenset(
    b"annotation-xml applet button caption desc foreignobject marquee math mi mn mo ms mtext object svg table td "
    b"template th".split()
)
_FOREIGN: Final = frozenset((b"svg", b"math"))
_ROWS: Final = frozenset((b"tr", b"tbody", b"thead", b"tfoot", b"colgroup", b"caption"))
_CELLS: Final = frozenset((b"td", b"th", b"caption"))
# HTML elements that end SVG and MathML.
_BREAKS_OUT: Final = frozenset(
    b"b big blockquote body br center code dd div dl dt em embed h1 h2 h3 h4 h5 h6 head hr i img li listing menu meta "
    b"nobr ol p pre ruby s small span strike strong sub sup table tt u ul var".split()
)
# A start tag of the key ends an open element of the value, if only elements of these two sets are in between.
_ENDS: Final[dict[bytes, frozenset[bytes]]] = {
    b"li": frozenset((b"li",)),
    b"dd": frozenset((b"dd", b"dt")),
    b"dt": frozenset((b"dd", b"dt")),
}
_INLINE: Final = FORMATTING | {b"a", b"span"}
_PASSED: Final = _INLINE | {b"address", b"div", b"p"}
# An end tag of these closes what is open inside of them. One of _LIFTED doesn't: it takes its element out of the
# stack. One of any other name does nothing if a block is open inside.
_BLOCKS: Final = _CLOSES_P - {b"form", b"li"} | _SCOPES | _ROWS | {b"select"}
_LIFTED: Final = FORMATTING | {b"a", b"form"}
_NEAR: Final = 16
"""How many open elements are searched for one that a start tag ends."""

ATTRIBUTE: Final = (
    rb"[\t\n\f\r /]*+[^\t\n\f\r />][^\t\n\f\r />=]*+"
    rb"(?:[\t\n\f\r ]*+=[\t\n\f\r ]*+(?:\"[^\"]*+\"?+|'[^']*+'?+|[^\t\n\f\r >]*+))?+"
)
NAME: Final = rb"[a-zA-Z][^\t\n\f\r />]*+"

_tokens: Final = re.compile(
    rb"<(?:(?P<comment>!--(?:-?>|.*?(?:--!?>|\Z)))|(?P<cdata>!\[CDATA\[)|(?P<bogus>[!?][^>]*+>?|/[^a-zA-Z][^>]*+>?)"
    rb"|(?P<end>/?)(?P<name>%s)(?P<attributes>(?:%s){0,%d}+)(?P<more>(?:%s)*+)[\t\n\f\r ]*+(?P<close>[\t\n\f\r /]*+)>?)"
    % (NAME, ATTRIBUTE, MAX_ATTRIBUTES, ATTRIBUTE),
    re.DOTALL,
).search
_attribute_names: Final = re.compile(
    ATTRIBUTE.replace(rb"[^\t\n\f\r />][^\t\n\f\r />=]*+", rb"([^\t\n\f\r />][^\t\n\f\r />=]*+)", 1)
).findall
_raw_ends: Final = {name: re.compile(rb"</%s(?=[\t\n\f\r />])" % name, re.IGNORECASE).search for name in _RAW}


class TagSurvey:
    """A pass over the tags of a page with a stack of the open elements, or of as many or more than are open.

    Without ``rewrite`` it ends at the first bound that is exceeded. With it, ``pieces`` are a source that keeps to
    the bounds: every end tag that HTML implies is written, so that the parser has no more elements open than this.
    """

    def __init__(self, body: bytes, *, rewrite: bool) -> None:
        self.exceeds = False
        self.pieces: list[bytes] = []
        self._body = body
        self._rewrite = rewrite
        self._copied = 0
        self._stack: list[bytes] = []
        self._formatting = 0
        # The elements that end tags reach beyond, the outermost first, with the number of open elements by name.
        self._scopes: list[tuple[bytes, dict[bytes, int]]] = [(b"", {})]
        self._once: dict[bytes, int] = {}
        self._names: set[bytes] = set()
        end = self._read()
        if rewrite:
            self.pieces.append(body[self._copied : end])

    def _read(self) -> int:
        """Read up to a bound or to the end; the position there."""
        body = self._body
        elements = position = 0
        while (token := _tokens(body, position)) is not None:
            start, position = token.span()
            elements += 1
            if elements > MAX_ELEMENTS:
                self.exceeds = True
                return start
            name = token["name"]
            if name is None:
                if token["cdata"]:
                    position = self._read_cdata(start, position)
                continue
            name = name.lower()
            if token["more"] or len(self._names) > MAX_NAMES:
                self.exceeds = True
            if token["end"]:
                if name not in _MADE_BY_END or self._scopes[-1][1].get(name):
                    elements -= 1
                self._end(name, start, position, plain=not token["attributes"])
            elif self._start(name, token):
                end = _raw_ends[name](body, position)
                if end is None:
                    return len(body)
                position = end.start()
            elif name == b"plaintext":
                return len(body)
            if self.exceeds and not self._rewrite:
                return position
        return len(body)

    def _read_cdata(self, start: int, position: int) -> int:
        """Text in SVG and MathML, a comment up to the next ``>`` elsewhere. When rewriting, it becomes plain text."""
        foreign = self._scopes[-1][0] in _FOREIGN
        end = self._body.find(b"]]>" if foreign else b">", position)
        end = len(self._body) if end < 0 else end
        if self._rewrite:
            text = self._body[position:end].replace(b"&", b"&amp;").replace(b"<", b"&lt;") if foreign else b""
            self._replace(start, min(end + (3 if foreign else 1), len(self._body)), text)
        return end

    def _start(self, name: bytes, token: re.Match[bytes]) -> bool:
        """Open an element. Whether its content is text up to its end tag."""
        start, position = token.span()
        attributes = token["attributes"]
        new = self._new_names(name, attributes)
        if len(self._names) + len(new) > MAX_NAMES and self._rewrite and new:
            attributes = b""
            name = b"span" if name in new else name
        else:
            self._names |= new
        changed = (
            bool(token["more"]) or attributes != token["attributes"] or (name == b"span" and name != token["name"])
        )
        if name in _ONCE:
            # Browsers add the attributes of a second <body> to the first.
            self._once[name] = self._once.get(name, 0) + 1
            self.exceeds |= self._once[name] > MAX_ATTRIBUTES
            if self._once[name] > 1 or changed:
                self._replace(start, position, b"" if self._once[name] > 1 else b"<%s%s>" % (name, attributes))
            return False
        if self._scopes[-1][0] in _FOREIGN:
            if name in _BREAKS_OUT:
                while self._scopes[-1][0] in _FOREIGN:
                    self._close(self._scopes[-1][0], start)
            elif b"/" in token["close"]:
                if changed:
                    self._replace(start, position, b"<%s%s/>" % (name, attributes))
                return False
        if name in _CLOSES_P and self._scopes[-1][1].get(b"p"):
            self._close(b"p", start)
        if name in _ROWS or name in _CELLS:
            self._end_cells(name, start)
            if self._scopes[-1][0] not in (b"table", b"template"):
                return False
        elif name in _ENDS:
            self._end_near(_ENDS[name], _PASSED, start)
        elif name in (b"a", b"nobr") and self._scopes[-1][1].get(name):
            self._end_lifted(name, start)
        elif name == b"option" and self._stack[-1:] == [name]:
            self._close(name, start)
        foreign = self._scopes[-1][0] in _FOREIGN
        opens = foreign or not (name in _VOID or name in _RAW)
        if opens and len(self._stack) >= MAX_DEPTH:
            self.exceeds = True
            self._close(self._stack[-1], start)
        if name in FORMATTING and self._formatting >= MAX_FORMATTING:
            self.exceeds = changed = True
            name = b"span"
        if changed:
            self._replace(start, position, b"<%s%s>" % (name, attributes))
        if opens:
            self._open(name)
        return name in _RAW and not foreign

    def _new_names(self, name: bytes, attributes: bytes) -> set[bytes]:
        new = {name, *_attribute_names(attributes)} if attributes else {name}
        return new - self._names

    def _open(self, name: bytes) -> None:
        scope, opened = self._scopes[-1]
        self._stack.append(name)
        self._formatting += name in FORMATTING
        opened[name] = opened.get(name, 0) + 1
        if name in _SCOPES or (name == b"title" and scope == b"svg"):
            self._scopes.append((name, {}))

    def _end_near(
        self, names: frozenset[bytes], passed: frozenset[bytes], offset: int, *, written: bool = False
    ) -> None:
        """Close an element of these names if there is one near the top of the stack, below elements to pass."""
        for other in self._stack[: -_NEAR - 1 : -1]:
            if other in names:
                self._close(other, offset, written=written)
                return
            if other not in passed:
                return

    def _end_lifted(self, name: bytes, offset: int, *, written: bool = False) -> None:
        """Take an element out of the stack; when rewriting, close it with all that is in it."""
        if self._rewrite or self._stack[-1] == name:
            self._close(name, offset, written=written)
        elif name in self._stack[-_NEAR:]:
            near = self._stack[: -_NEAR - 1 : -1].index(name)
            # Only within the innermost scope, so that the numbers by name stay right.
            if not any(other in _SCOPES for other in self._stack[len(self._stack) - near :]):
                del self._stack[-1 - near]
                self._scopes[-1][1][name] -= 1
                self._formatting -= name in FORMATTING

    def _end_cells(self, name: bytes, start: int) -> None:
        """End the cell, and for a row the row, that a start tag of a cell or row ends."""
        if self._scopes[-1][0] in _CELLS:
            self._close(self._scopes[-1][0], start)
        while self._scopes[-1][0] == b"table" and self._stack[-1] != b"table" and self._stack[-1] not in _ROWS:
            self._close(self._stack[-1], start)
        if name in _ROWS and self._scopes[-1][0] == b"table":
            for other in (b"tr", b"tbody", b"thead", b"tfoot", b"colgroup"):
                if self._scopes[-1][1].get(other) and (other != b"tbody" or name != b"tr"):
                    self._close(other, start)
                    break

    def _end(self, name: bytes, start: int, position: int, *, plain: bool) -> None:
        scope, opened = self._scopes[-1]
        if opened.get(name) or scope == name:
            if self._rewrite or name in _BLOCKS or scope in _FOREIGN:
                self._close(name, start, written=True)
            elif name in _LIFTED:
                self._end_lifted(name, start, written=True)
            else:
                self._end_near(frozenset((name,)), _PASSED if name == b"li" else _INLINE, start, written=True)
        elif scope in _CELLS and (self._scopes[-2][1].get(name) or self._scopes[-2][0] == name):
            self._close(scope, start)
            self._close(name, start, written=True)
        elif not (name in _ONCE or name in _RAW or name == b"br"):
            self._names.add(name)
            self._replace(start, position, b"")
            return
        if not plain:
            self._replace(start, position, b"</" + name + b">")

    def _close(self, name: bytes, offset: int, *, written: bool = False) -> None:
        """Close all open elements up to one of this name, which is open; ``written``: its end tag is in the source."""
        ends = []
        while True:
            closed = self._stack.pop()
            scope, opened = self._scopes[-1]
            if closed == scope and not opened.get(closed):
                self._scopes.pop()
                opened = self._scopes[-1][1]
            opened[closed] -= 1
            # Without its own end tag, HTML opens it again later; a rewritten source has all end tags.
            self._formatting -= closed in FORMATTING and (self._rewrite or (written and closed == name))
            if closed == name:
                break
            ends.append(b"</" + closed + b">")
        if self._rewrite:
            if not written:
                ends.append(b"</" + name + b">")
            if ends:
                self._replace(offset, offset, b"".join(ends))

    def _replace(self, start: int, end: int, new: bytes) -> None:
        """Put ``new`` in the place of a part of the source; parts come in order."""
        if self._rewrite:
            self.pieces += (self._body[self._copied : start], new)
            self._copied = end
