"""The Spider: a name, URLs to start from, and handlers by name.

A spider is an object, and its handlers are functions that decorators register. Mistakes raise :class:`SpiderError` when
the file is loaded, with a hint for names that come from other tools (``_HINTS``).

``Spider(sitemap=…)`` adds a ready-made handler (:func:`sitemap_handler`). A request for a site's own robots.txt is not
fetched as a page: the worker fetches robots.txt once anyway, for the site's rules, and it may be missing. So such a
request is settled from the known rules (:func:`request_sitemaps`), and only the sitemaps that they name are requested.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, Unpack, overload

import msgspec

from uttu.errors import ConfigError, SpiderError, StartError
from uttu.model import Request, Response
from uttu.model.crawl import SettingValues, is_crawl_name
from uttu.model.request import encode_body
from uttu.model.url import Joiner, origin_of
from uttu.policy import robots
from uttu.policy.robots import Robots
from uttu.spider.handler_errors import USER_ERRORS, format_frames, format_line, format_message, reraise_own_cancel
from uttu.spider.items import flatten, iterate_batches
from uttu.spider.page import Page

F = TypeVar("F", bound=Callable[..., Any])
Next = Callable[[Request], Awaitable[Response]]
Middleware = Callable[[Request, Next], Awaitable[Response]]


class Failure(msgspec.Struct, frozen=True):
    """The argument of an ``on_error`` handler: a request that was given up, and the reason.

    ``kind`` is one word (``http``, ``dns``, ``timeout``, ``handler`` …). ``response`` is set if the host answered.
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

    :param start: one URL or several.
    :param sitemap: a sitemap, a robots.txt, or the root of a site whose sitemap is then found through its robots.txt.
        Its pages go to the first handler.
    :param args: the spider's own arguments with their defaults. ``-a key=value`` sets them.
    :param settings: all other keywords are settings.
    """

    def __init__(
        self,
        name: str,
        start: str | Iterable[str] = (),
        *,
        sitemap: str | Iterable[str] = (),
        args: Mapping[str, Any] | None = None,
        **settings: Unpack[SettingValues],
    ) -> None:
        if not is_crawl_name(name):
            raise SpiderError(f"Invalid spider name {name!r}: use letters, digits, '-', '_' and '.'")
        self.name = name
        self.file: Path | None = None
        self.start_urls = _to_tuple(start)
        self.sitemap_urls = _to_tuple(sitemap)
        self.args: dict[str, Any] = dict(args or {})
        self.settings: dict[str, Any] = dict(settings)
        self.handlers: dict[str, Callable[[Page], Any]] = {SITEMAP: sitemap_handler}
        self.default_handler = ""
        self.starter: Callable[[], Any] | None = None
        self.error_handler: Callable[[Failure], Any] | None = None
        self.middlewares: list[Middleware] = []

    @property
    def log(self) -> logging.Logger:
        """The spider's logger, ``uttu.spider.NAME``. In a handler, ``page.log`` also names the page."""
        return logging.getLogger(f"uttu.spider.{self.name}")

    @overload
    def page(self, handler: F, /) -> F: ...
    @overload
    def page(self) -> Callable[[F], F]: ...
    def page(self, *arguments: Any, **unknown: Any) -> Any:
        """Register a handler under its function's name. The first one is the default.

        :raises SpiderError: it is not a function that takes one page, or there is already one of that name.
        """
        return _decorate("page", self._add_page, arguments, unknown)

    def _add_page(self, handler: Any) -> None:
        _check_handler(handler)
        name = handler.__name__
        if name in self.handlers:
            raise SpiderError(f"Spider {self.name!r} has two handlers named {name!r}. Rename one of them")
        self.handlers[name] = handler
        self.default_handler = self.default_handler or name

    @overload
    def start(self, starter: F, /) -> F: ...
    @overload
    def start(self) -> Callable[[F], F]: ...
    def start(self, *arguments: Any, **unknown: Any) -> Any:
        """Register a function that yields the first requests or URLs, in addition to ``start=``.

        :raises SpiderError: it is not a function without arguments, or there is already one.
        """
        return _decorate("start", self._set_starter, arguments, unknown)

    def _set_starter(self, starter: Any) -> None:
        _check_called("start", starter, "def start(): …")
        self._refuse_second("start", self.starter, starter)
        self.starter = starter

    @overload
    def on_error(self, handler: F, /) -> F: ...
    @overload
    def on_error(self) -> Callable[[F], F]: ...
    def on_error(self, *arguments: Any, **unknown: Any) -> Any:
        """Register a function that gets a :class:`Failure` for each request that is given up. It may yield, too.

        :raises SpiderError: it is not a function that takes one failure, or there is already one.
        """
        return _decorate("on_error", self._set_error_handler, arguments, unknown)

    def _set_error_handler(self, handler: Any) -> None:
        _check_called("on_error", handler, "def failed(failure): …", object())
        self._refuse_second("on_error", self.error_handler, handler)
        self.error_handler = handler

    def _refuse_second(self, what: str, first: Any, new: Any) -> None:
        if first is not None:
            names = " and ".join(repr(getattr(each, "__name__", each)) for each in (first, new))
            raise SpiderError(
                f"Spider {self.name!r} has two @spider.{what} functions, {names}. Keep one, and let it call the other"
            )

    @overload
    def use(self, middleware: Middleware, /) -> Middleware: ...
    @overload
    def use(self) -> Callable[[Middleware], Middleware]: ...
    def use(self, *arguments: Any, **unknown: Any) -> Any:
        """Wrap all fetches: ``async def m(request, next): return await next(request)``. The first added is outermost.

        :raises SpiderError: it is not a function that takes a request and the next step.
        """
        return _decorate("use", self._add_middleware, arguments, unknown)

    def _add_middleware(self, middleware: Any) -> None:
        _check_called("use", middleware, "async def wait(request, next): …", object(), object())
        self.middlewares.append(middleware)

    def handler_for(self, request: Request) -> Callable[[Page], Any]:
        """The handler of a request.

        :raises SpiderError: the request names a handler that this spider does not have.
        """
        name = request.handler or self.default_handler
        try:
            return self.handlers[name]
        except KeyError:
            known = ", ".join(sorted(self.handlers.keys() - {SITEMAP})) or "none"
            raise SpiderError(f"Spider {self.name!r} has no handler {name!r}; it has: {known}") from None

    def set_args(self, given: Mapping[str, str]) -> None:
        """Set arguments from strings, converted to the types of their defaults.

        :raises ConfigError: the spider declares arguments, and ``given`` has another one or an invalid value.
        """
        unknown = given.keys() - self.args.keys()
        if self.args and unknown:
            raise ConfigError(
                f"Spider {self.name!r} takes no argument {', '.join(sorted(unknown))}; it takes: {', '.join(self.args)}"
            )
        for key, value in given.items():
            default = self.args.get(key)
            self.args[key] = _convert_argument(default, key, value)

    async def start_requests(self) -> AsyncIterator[Request]:
        """All first requests.

        :raises SpiderError: a value is not a URL.
        :raises StartError: the start function raised an error.
        """
        for url in self.start_urls:
            yield self._make_start_request(url)
        for url in self.sitemap_urls:
            yield sitemap_request(self._make_start_request(url))
        if self.starter is not None:
            async for each in self._run_starter(self.starter):
                yield each if isinstance(each, Request) else self._make_start_request(each)

    async def _run_starter(self, starter: Callable[[], Any]) -> AsyncIterator[Any]:
        try:
            async for batch in iterate_batches(starter()):
                for each in flatten(batch):
                    yield encode_body(each) if isinstance(each, Request) else each
        except USER_ERRORS as error:
            reraise_own_cancel(error)
            where = self.file or f"spider {self.name!r}"
            raise StartError(
                f"@spider.start of {where} raised:\n{format_frames(error)}{format_message(error)}",
                f"@spider.start raised {format_line(error)}",
            ) from error

    def _make_start_request(self, url: Any) -> Request:
        try:
            return Request.to(url)
        except (ValueError, AttributeError, TypeError):
            raise SpiderError(
                f"Spider {self.name!r}: {url!r} is not a URL to start from. Write it in full, like https://example.org/"
            ) from None

    def __getattr__(self, name: str) -> Any:
        # Only called for names that do not exist. Give hints for names that people know from other tools.
        hint = _HINTS.get(name)
        if hint is None and not name.startswith("_"):
            import difflib  # slow to import, and seldom needed

            close = difflib.get_close_matches(name, [each for each in dir(type(self)) if each[0] != "_"], n=1)
            hint = f"did you mean {close[0]!r}?" if close else ""
        raise AttributeError(f"A spider has no {name!r}{'; ' + hint if hint else ''}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<Spider {self.name}: {', '.join(self.handlers.keys() - {SITEMAP})}>"


# Names of other tools, and what to write instead.
_HINTS: Final = {
    "parse": "put @spider.page above a function; the first one gets the pages of the start URLs",
    "handler": "put @spider.page above a function",
    "route": "put @spider.page above a function",
    "callback": "put @spider.page above a function",
    "errback": "put @spider.on_error above a function",
    "middleware": "give a function to spider.use(…)",
    "run": "run it with: uttu crawl FILE, or in a program with uttu.run(spider)",
    "crawl": "run it with: uttu crawl FILE",
    "logger": "it is called spider.log",
    "custom_settings": "write settings as keywords of Spider(…), or in uttu.toml",
    "allowed_domains": "it is the setting domains: Spider(…, domains=[…])",
    "state": "store it in page.meta, or in your own database",
}


def _decorate(what: str, add: Callable[[Any], None], arguments: tuple[Any, ...], unknown: dict[str, Any]) -> Any:
    """Register a function for ``@spider.page`` and for ``@spider.page()`` with empty brackets.

    :raises SpiderError: there are arguments between the brackets.
    """
    if unknown or len(arguments) > 1:
        names = ", ".join([*(f"{value!r:.60}" for value in arguments), *(f"{name}=" for name in unknown)])
        raise SpiderError(
            f"@spider.{what} goes right above a function, without brackets; it got {names}. "
            "Pages are sent to a handler by page.follow(…, to=HANDLER); settings are keywords of Spider(…)"
        )
    if arguments:
        add(arguments[0])
        return arguments[0]

    def decorate(function: Any) -> Any:
        add(function)
        return function

    return decorate


def _check_handler(function: Any) -> None:
    """:raises SpiderError: ``function`` is not a function with a name that takes a page."""
    name = getattr(function, "__name__", "")
    _check_called("page", function, f"def {name or 'listing'}(page): …", object())
    if not name:
        raise SpiderError(
            f"@spider.page goes above a function with a name, because requests name their handler; got {function!r:.60}"
        )


def _check_called(what: str, function: Any, shown: str, *arguments: object) -> None:
    """:raises SpiderError: ``function`` is not a function that can be called with ``arguments``."""
    if not callable(function) or isinstance(function, type):
        raise SpiderError(
            f"@spider.{what} goes right above a function, without brackets; it got {function!r:.60}. Example: {shown}"
        )
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        name = getattr(function, "__name__", repr(function))
        raise SpiderError(f"{_CALL_RULES[what].format(name)}, but {error}. Example: {shown}") from None
    except ValueError:
        pass  # a built-in function without a signature


_CALL_RULES: Final = {
    "page": "The handler {} is called with the page only",
    "start": "The @spider.start function {} is called without arguments",
    "on_error": "The @spider.on_error function {} is called with the failure only",
    "use": "The middleware {} is called with the request and the next step",
}


def _to_tuple(urls: str | Iterable[str]) -> tuple[str, ...]:
    return (urls,) if isinstance(urls, str) else tuple(urls)


def _convert_argument(default: Any, key: str, value: str) -> Any:
    """The given string, converted to the type of the argument's default.

    :raises ConfigError: it cannot be converted.
    """
    if default is None or isinstance(default, str):
        return value
    if isinstance(default, dict | list | tuple | set | frozenset):
        return _parse_json_argument(type(default), key, value)
    try:
        return msgspec.convert(value, type(default), strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"-a {key}={value}: {error}") from error


def _parse_json_argument(kind: type, key: str, value: str) -> Any:
    try:
        return msgspec.json.decode(value, type=kind)
    except msgspec.MsgspecError as error:
        example = '{"a": 1}' if kind is dict else "[1, 2]"
        raise ConfigError(
            f"-a {key}={value}: write a {kind.__name__} as JSON, like '{key}={example}': {error}"
        ) from error


# Not a valid name for a function, so it cannot collide with a handler of the user.
SITEMAP = "<sitemap>"


def sitemap_request(start: Request) -> Request:
    """The request that finds the sitemap of ``start``: itself or, if it is the root of a site, the robots.txt."""
    origin = origin_of(start.url)
    url = origin + "/robots.txt" if start.url == origin + "/" else start.url
    return msgspec.structs.replace(start, url=url, handler=SITEMAP)


def wants_robots(request: Request) -> bool:
    """Whether a request only asks for the sitemaps that a site's own robots.txt names."""
    return request.handler == SITEMAP and robots.is_robots(request.url)


def request_sitemaps(request: Request, rules: Robots) -> Iterator[Request]:
    """Requests for the sitemaps that a site's rules name, or for ``/sitemap.xml`` if they name none."""
    join = Joiner(request.url)
    links = rules.sitemaps or ("/sitemap.xml",)
    return (_make_child(request, url, SITEMAP) for link in links if (url := join(link)))


async def sitemap_handler(page: Page) -> AsyncIterator[list[Request]]:
    """Request the pages and further sitemaps of a sitemap, or the sitemaps of a robots.txt on another site.

    A sitemap may have 50 MB and 50,000 pages, so this yields to the event loop after each slice.
    """
    if page.url.endswith("/robots.txt"):
        yield list(request_sitemaps(page.request, robots.parse(page.response.body)))
        return
    from uttu.spider.sitemap import read_sitemap  # needs lxml, which most crawls do without

    for found in read_sitemap(page.body, page.url):
        yield [
            *(_make_child(page.request, url, SITEMAP) for url in found.sitemaps),
            *(_make_child(page.request, entry.url, "") for entry in found.pages),
        ]
        await asyncio.sleep(0)


def _make_child(request: Request, url: str, handler: str) -> Request:
    # A sitemap is a list of places to start, so its pages are as deep as it is.
    return Request.from_canonical(url, handler=handler, depth=request.depth)


def wrap_fetch(fetch: Next, middlewares: Sequence[Middleware]) -> Next:
    """Wrap the fetch in middlewares; the first one is the outermost."""
    for middleware in reversed(middlewares):
        fetch = _apply_middleware(middleware, fetch)
    return fetch


def _apply_middleware(middleware: Middleware, inner: Next) -> Next:
    async def fetch(request: Request) -> Response:
        given: Any = middleware(request, inner)
        # A middleware that is not async can't have fetched, but the error below should name what it returned.
        response = await given if inspect.isawaitable(given) else given
        if not isinstance(response, Response):
            # Checked in each layer, so that the error names the middleware that is wrong and not one around it.
            name = getattr(middleware, "__name__", repr(middleware))
            forgotten = "; is a return missing?" if response is None else ""
            raise TypeError(f"middleware {name!r} returned {response!r:.80}, not a Response{forgotten}")
        return response

    return fetch
