"""The Page: a response with everything a handler does with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec
from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode

from weft.model import Headers, Links, Request, Response
from weft.model.url import Joiner
from weft.spider.charset import decode, is_utf8
from weft.spider.links import Patterns, chosen
from weft.spider.selection import Elements, Pending, Selection

if TYPE_CHECKING:
    from weft.spider.sitemap import Sitemap

# The tree that the page's text makes, without what browsers do to it afterwards; and a little sooner.
_AS_WRITTEN: Final = int(LexborDocumentOptions.WO_EVENTS)

Target = str | Selection
Handler = Callable[..., Any]


class Page:
    """A response, parsed when asked.

    ``css`` and ``xpath`` select, ``follow`` and ``follow_all`` make requests out of links,
    ``json`` and ``text`` decode the body. ``meta`` is what the request that led here carried.
    """

    def __init__(self, response: Response) -> None:
        self.response = response
        self.request = response.request
        self.url = response.url
        # Kept by hand: before Python 3.12 a cached_property takes a lock each time it is made.
        self._found_roots: tuple[LexborNode, ...] | None = None
        self._made_joiner: Joiner | None = None

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def headers(self) -> Headers:
        return self.response.headers

    @property
    def body(self) -> bytes:
        return self.response.body

    @property
    def meta(self) -> dict[str, Any]:
        return self.request.meta

    @property
    def depth(self) -> int:
        return self.request.depth

    @cached_property
    def encoding(self) -> str:
        return decode(self.body, self.headers.get("content-type"))[1]

    @cached_property
    def text(self) -> str:
        """The body as text, its charset found as browsers do."""
        return decode(self.body, self.headers.get("content-type"))[0]

    def json(self) -> Any:
        """The body as JSON: UTF-8, as it should be, else in the charset of :attr:`text`.

        :raises ValueError: it is not JSON.
        """
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        try:
            return msgspec.json.decode(self.text)
        except msgspec.DecodeError as error:
            raise ValueError(f"{self.url} is not JSON ({error}); it begins {self.body[:60]!r}") from error

    def css(self, query: str) -> Selection:
        """Elements by CSS; ``::text`` and ``::attr(name)`` give strings."""
        return Pending(self._roots, query, whole=True)

    def xpath(self, query: str, **variables: Any) -> Selection:
        """Elements, texts or attributes by XPath 1.0; ``$name`` takes ``name=`` from the variables."""
        from weft.spider.xpath import select_in_document

        return select_in_document(self._xpath_tree, query, variables)

    def sitemap(self) -> Sitemap:
        """The body as a sitemap, sitemap index, feed or list of URLs; empty if it is none of these."""
        from weft.spider.sitemap import parse_sitemap

        return parse_sitemap(self.body, self.url)

    def urljoin(self, link: str) -> str | None:
        """A link as it stands on this page, absolute and without fragment; None if it leads to no web page."""
        return self._join(link)

    def links(
        self, css: str = "a, area", *, allow: Patterns = (), deny: Patterns = (), same_site: bool = False
    ) -> list[str]:
        """The URLs this page links to, each once, in order.

        ``allow`` and ``deny`` are regular expressions; ``same_site`` keeps to this host and its
        subdomains. Without ``allow``, links to images, archives and the like are left out.
        """
        return list(chosen(self._join.all(self._texts(css)), self.url, allow=allow, deny=deny, same_site=same_site))

    def follow(self, target: Target = "", *, url: str = "", to: Handler | str = "", **fields: Any) -> Request | None:
        """A request for the first link of ``target``; None if there is none.

        ``target`` is a CSS selector, a selection, or a URL that begins with a scheme, ``/``, ``.``
        or ``?``; a URL of any form goes into ``url``. ``to`` is the handler (the default is the
        spider's first), ``fields`` are those of :class:`weft.Request`.
        """
        return next(iter(self._links([url] if url else self._texts(target), to, fields)), None)

    def follow_all(
        self, target: Target | Iterable[str] = "a", *, to: Handler | str = "", **fields: Any
    ) -> Sequence[Request]:
        """Requests for all links of ``target``: a CSS selector, a selection, or URLs."""
        return self._links(self._texts(target), to, fields)

    def _links(self, texts: list[str], to: Handler | str, fields: dict[str, Any]) -> Links:
        handler = to if isinstance(to, str) else to.__name__
        links = Links(texts, self._join, {"handler": handler, "depth": self.request.depth + 1, **fields})
        if fields:
            links.to(self.url)  # a field that there is not is told here, where it was written
        return links

    def _texts(self, target: Target | Iterable[str]) -> list[str]:
        """Links as they stand on the page."""
        if isinstance(target, str):
            return [target] if _is_url(target) else _hrefs(self.css(target))
        return _hrefs(target) if isinstance(target, Selection) else list(target)

    @property
    def _join(self) -> Joiner:
        if self._made_joiner is None:
            self._made_joiner = self._joiner()
        return self._made_joiner

    def _joiner(self) -> Joiner:
        joiner = Joiner(self.url)
        head = self._roots[0].first_child if self._roots else None
        for base in head.iter() if head is not None else ():
            if base.tag == "base" and (href := base.attributes.get("href")) is not None:
                joined = joiner(href)
                return Joiner(joined) if joined else joiner
        return joiner

    @property
    def _roots(self) -> tuple[LexborNode, ...]:
        """The document's root, if it has one; the tree lives as long as it is held."""
        if self._found_roots is None:
            utf8 = is_utf8(self.body, self.headers.get("content-type"))
            root = LexborHTMLParser(self.body if utf8 else self.text, options=_AS_WRITTEN).root
            self._found_roots = () if root is None else (root,)
        return self._found_roots

    @cached_property
    def _xpath_tree(self) -> Any:
        from weft.spider.xpath import parse_document

        return parse_document(self.text)

    def __repr__(self) -> str:
        return f"<Page {self.status} {self.url}>"


def _is_url(text: str) -> bool:
    # A selector begins with "." only as a class, where a letter follows.
    return text.startswith(("/", "?", "./", "../", "http://", "https://"))


def _hrefs(selection: Selection) -> list[str]:
    found = selection.found if isinstance(selection, Pending) else selection
    if isinstance(found, Elements):
        return found.attributes("href") or found.attributes("src")
    attributes = found.attrib
    if attributes:
        return [each.attrib[name] for each in found for name in ("href", "src") if name in each.attrib]
    return found.getall()
