"""Decide which links of a page go to the frontier.

    links ─► SeenCache (known to be in the frontier, or refused before) ─► Scope ─► Traps ─► frontier

Most links of a page have been seen before, so the cheapest check comes first: a set of the requests that this worker
knows to be in the frontier. Only the few links that are not in it are checked against the crawl's scope and the traps.
Refused links are added to the same set, so that each URL is checked once. Private addresses are the exception: whether
they are refused depends on the host of the page.

:func:`validate_request` checks every request that goes to the frontier, also those from other sources.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import filterfalse
from time import perf_counter
from typing import Final

import msgspec

from uttu.model import Links, Request
from uttu.model.request import encode_body
from uttu.model.url import canonical, is_fixed
from uttu.policy.scope import PRIVATE, Scope
from uttu.policy.traps import Traps

# Entries per generation of SeenCache. Two generations take about 40 MB.
_GENERATION = 250_000
# The most memory for link texts in SeenCache, and the overhead of a Python string and its set entry, in bytes.
_TEXT_BYTES = 15_000_000
_BESIDE_TEXT = 120
_NO_TEXTS: frozenset[str] = frozenset()
_HIGHEST_PRIORITY = 1_000_000_000
# The largest record of a request, with its body and meta, in bytes: records are read and written several times.
MAX_RECORD = 4 * 1024 * 1024
_DEEPEST = 1_000_000_000
# Pages with more links than this are filtered in slices of this size. After _SLICE_SECONDS other tasks get to run.
_SLICE: Final = 500
_SLICE_SECONDS: Final = 0.05


class SeenCache:
    """A bounded set of requests, in two generations: when the new one is full, the old one is dropped.

    The key of a plain GET is Python's hash of its URL: it has as many bits as a fingerprint and takes a quarter of the
    time. Other requests use their fingerprint.

    Each page has dozens of links, and joining each to the page's URL takes time. So links that mean the same URL on
    every page of an origin are also kept as text, per origin, and are looked up before they are joined.
    """

    __slots__ = ("_new", "_old", "_room", "_texts")

    def __init__(self) -> None:
        self._new: set[int] = set()
        self._old: set[int] = set()
        self._texts: defaultdict[str, set[str]] = defaultdict(set)
        self._room = _TEXT_BYTES

    def others(self, requests: Iterable[Request | Links]) -> list[Request]:
        """Return the requests that are not in the set.

        :raises ValueError: one of them can't be stored; see :func:`validate_request`.
        """
        found = []
        for each in requests:
            if isinstance(each, Request):
                request = each if type(each.body) is bytes else encode_body(each)
                if _key(request) not in self:
                    found.append(validate_request(request))
            elif each.is_plain:
                found += self._others_of(each)
            else:
                found += [validate_request(request) for request in map(encode_body, each) if _key(request) not in self]
        return found

    def _others_of(self, links: Links) -> list[Request]:
        origin = links.join.origin
        texts = self._texts.get(origin, _NO_TEXTS)
        found = []
        for text in filterfalse(texts.__contains__, links.texts):
            url = links.join(text)
            if url is None:
                continue
            if hash(url) not in self:
                request = links.to(url)
                found.append(request if links.is_bare and _is_plain(request) else validate_request(request))
            elif is_fixed(text):
                self._keep(origin, text)
        return found

    def _keep(self, origin: str, text: str) -> None:
        self._texts[origin].add(text)
        self._room -= len(text) + _BESIDE_TEXT
        if self._room < 0:
            self._texts.clear()
            self._room = _TEXT_BYTES

    def add(self, requests: Iterable[Request]) -> None:
        self._new.update(map(_key, requests))
        if len(self._new) > _GENERATION:
            self._old, self._new = self._new, set()

    def __contains__(self, key: int) -> bool:
        return key in self._new or key in self._old


def _key(request: Request) -> int:
    plain = request.method == "GET" and not request.body and not request.salt
    return hash(request.url) if plain else request.fingerprint


def validate_request(request: Request) -> Request:
    """Check that a request can be stored and read again; returns it with a canonical URL and a body of bytes.

    :raises ValueError: the URL is not a web address, a number is out of range, or a field can't be stored.
    :raises TypeError: the body is neither bytes nor text.
    """
    if type(request.body) is not bytes:
        request = encode_body(request)
    url = request.url
    try:
        if (spelled := canonical(url)) != url:
            request = msgspec.structs.replace(request, url=spelled)
    except ValueError as error:
        raise ValueError(f"a request that is {error}; page.follow(url=…) makes one of a link") from error
    if type(request.priority) is int and abs(request.priority) > _HIGHEST_PRIORITY:
        raise ValueError(f"a request to {url} with priority {request.priority}, which is out of range")
    if type(request.depth) is int and abs(request.depth) > _DEEPEST:
        raise ValueError(f"a request to {url} with depth {request.depth}, which is out of range")
    bare = Request.from_canonical(request.url, handler=request.handler, depth=request.depth)
    if bare == request and _is_plain(request):
        return request
    try:
        record = request.record()
        if len(record) > MAX_RECORD:
            raise ValueError(f"a request to {url} of {len(record):,} bytes; {MAX_RECORD:,} can be stored")
        Request.from_record(record)
    except (msgspec.MsgspecError, TypeError, UnicodeError) as error:
        raise ValueError(f"a request to {url} that can't be stored: {error}") from error
    return request


def _is_plain(request: Request) -> bool:
    """Whether handler and depth need no further check: an ASCII string, and an int within bounds."""
    handler, depth = request.handler, request.depth
    return type(handler) is str and handler.isascii() and type(depth) is int and abs(depth) <= _DEEPEST


def fits_one_slice(requests: Sequence[Request | Links], most: int) -> bool:
    """Whether there are at most ``_SLICE`` links, and at most ``most`` (0 for any number)."""
    weight = 0
    for each in requests:
        weight += len(each.texts) if type(each) is Links else 1
    return weight <= (min(most, _SLICE) if most else _SLICE)


def _split(requests: Sequence[Request | Links]) -> Iterator[list[Request | Links]]:
    """Split requests into lists of about ``_SLICE`` links, in order."""
    part: list[Request | Links] = []
    weight = 0
    for each in requests:
        if isinstance(each, Links) and len(each.texts) > _SLICE:
            for first in range(0, len(each.texts), _SLICE):
                yield [*part, Links(each.texts[first : first + _SLICE], each.join, each.fields)]
                part, weight = [], 0
            continue
        part.append(each)
        weight += count_links(each)
        if weight >= _SLICE:
            yield part
            part, weight = [], 0
    if part:
        yield part


def count_links(each: Request | Links) -> int:
    """How many links a value stands for, without joining them."""
    return len(each.texts) if isinstance(each, Links) else 1


class LinkFilter:
    """Lets each new link through that is in scope and does not look like a trap."""

    def __init__(self, scope: Scope, traps: Traps) -> None:
        self._scope = scope
        self._traps = traps
        self._known = SeenCache()

    def admit(self, requests: Iterable[Request | Links], source: str = "") -> tuple[Request, ...]:
        """Return the requests that may be new, each one once.

        :param source: The host of the page that has the links.
        :raises ValueError: a request has an invalid URL, or a field that can't be stored.
        """
        passed: dict[int, Request] = {}
        self._filter_new(requests, source, passed)
        return tuple(passed.values())

    async def admit_in_slices(
        self, requests: Sequence[Request | Links], source: str, most: int, yield_to_loop: Callable[[], Awaitable[None]]
    ) -> tuple[tuple[Request, ...], int]:
        """Like :meth:`admit`, but return only the first ``most`` requests (0 for all), and let other tasks run.

        The second value is the number of links that were left out because ``most`` requests had passed already.

        :raises ValueError: as in :meth:`admit`.
        """
        passed: dict[int, Request] = {}
        left = 0
        since = perf_counter()
        for part in _split(requests):
            if most and len(passed) >= most:
                left += sum(map(count_links, part))
                continue
            self._filter_new(part, source, passed)
            if perf_counter() - since > _SLICE_SECONDS:
                await yield_to_loop()
                since = perf_counter()
        children = tuple(passed.values())
        if most and len(children) > most:
            return children[:most], left + len(children) - most
        return children, left

    def _filter_new(self, requests: Iterable[Request | Links], source: str, passed: dict[int, Request]) -> None:
        for request in self._known.others(requests):
            if self._scope.is_too_deep(request.depth):
                continue  # not added to the set: a shorter path may lead to the same URL
            refused = self.refuse(request, source)
            if refused is None:
                # A handler may have copied the page's own request. What a page links to is not a start request.
                led = msgspec.structs.replace(request, start=False) if request.start else request
                passed.setdefault(request.fingerprint, led)
            elif refused is not PRIVATE:
                self._known.add((request,))

    def refuse(self, request: Request, source: str = "") -> str | None:
        """The reason why a request, linked from a page on the host ``source``, is not crawled; None if it is."""
        return self._scope.refuse(request.url, request.depth, source) or self._traps.refuse(request.url)

    def out_of_scope(self, url: str, source: str) -> str | None:
        """The reason why pages of the host ``source`` may not link to a URL, whatever its depth; None if they may."""
        return self._scope.refuse(url, 0, source)

    def committed(self, requests: Iterable[Request]) -> None:
        """Remember requests that are in the frontier now, so that they are not sent there again."""
        self._known.add(requests)
