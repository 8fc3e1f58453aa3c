"""Which of a page's links go on to the frontier.

Most links of a page have been seen before. So the first question is a look into a set of
those that this worker knows to be in the frontier; only the few that pass it are held
against the crawl's scope and the traps. What those refuse is remembered in the same set, so that
each URL is judged once; but for private addresses, which may be refused to one host and not to another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import filterfalse

import msgspec

from weft.model import Links, Request
from weft.model.url import canonical, is_fixed
from weft.policy.scope import PRIVATE, Scope
from weft.policy.traps import Traps

# Two generations of so many: about 40 MB at most.
_GENERATION = 250_000
# Links as they stand on pages: about 15 MB of them, each with what Python keeps beside it.
_TEXT_BYTES = 15_000_000
_BESIDE_TEXT = 120
_NO_TEXTS: frozenset[str] = frozenset()
_HIGHEST_PRIORITY = 1_000_000_000


class Known:
    """A bounded set of requests: when a generation is full, the one before it is dropped.

    It goes by Python's own hash of the URL where that is all there is to a request: as long as a fingerprint, and four
    times as quick to have.

    Links by the dozen are held against it for every page, and to make a URL of each takes a while. So those that lead
    to the same place from every page of an origin are first looked for as they stand there.
    """

    __slots__ = ("_new", "_old", "_room", "_texts")

    def __init__(self) -> None:
        self._new: set[int] = set()
        self._old: set[int] = set()
        self._texts: defaultdict[str, set[str]] = defaultdict(set)
        self._room = _TEXT_BYTES

    def others(self, requests: Iterable[Request | Links]) -> list[Request]:
        """Those that are not in it, and can be stored.

        :raises ValueError: one can't.
        """
        found = []
        for each in requests:
            if isinstance(each, Request):
                if _key(each) not in self:
                    found.append(checked(each))
            elif each.is_plain:
                found += self._others_of(each)
            else:
                found += [checked(request) for request in each if _key(request) not in self]
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
                found.append(request if links.is_bare and _plain(request) else checked(request))
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


def checked(request: Request) -> Request:
    """A request that can be stored and found again: what users make by hand may be wrong in many ways.

    :raises ValueError: says in which.
    """
    url = request.url
    try:
        if (spelled := canonical(url)) != url:
            request = msgspec.structs.replace(request, url=spelled)
    except ValueError as error:
        raise ValueError(f"a request that is {error}; page.follow(url=…) makes one of a link") from error
    if type(request.priority) is int and abs(request.priority) > _HIGHEST_PRIORITY:
        raise ValueError(f"a request to {url} with priority {request.priority}, which is out of all bounds")
    if Request(url=request.url, handler=request.handler, depth=request.depth) == request and _plain(request):
        return request
    try:
        Request.from_record(request.record())
    except (msgspec.MsgspecError, TypeError, UnicodeError) as error:
        raise ValueError(f"a request to {url} that can't be stored: {error}") from error
    return request


def _plain(request: Request) -> bool:
    return type(request.handler) is str and type(request.depth) is int


class Gate:
    """Lets links through, once each."""

    def __init__(self, scope: Scope, traps: Traps) -> None:
        self._scope = scope
        self._traps = traps
        self._known = Known()

    def admit(self, requests: Iterable[Request | Links], source: str = "") -> tuple[Request, ...]:
        """Those that may be new, within one page of the host ``source`` each once.

        :raises ValueError: one has a URL that is none, or a field that can't be stored.
        """
        passed: dict[int, Request] = {}
        for request in self._known.others(requests):
            if self._scope.too_deep(request.depth):
                continue  # by this way; another, shorter one may lead there
            refused = self.refuse(request, source)
            if refused is None:
                # A handler may have made it of the page's own request; but it is a page that leads there.
                led = msgspec.structs.replace(request, start=False) if request.start else request
                passed.setdefault(request.fingerprint, led)
            elif refused != PRIVATE:
                self._known.add((request,))
        return tuple(passed.values())

    def refuse(self, request: Request, source: str = "") -> str | None:
        """Why this request, of a page on the host ``source``, is not for this crawl; None if it is."""
        return self._scope.refuse(request.url, request.depth, source) or self._traps.refuse(request.url)

    def out_of_scope(self, url: str, source: str) -> str | None:
        """Why no page of the host ``source`` may lead there, however deep it is; None if it may."""
        return self._scope.refuse(url, 0, source)

    def committed(self, requests: Iterable[Request]) -> None:
        """These are in the frontier now, and need not be sent there again."""
        self._known.add(requests)
