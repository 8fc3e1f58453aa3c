"""The Spider: a name, where to start, and handlers by name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from weft.errors import ConfigError, SpiderError, StartError
from weft.frontier.depot import is_name
from weft.model import Request, Response
from weft.spider.faults import BY_USERS, frames_of, line_of, message_of, reraise_own_cancel
from weft.spider.page import Page
from weft.spider.results import batches, flatten
from weft.spider.sitemap_handler import SITEMAP, sitemap_handler, sitemap_request

F = TypeVar("F", bound=Callable[..., Any])
Next = Callable[[Request], Awaitable[Response]]
Middleware = Callable[[Request, Next], Awaitable[Response]]


class Failure(msgspec.Struct, frozen=True):
    """What an ``on_error`` handler gets: a request that was given up, and why.

    ``kind`` is one word (``http``, ``dns``, ``timeout``, ``handler`` …); ``response`` is there
    where the host answered.
    """

    request: Request
    kind: str
    reason: str
    attempt: int
    response: Response | None = None


class Spider:
    """The user's code. Handlers are functions that yield items and requests::

        spider = Spider("quotes", start="https://quotes.example/", delay=0.5)

        @spider.page
        async def listing(page: Page):
            yield {"title": page.css("h1::text").get()}
            yield page.follow("li.next a")

    ``start`` is a URL or several. ``sitemap`` is a sitemap, a robots.txt, or the root of a site
    whose sitemap is then found; its pages go to the first handler. ``args`` are the spider's own
    arguments with their defaults, set by ``-a key=value``. All other keywords are settings.
    """

    def __init__(
        self,
        name: str,
        start: str | Iterable[str] = (),
        *,
        sitemap: str | Iterable[str] = (),
        args: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        if not is_name(name):
            raise SpiderError(f"a spider's name is made of letters, digits, '-', '_' and '.': {name!r} is not")
        self.name = name
        self.file: Path | None = None
        self.start_urls = _listed(start)
        self.sitemap_urls = _listed(sitemap)
        self.args: dict[str, Any] = dict(args or {})
        self.settings = settings
        self.handlers: dict[str, Callable[[Page], Any]] = {SITEMAP: sitemap_handler}
        self.default_handler = ""
        self.starter: Callable[[], Any] | None = None
        self.error_handler: Callable[[Failure], Any] | None = None
        self.middlewares: list[Middleware] = []

    def page(self, handler: F) -> F:
        """Register a handler under its function's name. The first one is the default."""
        name = handler.__name__
        if name in self.handlers:
            raise SpiderError(f"spider {self.name!r} has two handlers named {name!r}; requests find them by name")
        self.handlers[name] = handler
        self.default_handler = self.default_handler or name
        return handler

    def start(self, starter: F) -> F:
        """Register a function that yields the first requests or URLs, in addition to ``start=``."""
        self._refuse_second("start", self.starter, starter)
        self.starter = starter
        return starter

    def on_error(self, handler: F) -> F:
        """Register a function that gets a :class:`Failure` for each request given up; it may yield, too."""
        self._refuse_second("on_error", self.error_handler, handler)
        self.error_handler = handler
        return handler

    def _refuse_second(self, what: str, former: Any, new: Any) -> None:
        if former is not None:
            names = " and ".join(repr(getattr(each, "__name__", each)) for each in (former, new))
            raise SpiderError(
                f"spider {self.name!r} has two @spider.{what} functions, {names}; it takes one: let it call the other"
            )

    def use(self, middleware: Middleware) -> Middleware:
        """Wrap all fetches: ``async def m(request, next): return await next(request)``. First added is outermost."""
        self.middlewares.append(middleware)
        return middleware

    def handler_for(self, request: Request) -> Callable[[Page], Any]:
        """:raises SpiderError: the request names a handler that this spider does not have."""
        name = request.handler or self.default_handler
        try:
            return self.handlers[name]
        except KeyError:
            known = ", ".join(sorted(self.handlers.keys() - {SITEMAP})) or "none"
            raise SpiderError(f"spider {self.name!r} has no handler {name!r}; it has: {known}") from None

    def set_args(self, given: Mapping[str, str]) -> None:
        """:raises ConfigError: it declares its arguments, and one given is not among them."""
        unknown = given.keys() - self.args.keys()
        if self.args and unknown:
            raise ConfigError(
                f"spider {self.name!r} takes no argument {', '.join(sorted(unknown))}; it takes: {', '.join(self.args)}"
            )
        for key, value in given.items():
            default = self.args.get(key)
            self.args[key] = _like(default, key, value)

    async def start_requests(self) -> AsyncIterator[Request]:
        """All first requests.

        :raises SpiderError: one is no URL.
        :raises StartError: the start function raised.
        """
        for url in self.start_urls:
            yield self._start(url)
        for url in self.sitemap_urls:
            yield sitemap_request(self._start(url))
        if self.starter is not None:
            async for each in self._started(self.starter):
                yield each if isinstance(each, Request) else self._start(each)

    async def _started(self, starter: Callable[[], Any]) -> AsyncIterator[Any]:
        try:
            async for batch in batches(starter()):
                for each in flatten(batch):
                    yield each
        except BY_USERS as error:
            reraise_own_cancel(error)
            where = self.file or f"spider {self.name!r}"
            raise StartError(
                f"@spider.start of {where} raised:\n{frames_of(error)}{message_of(error)}",
                f"@spider.start raised {line_of(error)}",
            ) from error

    def _start(self, url: Any) -> Request:
        try:
            return Request.to(url)
        except (ValueError, AttributeError, TypeError):
            raise SpiderError(
                f"spider {self.name!r}: {url!r} is not a URL to start from; write it out, like https://example.org/"
            ) from None

    def __repr__(self) -> str:
        return f"<Spider {self.name}: {', '.join(self.handlers.keys() - {SITEMAP})}>"


def _listed(urls: str | Iterable[str]) -> tuple[str, ...]:
    return (urls,) if isinstance(urls, str) else tuple(urls)


def _like(default: Any, key: str, value: str) -> Any:
    """The given string as the type of the argument's default."""
    if default is None or isinstance(default, str):
        return value
    if isinstance(default, dict | list | tuple | set | frozenset):
        return _decoded(type(default), key, value)
    try:
        return msgspec.convert(value, type(default), strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"-a {key}={value}: {error}") from error


def _decoded(kind: type, key: str, value: str) -> Any:
    try:
        return msgspec.json.decode(value, type=kind)
    except msgspec.MsgspecError as error:
        example = '{"a": 1}' if kind is dict else "[1, 2]"
        raise ConfigError(
            f"-a {key}={value}: a {kind.__name__} is given as JSON, like '{key}={example}': {error}"
        ) from error
