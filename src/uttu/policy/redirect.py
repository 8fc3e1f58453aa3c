"""Turn redirects into requests.

A redirect is not followed inside the fetch. The page that redirects is done, and its target becomes a new request. So
the target waits in its own host's lane, is checked against robots.txt and the crawl's scope, and is fetched once
however many pages redirect to it.

Some sites redirect back to a page of the same chain after they have set a cookie. A salt makes this a different
request, so that it is not dropped as seen.

Another worker, with another cookie jar, may fetch the target. So cookies travel with the request: ``carried`` holds the
Set-Cookie headers of the whole chain, with the URL and time they came from. The worker that fetches the target puts
them into its jar, where Path, Domain, Secure and expiry count as for every cookie. ``cookies`` of the target are those
that belong to its URL, for handlers to read and for crawls without a jar. The cookies that the spider gave to the
redirected request belong to its host and port; they are not sent from HTTPS to HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from uttu.model import Request
from uttu.model.request import SetCookie
from uttu.model.url import Joiner, fingerprint, host_of, origin_of
from uttu.policy.cookies import Cookie, CookieTarget, belongs, domain_matches, parse_set_cookie, to_wire

STATUSES = frozenset({301, 302, 303, 307, 308})

# Headers that are not sent to another site.
_SECRET: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
# Headers that describe a body; dropped when the redirected request has no body.
_OF_BODY: Final = frozenset(
    {"content-encoding", "content-language", "content-length", "content-location", "content-type", "transfer-encoding"}
)
# The most bytes of cookies that a chain of redirects carries, besides the spider's own; the oldest are dropped first.
_MAX_CARRIED_BYTES: Final = 16 * 1024
_MAX_SET_COOKIES: Final = 100


def redirect_request(
    request: Request, status: int, location: str, set_cookies: Sequence[str], now: float | None = None
) -> Request | None:
    """The request for the target of a redirect; None if its location is not a web address.

    The method stays the same, with the exceptions that browsers make: 303 turns everything but HEAD into GET, and 301
    and 302 turn POST into GET.

    :param now: The Unix time; by default the current time.
    """
    target = Joiner(request.url)(location)
    if not target:
        return None
    method, body, headers = request.method, request.body, request.headers
    if (status == 303 and method not in ("GET", "HEAD")) or (status in (301, 302) and method == "POST"):
        method, body = "GET", b""
        headers = {name: value for name, value in headers.items() if name.lower() not in _OF_BODY}
    if origin_of(target) != origin_of(request.url):
        # The cookie header stays if only the scheme changes from HTTP to HTTPS.
        secret = _SECRET - {"cookie"} if host_of(target) == host_of(request.url) and target[:5] == "https" else _SECRET
        headers = {name: value for name, value in headers.items() if name.lower() not in secret}
    now = time.time() if now is None else now
    carried = _collect_cookies(request, set_cookies, now) if set_cookies or request.cookies or request.carried else ()
    via = (*request.via, request.url)
    visited = {fingerprint(url, method, body) for url in via}
    salt = f"redirect {len(via)}" if fingerprint(target, method, body) in visited else ""
    return Request.from_canonical(
        url=target,
        handler=request.handler,
        method=method,
        headers=headers,
        body=body,
        meta=request.meta,
        cookies=select_carried_cookies(target, carried, now),
        priority=request.priority,
        depth=request.depth,
        via=via,
        salt=salt,
        proxy=request.proxy,
        carried=carried,
    )


def select_carried_cookies(url: str, carried: Iterable[SetCookie], now: float | None = None) -> dict[str, str]:
    """The carried cookies that belong to a URL, those with longer paths first.

    :param now: The Unix time at which cookies must be valid. By default each cookie's arrival: then cookies that have
        expired since are included, but not those that were already expired on arrival, which delete a cookie.
    """
    if not carried:
        return {}
    target = CookieTarget.of(url)
    own: dict[str, str] = {}
    matching: list[Cookie] = []
    for each in carried:
        if each.is_own:
            if host_of(each.url) == host_of(url) and (target.secure or not each.url.startswith("https:")):
                name, _, value = each.text.partition("=")
                own[name] = value
        elif (
            (cookie := _parse_carried(each)) is not None
            and cookie.expires > (each.at if now is None else now)
            and belongs(cookie, target)
        ):
            matching.append(cookie)
    cookies: dict[str, str] = {}
    for cookie in sorted(matching, key=lambda cookie: -len(cookie.path)):
        cookies.setdefault(_to_storable(cookie.name), _to_storable(cookie.value))
    return own | cookies


def _collect_cookies(request: Request, set_cookies: Sequence[str], now: float) -> tuple[SetCookie, ...]:
    """The cookies that the chain has set so far, including this redirect; each cookie once."""
    known = select_carried_cookies(request.url, request.carried)
    origin = origin_of(request.url)
    own = {each.text.partition("=")[0]: each for each in request.carried if each.is_own}
    own |= {
        name: SetCookie(origin, f"{name}={value}")
        for name, value in request.cookies.items()
        if known.get(name) != value
    }
    cookies = {cookie.key: each for each in request.carried if not each.is_own and (cookie := _parse_carried(each))}
    url, target = request.url.partition("?")[0], CookieTarget.of(request.url)
    for text in map(to_wire, set_cookies[:_MAX_SET_COOKIES]):
        cookie = parse_set_cookie(text, target, now)
        if cookie is None:
            continue
        own_cookie = own.get(cookie.name)
        if own_cookie and cookie.expires <= now and domain_matches(CookieTarget.of(own_cookie.url).host, cookie.domain):
            # The spider's cookie has no path, so this header deletes it.
            del own[cookie.name]
        cookies[cookie.key] = SetCookie(url, text, now)
    kept, room = [], _MAX_CARRIED_BYTES
    for each in reversed(cookies.values()):
        room -= len(each.url) + len(each.text)
        if room < 0:
            break
        kept.append(each)
    return (*own.values(), *reversed(kept))


def _parse_carried(each: SetCookie) -> Cookie | None:
    return parse_set_cookie(each.text, CookieTarget.of(each.url), each.at)


def _to_storable(wire: str) -> str:
    """Convert a cookie to text that can be stored; bytes that are not UTF-8 are read as latin-1."""
    if wire.isascii():
        return wire
    try:
        return wire.encode("latin-1").decode()
    except UnicodeDecodeError:
        return wire
