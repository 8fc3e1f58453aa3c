"""A fetch to do, its compact record, and the requests to the links of a page.

The record is JSON with one-letter keys. It holds only the fields that differ from their defaults, so a plain link
costs its URL and about a dozen bytes. It contains data, never code: the handler is stored by name, not pickled. A
record written by an older spider can be read by a newer one, and any language can write one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

import msgspec

from uttu.model.url import Joiner, canonical, fingerprint, host_of

_StructType: Any = msgspec.StructMeta

_KEYS = {
    "url": "u",
    "handler": "h",
    "method": "m",
    "headers": "H",
    "body": "b",
    "meta": "x",
    "cookies": "c",
    "priority": "p",
    "depth": "d",
    "via": "v",
    "salt": "s",
    "proxy": "P",
    "start": "S",
    "carried": "C",
}


class SetCookie(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A cookie that a redirect set: the URL that redirected, the header's value, and the Unix time it arrived.

    If ``at`` is 0, the spider gave the cookie to the redirected request, and ``text`` is ``name=value``.
    """

    url: str
    text: str
    at: float = 0.0

    @property
    def is_own(self) -> bool:
        return not self.at


if TYPE_CHECKING:
    # The type checker takes the parameters of Request from its fields.
    from msgspec import StructMeta as _RequestType
else:

    class _RequestType(_StructType):
        """Makes the URL of ``Request(url)`` canonical.

        msgspec decodes records, and copies requests with ``replace``, without this call, so it costs nothing there.
        """

        def __call__(self, url: str, *more: Any, **fields: Any) -> Any:
            if fields:
                check_fields(fields, "Request")
            return super().__call__(canonical(url), *more, **fields)


class _ToUrl(msgspec.Struct, frozen=True, omit_defaults=True, rename=_KEYS.get, gc=False):
    # A separate class, because the URL is the only field that can be passed by position.
    url: str


# gc=False, because its fields are JSON, which has no cycles, and a crawl makes hundreds of thousands a second.
class Request(
    _ToUrl, frozen=True, omit_defaults=True, rename=_KEYS.get, kw_only=True, gc=False, metaclass=_RequestType
):
    """A fetch to do: ``Request("https://example.org/")``. The URL becomes canonical.

    ``handler`` names the function that gets the page; empty means the spider's first one.
    ``via`` lists the URLs that redirected here. Requests that differ only in ``salt`` count as different requests.
    ``start``: a start URL of the user, not a link; set where it is added to the crawl. ``carried`` are the cookies that
    the redirects in ``via`` set, for the worker that fetches this.

    :raises ValueError: ``url`` is not an absolute http(s) URL.
    :raises TypeError: a field that requests do not have.
    """

    handler: str = ""
    method: str = "GET"
    headers: dict[str, str] = {}
    body: bytes = b""
    meta: dict[str, Any] = {}
    cookies: dict[str, str] = {}
    priority: int = 0
    depth: int = 0
    via: tuple[str, ...] = ()
    salt: str = ""
    proxy: str = ""
    start: bool = False
    carried: tuple[SetCookie, ...] = ()

    @classmethod
    def to(cls, url: str, **fields: Any) -> Request:
        """The same as ``Request(url, …)``."""
        if fields:
            check_fields(fields, "Request.to")
        return cls(url, **fields)

    @classmethod
    def from_canonical(cls, url: str, **fields: Any) -> Request:
        """A request to a URL that is canonical already. Nothing is checked, so this is faster."""
        request: Request = _StructType.__call__(cls, url, **fields)
        return request

    def replace(self, **fields: Any) -> Request:
        """A copy with other values for these fields.

        :raises ValueError: ``url`` is not an absolute http(s) URL.
        :raises TypeError: a field that requests do not have.
        """
        check_fields(fields, "Request.replace")
        if "url" in fields:
            fields["url"] = canonical(fields["url"])
        return msgspec.structs.replace(self, **fields)

    @property
    def fingerprint(self) -> int:
        return fingerprint(self.url, self.method, self.body, self.salt)

    @property
    def lane(self) -> str:
        """The politeness bucket it belongs to: its host."""
        return host_of(self.url)

    def record(self) -> bytes:
        return _encode(self)

    @staticmethod
    def from_record(record: bytes | str) -> Request:
        return _decode(record)


# Arguments of other crawlers' requests, and what to use instead.
_HINTS = {
    "callback": "{to}",
    "cb_kwargs": "meta={{…}}",
    "dont_filter": "salt=, a different one each time",
    "errback": "@spider.on_error",
    "formdata": "method='POST' and body=",
}


def check_fields(fields: dict[str, Any], function: str) -> None:
    """Refuse fields of other crawlers' requests, with a hint.

    :param function: The name of the function that got the fields, for the message.
    :raises TypeError: there is such a field, or ``handler`` is not a string.
    """
    on_page = function.startswith("page.")
    to = "to=" if on_page else "handler= with the handler's name"
    for name in fields.keys() & _HINTS.keys():
        raise TypeError(f"{function}() has no argument {name!r}. Use {_HINTS[name].format(to=to)}.")
    if not isinstance(fields.get("handler", ""), str):
        name = getattr(fields["handler"], "__name__", "…")
        use = f"to={name}" if on_page else f"handler={name!r}"
        raise TypeError(f"{function}() takes the name of a handler as handler=, not a function. Use {use}.")


def to_base(value: Any) -> Any:
    """Convert a value of a subclass of str, int, float or bytes to that base class; for msgspec's ``enc_hook``.

    msgspec encodes only the bases. The strings that lxml returns are of a subclass.

    :raises TypeError: it is of another type.
    """
    match value:
        case str():
            return str.__str__(value)
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case bytes() | bytearray() | memoryview():
            return bytes(memoryview(value))
    raise TypeError(f"Encoding objects of type {type(value).__qualname__} is unsupported")


_encode = msgspec.json.Encoder(enc_hook=to_base).encode
_decode = msgspec.json.Decoder(Request).decode


def encode_body(request: Request) -> Request:
    """Return the request with its body as bytes; text becomes UTF-8.

    :raises TypeError: the body is neither bytes nor text.
    """
    body: object = request.body
    match body:
        case bytes():
            return request
        case str():
            return msgspec.structs.replace(request, body=body.encode())
        case bytearray() | memoryview():
            return msgspec.structs.replace(request, body=bytes(body))
    raise TypeError(
        f"The body of a request for {request.url} is a {type(body).__name__}. Use bytes or text: for JSON "
        "body=json.dumps(…) and the header Content-Type, for a form body=urllib.parse.urlencode(…)"
    )


_IDENTITY = frozenset({"method", "body", "salt"})
_BARE = frozenset({"handler", "depth"})


class Links(Sequence[Request]):
    """A lazy sequence of requests for the links ``texts``, without duplicates. All have the same other ``fields``.

    Most links of a page lead to pages that are known already. The engine compares the texts of the links with those it
    knows; only the others are joined to the page's URL and become requests.
    """

    __slots__ = ("_template", "_urls", "fields", "join", "texts")

    def __init__(self, texts: list[str], join: Joiner, fields: dict[str, Any]) -> None:
        # Encode the queries first: the engine remembers links by their text, which must mean the same on every page.
        self.texts = texts if join.encode_query is None else [join.with_encoded_query(text) for text in texts]
        self.join = join
        self.fields = fields
        self._urls: list[str] | None = None
        self._template: Request | None = None

    @property
    def urls(self) -> list[str]:
        if self._urls is None:
            self._urls = self.join.all(self.texts)
        return self._urls

    @property
    def is_plain(self) -> bool:
        """Whether the fingerprints of these requests depend only on their URLs."""
        return _IDENTITY.isdisjoint(self.fields)

    @property
    def is_bare(self) -> bool:
        """Whether the fields are only a handler and a depth, as for most links."""
        return self.fields.keys() <= _BARE

    def to(self, url: str) -> Request:
        """The request for one of the URLs.

        :raises TypeError: a field that requests do not have.
        """
        if self._template is None:
            self._template = Request.from_canonical(url, **self.fields)
        # A copy is three times as fast as the constructor.
        return msgspec.structs.replace(self._template, url=url)

    def __len__(self) -> int:
        return len(self.urls)

    @overload
    def __getitem__(self, index: int) -> Request: ...
    @overload
    def __getitem__(self, index: slice) -> Links: ...
    def __getitem__(self, index: int | slice) -> Request | Links:
        urls = self.urls[index]
        return self.to(urls) if isinstance(urls, str) else Links(urls, self.join, self.fields)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Links({self.urls!r}, {self.fields!r})"
