"""Redirects as requests.

A redirect is not followed inside the fetch: the page that redirects is done, and where it points
is a new request. So the target waits in its own host's lane, is checked against robots.txt and
the crawl's scope, and is fetched once however many pages point to it.

The exception are redirects back to a page of the same chain, which sites use to set a cookie
first: these are told apart by a salt, and the cookie travels with the request, for it may be
another worker that fetches it.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.model import Request
from weft.model.url import Joiner, fingerprint, host_of, origin_of

STATUSES = frozenset({301, 302, 303, 307, 308})

# Not to be told to another site.
_SECRET = frozenset({"authorization", "cookie", "proxy-authorization"})


def redirected(request: Request, status: int, location: str, set_cookies: Sequence[str]) -> Request | None:
    """The request that a redirect asks for; None if its location leads nowhere."""
    target = Joiner(request.url)(location)
    if not target:
        return None
    keeps_body = status in (307, 308) or request.method in ("GET", "HEAD")
    method, body = (request.method, request.body) if keeps_body else ("GET", b"")
    headers, cookies = request.headers, request.cookies
    if origin_of(target) != origin_of(request.url):
        headers = {name: value for name, value in headers.items() if name.lower() not in _SECRET}
    cookies = cookies | _cookies(set_cookies) if host_of(target) == host_of(request.url) else {}
    via = (*request.via, request.url)
    came_by = {fingerprint(url, method, body) for url in via}
    salt = f"redirect {len(via)}" if fingerprint(target, method, body) in came_by else ""
    return Request(
        url=target, handler=request.handler, method=method, headers=headers, body=body, meta=request.meta,
        cookies=cookies, priority=request.priority, depth=request.depth, via=via, salt=salt, proxy=request.proxy,
    )  # fmt: skip


def _cookies(set_cookies: Sequence[str]) -> dict[str, str]:
    pairs = (header.split(";", 1)[0].partition("=") for header in set_cookies)
    return {name.strip(): value.strip() for name, equals, value in pairs if equals and name.strip()}
