"""The Page: a response with everything a handler does with it.

:func:`find_refresh_target` finds the target of ``<meta http-equiv=refresh>`` without parsing the page.

HTML and XML are parsed on first use. The engine calls :meth:`Page.prepare` first, which parses pages of more than
``html.THREAD_BYTES`` before, and in a thread if that may take long.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec
from selectolax.lexbor import LexborHTMLParser, LexborNode

from uttu.clients.addresses import mask_logins
from uttu.model import Headers, Links, Request, Response
from uttu.model.request import check_fields
from uttu.model.url import Joiner
from uttu.policy.meta_tags import (
    MAX_REFRESH_SECONDS,
    cut_prefix,
    find_refresh,
    find_tags,
    may_refresh,
    parse_refresh,
)
from uttu.spider import html
from uttu.spider.charset import HTML_UTF8_TYPES, decode, find_encoding, query_encoder
from uttu.spider.content_type import is_xml
from uttu.spider.document import Document
from uttu.spider.links import Patterns, classify_target, explain_ambiguity, filter_links, is_url
from uttu.spider.query import is_selector
from uttu.spider.selection import Selection
from uttu.threads import run_in_new_thread

if TYPE_CHECKING:
    from uttu.spider.sitemap import Sitemap
    from uttu.spider.xml import XmlDocument

# Selector of the elements that link to pages.
LINKS: Final = "a, area"
# Maximum number of links in an iterable given to ``follow_all``, which may be endless.
MAX_TARGETS: Final = 1_000_000
# Maximum number of objects and arrays in a JSON document: Python needs up to 200 bytes for each.
MAX_CONTAINERS: Final = 1_500_000

# An escaped backslash, a surrogate pair, or (group 1) half of a pair, which msgspec refuses.
_surrogate_escape: Final = re.compile(
    r"\\\\|\\u[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}|(\\u[Dd][89A-Fa-f][0-9A-Fa-f]{2})"
)

Target = str | Selection
Handler = Callable[..., Any]


class PageLog(logging.LoggerAdapter[logging.Logger]):
    """Logs with the URL of a page before each message. The JSON form also has it as the field ``url``."""

    def __init__(self, logger: logging.Logger, url: str) -> None:
        super().__init__(logger, {"url": url})
        self._url = url

    def log(self, level: int, msg: object, *args: object, **keywords: Any) -> None:
        if self.isEnabledFor(level):
            shown = mask_logins(self._url)
            # Without arguments, logging does not format the message.
            head = shown.replace("%", "%%") if args else shown
            keywords["extra"] = {"url": shown, **(keywords.get("extra") or {})}
            self.logger.log(level, f"{head}: {msg}", *args, **keywords)


class Page:
    """A response, parsed on first use.

    ``css`` and ``xpath`` select elements, ``follow`` and ``follow_all`` make requests from links, ``json`` and ``text``
    decode the body. ``meta`` is the data that the request carried.
    """

    # The engine replaces it with the logger of the spider.
    _logger = logging.getLogger("uttu.spider")

    def __init__(self, response: Response) -> None:
        self.response = response
        self.request = response.request
        self.url = response.url
        # Cached by hand: before Python 3.12, cached_property takes a lock when it computes its value.
        self._cached_roots: tuple[LexborNode, ...] | None = None
        self._cached_joiner: Joiner | None = None
        self._cached_document: Document | XmlDocument | None = None
        self._cached_is_xml: bool | None = None
        self._cached_encoding = ""

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

    @property
    def log(self) -> PageLog:
        """Logs to the spider's logger, ``uttu.spider.NAME``, with the page's URL before each message."""
        return PageLog(self._logger, self.url)

    @property
    def encoding(self) -> str:
        """The encoding of the body, by its name in the Encoding standard."""
        if not self._cached_encoding:
            self._cached_encoding = find_encoding(self.body, self.headers.get("content-type"))
        return self._cached_encoding

    @cached_property
    def text(self) -> str:
        """The body as text, decoded as in browsers."""
        encoding = self._cached_encoding
        content_type = f"text/html; charset={encoding}" if encoding else self.headers.get("content-type")
        text, self._cached_encoding = decode(self.body, content_type)
        return text

    def json(self) -> Any:
        """The body as JSON. It is read as UTF-8, or else in the charset of :attr:`text`. Numbers may have any size.

        Half of a surrogate pair, as in an emoji that was cut, becomes U+FFFD.

        :raises ValueError: the body is not JSON, or has more than ``MAX_CONTAINERS`` objects and arrays.
        """
        if len(self.body) > MAX_CONTAINERS and self.body.count(b"{") + self.body.count(b"[") > MAX_CONTAINERS:
            raise ValueError(f"The JSON of {self.url} has more than {MAX_CONTAINERS:,} objects and arrays")
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        text = self.text
        if "\\ud" in text or "\\uD" in text:
            text = _surrogate_escape.sub(_replace_lone_surrogate, text)
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            if isinstance(error, msgspec.ValidationError):  # a number that msgspec refuses
                with contextlib.suppress(ValueError, RecursionError):
                    return json.loads(text, parse_constant=_refuse_constant)
            # Don't store the error in a variable: it refers to this frame, and the cycle would keep the page alive.
            raise ValueError(f"{self.url} is not JSON ({error}); it begins with {self.body[:60]!r}") from error

    @property
    def _is_large(self) -> bool:
        """Whether this is a large HTML, XML or JSON page. Parsed, it takes many times the memory of its body."""
        if len(self.response.body) <= html.THREAD_BYTES:
            return False
        content_type = self.headers.get("content-type", "html").lower()
        return "html" in content_type or "json" in content_type or self._is_xml

    async def prepare(self) -> None:
        """Parse a large HTML or XML page, in a thread if it takes long. The engine awaits this.

        Other pages are parsed when a handler first selects an element.
        """
        if not self._is_large:
            return
        if self._is_xml:
            # lxml keeps all names of elements and attributes until the thread that parsed them ends, so use a new one.
            await run_in_new_thread(lambda: self._document)
        elif "html" in self.headers.get("content-type", "html").lower():
            body = self._utf8_body
            if len(body) > html.LOOP_BYTES or not self._keep_tree(html.parse_if_cheap(body)):
                await run_in_new_thread(lambda: self._roots)

    def css(self, query: str) -> Selection:
        """Select elements by CSS. ``::text`` and ``::attr(name)`` select strings.

        :raises ValueError: ``query`` is not a valid selector.
        """
        document = self._cached_document
        return (self._document if document is None else document).css(query)

    def xpath(self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any) -> Selection:
        """Select elements, texts or attributes by XPath 1.0.

        :param namespaces: prefixes for namespaces of an XML document, in addition to the registered ones.
        :param variables: values for ``$name`` in the query.
        :raises ValueError: ``query`` is not valid XPath.
        """
        return self._document.xpath(query, namespaces, **variables)

    def register_namespace(self, prefix: str, uri: str) -> None:
        """Let queries on this page use ``prefix`` for a namespace: ``//prefix:name`` or, in CSS, ``prefix|name``."""
        self._document.namespaces[prefix] = uri

    def remove_namespaces(self) -> None:
        """Remove all namespaces from an XML document, so that queries find its elements by their plain names."""
        if not isinstance(self._document, Document):
            self._document.remove_namespaces()

    def sitemap(self) -> Sitemap:
        """The body as a sitemap, sitemap index, feed or list of URLs. Empty if it is something else."""
        from uttu.spider.sitemap import parse_sitemap

        return parse_sitemap(self.body, self.url)

    def urljoin(self, link: str) -> str | None:
        """A link on this page as an absolute URL without fragment. None if it is not an http or https URL."""
        return self._join(link)

    def links(
        self, css: str = LINKS, *, allow: Patterns = (), deny: Patterns = (), same_site: bool = False
    ) -> list[str]:
        """The URLs that this page links to, without duplicates, in document order.

        :param css: selects the elements. Each gives its ``href``, or else its ``src``. On XML pages the default is
            ``<link>``, ``<loc>`` and ``<a>``; those without ``href`` give their text.
        :param allow: regular expressions; keep only URLs that match one. Without it, links to images, archives and
            similar files are left out.
        :param deny: regular expressions; drop URLs that match one.
        :param same_site: keep only URLs on this host and its subdomains.
        """
        texts = self._default_links() if css == LINKS else self.css(css)._get_links()
        return list(filter_links(self._join.all(texts), self.url, allow=allow, deny=deny, same_site=same_site))

    def follow(
        self, target: Target | None = None, *, url: str | None = None, to: Handler | str = "", **fields: Any
    ) -> Request | None:
        """A request for a link. None if ``target`` selects no link, or if nothing is given.

        ``target`` is a selection (its first link is used), a CSS selector, or a URL. A string is

        - a URL if it begins with a scheme, ``/``, ``./``, ``../`` or ``?``, or is not a valid selector (``page/2``);
        - a selector if an element matches it, or if it can only be one: it has spaces, ``.class`` or ``#id`` at the
          beginning, ``[…]``, or the name of an HTML element (``li.next a``, ``a.next``);
        - a URL if it ends like a file (``page-2.html``, ``data.json``);
        - else an error, because it could be both (``next``, ``page-2``): use ``url=`` or ``page.css(…)``.

        :param url: always a URL.
        :param to: the handler, a function or its name. The default is the spider's first handler.
        :param fields: fields of :class:`uttu.Request`.
        :raises ValueError: a string could be a URL or a selector, or a URL does not lead to a web page.
        """
        texts = [url] if url is not None else self._find_links(target) if target is not None else []
        links = self._make_links(texts, to, fields, "page.follow")
        if not links and texts and (url is not None or (isinstance(target, str) and texts == [target.strip()])):
            raise ValueError(f"Cannot follow {texts[0]!r}: it is not a link to a web page.")
        return next(iter(links), None)

    def follow_all(
        self, target: Target | Iterable[str | Selection | None] = "a", *, to: Handler | str = "", **fields: Any
    ) -> Sequence[Request]:
        """Requests for all links of ``target``: a selection, a string as in :meth:`follow`, or an iterable of these.

        Strings in an iterable are URLs. Elements without a link, and None, are skipped.

        :raises ValueError: a string could be a URL or a selector, or there are more than ``MAX_TARGETS`` links.
        """
        return self._make_links(self._find_links(target), to, fields, "page.follow_all")

    def _make_links(self, texts: list[str], to: Handler | str, fields: dict[str, Any], function: str) -> Links:
        handler = to if isinstance(to, str) else to.__name__
        if fields:
            check_fields(fields, function)
        links = Links(texts, self._join, {"handler": handler, "depth": self.request.depth + 1, **fields})
        if fields:
            links.to(self.url)  # raise for an unknown field here, in the call that has it
        return links

    def _find_links(self, target: object) -> list[str]:
        """The links of a target, as they are written on the page."""
        if isinstance(target, str):
            return self._find_links_by_string(target)
        if isinstance(target, Selection):
            return target._get_links()
        if not isinstance(target, Iterable) or isinstance(target, bytes | Mapping):
            raise _refuse_target(target)
        texts: list[str] = []
        for each in target:
            if isinstance(each, str):
                texts.append(each)
            elif isinstance(each, Selection):
                texts += each._get_links()
            elif each is not None:
                raise _refuse_target(each)
            if len(texts) > MAX_TARGETS:
                raise ValueError(f"page.follow_all() takes at most {MAX_TARGETS:,} links")
        return texts

    def _find_links_by_string(self, target: str) -> list[str]:
        target = target.strip()
        if target == "a":
            return self._default_links() if self._is_xml else self.css(target)._get_links()
        if is_url(target):
            return [target]
        if is_selector(target):
            selection = self.css(target)
            if selection:
                return selection._get_links()
        match classify_target(target):
            case "url":
                return [target]
            case "selector":
                return []
            case "unclear":
                raise ValueError(explain_ambiguity(target))

    def _default_links(self) -> list[str]:
        document = self._document
        return document.css(LINKS)._get_links() if isinstance(document, Document) else document.links()

    @property
    def _join(self) -> Joiner:
        if self._cached_joiner is None:
            self._cached_joiner = self._create_joiner()
        return self._cached_joiner

    def _create_joiner(self) -> Joiner:
        if self._is_xml:
            document = self._document if b"xml:base" in self.body else None
            return Joiner(self.url if document is None or isinstance(document, Document) else document.base)
        encoding = self.encoding
        encode = query_encoder(encoding) if encoding != "utf-8" else None
        joiner = Joiner(self.url, encode)
        roots = self._roots
        href = html.find_base_href(roots[0]) if roots else None
        if href is not None and html.has_base_in_noscript(self.body):
            # Browsers that run scripts ignore a <base> in <noscript>. The parser ends a <noscript> at a <base>, so
            # its tree does not show this: read the source instead.
            bases = (attributes.get("href") for tag, attributes in find_tags(self.text) if tag == "base")
            href = next((each for each in bases if each is not None), None)
        joined = joiner(href) if href is not None else None
        return Joiner(joined, encode) if joined else joiner

    @property
    def _roots(self) -> tuple[LexborNode, ...]:
        """The root of the HTML tree, or nothing. The tree lives as long as this reference to its root."""
        if self._cached_roots is None:
            self._keep_tree(html.parse(self._utf8_body))
        return self._cached_roots or ()

    def _keep_tree(self, tree: LexborHTMLParser | None) -> bool:
        if tree is not None:
            self._cached_roots = () if tree.root is None else (tree.root,)
        return tree is not None

    @property
    def _utf8_body(self) -> bytes:
        return self.body if self.encoding == "utf-8" else self.text.encode(errors="replace")

    @property
    def _document(self) -> Document | XmlDocument:
        if self._cached_document is None:
            if self._is_xml:
                from uttu.spider.xml import XmlDocument

                self._cached_document = XmlDocument(self.text, self.url)
            else:
                self._cached_document = Document(self._roots, len(self.body))
        return self._cached_document

    @property
    def _is_xml(self) -> bool:
        if self._cached_is_xml is None:
            response = self.response
            if response.body[:2] == b"<!" and response.headers.get("content-type") in HTML_UTF8_TYPES:
                self._cached_is_xml, self._cached_encoding = False, "utf-8"
            else:
                self._cached_is_xml = is_xml(response)
        return self._cached_is_xml

    def __repr__(self) -> str:
        return f"<Page {self.status} {self.url}>"


def _refuse_target(target: object) -> TypeError:
    return TypeError(
        f"Cannot follow {reprlib.repr(target)}: give a URL, a CSS selector, a selection, or a list of URLs or "
        "selections."
    )


def _replace_lone_surrogate(found: re.Match[str]) -> str:
    return r"\ufffd" if found[1] else found[0]


def _refuse_constant(name: str) -> None:
    # Called by the json module for NaN, Infinity and -Infinity.
    raise ValueError(f"{name} is not JSON")


def find_refresh_target(response: Response) -> str | None:
    """The URL that a page refreshes to. None if there is no refresh, it comes late, or it leads back to the page.

    The page is not parsed for this. A refresh after more than ``MAX_REFRESH_SECONDS`` is ignored. Sites also send a
    page to itself to set a cookie first, so a response that sets a cookie may lead back to the same URL.
    """
    header = response.headers.get("refresh")
    if header is None and not may_refresh(response.body):
        return None
    refresh = parse_refresh(header) if header is not None else None
    content_type = response.headers.get("content-type", "")
    encode_query = None
    if refresh is None and "html" in (content_type.lower() or "html"):
        encoding = find_encoding(response.body, content_type)
        refresh = find_refresh(decode(cut_prefix(response.body), f"text/html; charset={encoding}")[0])
        encode_query = query_encoder(encoding)
    if refresh is None or not refresh.url or refresh.seconds > MAX_REFRESH_SECONDS:
        return None
    request = response.request
    base = Joiner(response.url)(refresh.base) if refresh.base else None
    url = Joiner(base or response.url, encode_query)(refresh.url)
    is_circular = url in (request.url, *request.via) and response.headers.get("set-cookie") is None
    return None if is_circular else url
