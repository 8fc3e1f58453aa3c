"""Call the user's functions and sort their output into requests and items, within bounds.

A handler may yield endlessly: a generator that never stops, a list of ten million values. So the output of one page is
bounded (:class:`OutputBounds`). A page that exceeds a bound is dead and none of its items are stored, because half a
page would be wrong data that nobody notices. The exception is links extracted as a whole (``follow_all``): the link
filter keeps the first ``max_links_per_page`` of them.

Long output is read in slices: the clock is checked every eight values, and after ``_SLICE_SECONDS`` the event loop
runs. Handlers that take less time are not interrupted.

With the settings ``nofollow`` and ``noindex`` (off by default), :func:`apply_directives` drops what a page asks robots
not to follow or keep. It checks the requests that a handler yields, not the links it looks at, so it makes no
difference how they were made.
"""

from __future__ import annotations

import contextlib
from inspect import isawaitable
from time import perf_counter
from types import AsyncGeneratorType, GeneratorType
from typing import Any, Final, NamedTuple

import msgspec

from uttu.engine.handler_steps import HandlerBlocked, HandlerRun, HandlerTimeout, StepTracker
from uttu.model import Links, Request
from uttu.policy.meta_tags import DIRECTIVE_BYTES, RobotsDirectives, is_nofollow, read_header, read_metas
from uttu.policy.robots import product_token
from uttu.settings import Settings
from uttu.spider import Page
from uttu.spider.handler_errors import format_frames, format_line, format_message
from uttu.spider.items import encode, flatten, is_item, spend
from uttu.spider.selection import Selection

_SLICE_SECONDS: Final = 0.1
_MASK: Final = 7
# The most links that a page may yield with ``follow_all``, also if most of them are known or left out.
_MAX_LINKS: Final = 1_000_000
# The most that the requests of one page may carry beside their URLs, in bytes.
_MAX_DATA: Final = 64 * 1024 * 1024


class OutputBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a handler may yield for one page; 0 means no limit. The names are those of the settings."""

    max_links_per_page: int = 50_000
    max_items_per_page: int = 100_000
    max_item_size: int = 16 * 1024 * 1024
    max_items_size_per_page: int = 64 * 1024 * 1024


class TooMuchOutput(Exception):
    """A handler yielded more than the bounds allow."""


_DEFAULT: Final = OutputBounds()
# Errors that the engine raises inside a handler. Their text is shown without the name of the type.
_SELF_EXPLANATORY: Final = (TooMuchOutput, HandlerBlocked, HandlerTimeout)


async def collect(
    given: Any, run: HandlerRun | None = None, bounds: OutputBounds = _DEFAULT
) -> tuple[list[Request | Links], list[bytes]]:
    """Sort the return value of a handler into requests and items, the items encoded as JSON.

    :param given: What the handler returned: a generator, an async generator, an awaitable, or values.
    :param run: The call of the handler, if it is tracked for a page.
    :raises TypeError: the handler yielded something that is neither, or an item that can't be encoded as JSON.
    :raises TooMuchOutput: it yielded more than ``bounds`` allow.
    """
    harvest = _OutputCollector(run or HandlerRun(StepTracker()), bounds)
    if type(given) is GeneratorType:  # most handlers are generators
        try:
            for count, value in enumerate(given, 1):
                kind = type(value)
                if kind is dict:
                    harvest.add_item(value)
                elif kind is Links:
                    harvest.add_links(value)
                else:
                    await harvest.add(value)
                if not count & _MASK and harvest.is_due:
                    await harvest.pause()
        except BaseException:
            # Its ``finally`` is code of the user, so it has to run here, within the step.
            with contextlib.suppress(Exception):
                given.close()
            raise
    elif isinstance(given, AsyncGeneratorType):
        await harvest.add_async(given)
    elif isawaitable(given):
        await harvest.add(await harvest.run.drive(given))
    else:
        await harvest.add(given)
    return harvest.requests, harvest.items


class _OutputCollector:
    """The output of one handler call so far."""

    __slots__ = ("_bounds", "_bytes", "_data", "_found", "_links", "_since", "count", "items", "requests", "run")

    def __init__(self, run: HandlerRun, bounds: OutputBounds) -> None:
        self.requests: list[Request | Links] = []
        self.items: list[bytes] = []
        self.count = 0
        self.run = run
        self._links = self._found = 0
        self._data = _MAX_DATA
        self._bytes = 0
        self._bounds = bounds
        self._since = 0.0

    def add_item(self, value: Any) -> None:
        most = self._bounds.max_item_size
        if most and spend(value, most) < 0:
            raise TooMuchOutput(f"yielded an item of more than {most:,} bytes; max_item_size={most}")
        item = encode(value)
        self.items.append(item)
        size = len(item)
        self._bytes += size
        bounds = self._bounds
        if (
            self._bytes > bounds.max_item_size
            or self._bytes > bounds.max_items_size_per_page
            or len(self.items) > bounds.max_items_per_page
        ):
            self._check_items(size)

    def _check_items(self, size: int) -> None:
        """Check the last item, of ``size`` bytes, and all items together against the bounds.

        :raises TooMuchOutput: a bound is exceeded.
        """
        bounds = self._bounds
        if size > bounds.max_item_size > 0:
            raise TooMuchOutput(f"yielded an item of {size:,} bytes; {_format_bound(bounds, 'max_item_size')}")
        if self._bytes > bounds.max_items_size_per_page > 0:
            raise TooMuchOutput(
                f"yielded items of {self._bytes:,} bytes; {_format_bound(bounds, 'max_items_size_per_page')}"
            )
        if len(self.items) > bounds.max_items_per_page > 0:
            raise TooMuchOutput(f"yielded more items than {_format_bound(bounds, 'max_items_per_page')}")

    def add_request(self, request: Request) -> None:
        self.requests.append(request)
        if request.meta or request.body or request.headers or request.cookies:
            self._add_data((request.meta, request.body, request.headers, request.cookies), 1)
        self._count_request()

    def add_links(self, links: Links) -> None:
        """Add links that were extracted as a whole. The link filter keeps the first ``max_links_per_page``."""
        found = len(links.texts)
        if not found:
            return
        self.requests.append(links)
        self._found += found
        if self._found > _MAX_LINKS:
            raise TooMuchOutput(f"yielded more than {_MAX_LINKS:,} links")
        if not links.is_bare:
            self._add_data(links.fields, min(found, self._bounds.max_links_per_page or found))
        self._count_request()

    def _count_request(self) -> None:
        self._links += 1
        if self._links > self._bounds.max_links_per_page > 0:
            raise TooMuchOutput(f"yielded more requests than {_format_bound(self._bounds, 'max_links_per_page')}")

    def _add_data(self, data: Any, times: int) -> None:
        """Count what ``times`` requests carry beside their URL: meta, body, headers and cookies."""
        self._data -= times * (_MAX_DATA - spend(data, _MAX_DATA))
        if self._data < 0:
            raise TooMuchOutput(f"yielded requests with more than {_MAX_DATA:,} bytes of meta and bodies together")

    async def add(self, value: Any) -> None:
        """Add a value of any kind; lists are flattened."""
        kind = type(value)
        if kind is Request:
            self.add_request(value)
        elif kind is dict:
            self.add_item(value)
        elif kind is Links:
            self.add_links(value)
        elif value is not None:
            for each in flatten([value]):
                self._add_one(each)
                self.count += 1
                if not self.count & _MASK and self.is_due:
                    await self.pause()

    def _add_one(self, value: Any) -> None:
        if isinstance(value, Links):
            self.add_links(value)
        elif isinstance(value, Request):
            self.add_request(value)
        elif is_item(value):
            self.add_item(value)
        else:
            raise TypeError(
                f"a handler yielded {value!r:.80}, a {type(value).__name__}; it may yield requests and items "
                f"(dict, dataclass, msgspec, attrs or pydantic object). {_instead_of(value)}"
            )

    async def add_async(self, given: AsyncGeneratorType[Any, Any]) -> None:
        while True:
            step = given.__anext__()
            try:
                # Most steps do not suspend, so they need no :meth:`HandlerRun.resume`.
                pending = step.send(None)
            except StopIteration as done:
                value = done.value
            except StopAsyncIteration:
                return
            else:
                try:
                    value = await self.run.resume(step, pending)
                except StopAsyncIteration:
                    return
            await self.add(value)
            self.count += 1
            if not self.count & _MASK and self.is_due:
                await self.pause()

    @property
    def is_due(self) -> bool:
        now = perf_counter()
        self._since = self._since or now
        return now - self._since > _SLICE_SECONDS

    async def pause(self) -> None:
        """Let other tasks run."""
        await self.run.yield_to_loop()
        self._since = perf_counter()


def _instead_of(value: Any) -> str:
    """A hint on what to yield instead of a value that is neither a request nor an item."""
    if any(each.__module__.partition(".")[0] == "scrapy" for each in type(value).__mro__):
        return "This is Scrapy's: for a request, yield page.follow(…) or uttu.Request.to(…); for an item, dict(item)"
    if isinstance(value, Selection):
        return "For the text of what was selected, yield {'name': selection.get()}; for its links, page.follow_all(…)"
    return "To follow a URL, yield page.follow(url=…)"


def _format_bound(bounds: OutputBounds, name: str) -> str:
    return f"{name}={getattr(bounds, name)}"


def describe_error(error: BaseException) -> tuple[str, str]:
    """An error as one line, and as a traceback without Uttu's frames around the user's."""
    line = str(error) if isinstance(error, _SELF_EXPLANATORY) else format_line(error)
    return line, f"Traceback (most recent call last):\n{format_frames(error)}{format_message(error)}"


class PermittedOutput(NamedTuple):
    """The output that remains, and a note on what was dropped."""

    requests: list[Request | Links]
    items: list[bytes]
    note: str = ""


def apply_directives(
    page: Page, requests: list[Request | Links], items: list[bytes], settings: Settings
) -> PermittedOutput:
    """Drop the output that the page's robots directives exclude, as far as the settings ask for it."""
    directives = _read_directives(page, product_token(settings.user_agent))
    notes = []
    if settings.noindex and directives.noindex and items:
        notes.append(f"noindex: its {len(items):,} items were dropped")
        items = []
    if settings.nofollow and directives.nofollow and requests:
        notes.append("nofollow: its links were not followed")
        requests = []
    elif settings.nofollow and requests and (refused := _nofollow_urls(page)):
        notes.append(f"nofollow: {len(refused):,} of its links were not followed")
        requests = _drop_urls(requests, refused)
    return PermittedOutput(requests, items, "; ".join(notes))


def _read_directives(page: Page, token: str) -> RobotsDirectives:
    found = read_header(page.headers.get_all("x-robots-tag"), token)
    if b"<meta" in page.body[:DIRECTIVE_BYTES].lower():
        found |= read_metas(page.text[:DIRECTIVE_BYTES], token)
    return found


def _nofollow_urls(page: Page) -> set[str]:
    """The URLs whose links on the page all have ``rel=nofollow``."""
    if b"nofollow" not in page.body.lower():
        return set()
    urls: dict[bool, set[str]] = {True: set(), False: set()}
    for link in page.css("a, area"):
        attributes = link.attrib
        if (href := attributes.get("href")) and (url := page.urljoin(href)):
            urls[is_nofollow(attributes.get("rel") or "")].add(url)
    return urls[True] - urls[False]


def _drop_urls(requests: list[Request | Links], refused: set[str]) -> list[Request | Links]:
    kept: list[Request | Links] = []
    for each in requests:
        if isinstance(each, Links):
            texts = [text for text in each.texts if each.join(text) not in refused]
            kept.append(Links(texts, each.join, each.fields))
        elif each.url not in refused:
            kept.append(each)
    return kept
