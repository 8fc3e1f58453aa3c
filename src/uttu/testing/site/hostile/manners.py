"""Cookies, redirects, rates and traps: answers that are well-formed, but harmful."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final
from zlib import crc32

from uttu.testing.site.hostile.model import PLAIN, Kind, Replier
from uttu.testing.site.message import TEXT, Answer, Incoming, Reply, html, redirect
from uttu.testing.site.traps import trap

_LINKS: Final = "".join(f'<a href="/{number}">{number}</a>' for number in range(20))
_RETRIES: Final[dict[str, Any]] = {"retries": 2}


# Cookies


def _with_cookies(make: Callable[[int], list[str]]) -> Replier:
    """A site of 21 pages, each of which sets cookies. ``make`` gets the number of the request."""
    asked = 0

    def reply(incoming: Incoming) -> Reply:
        nonlocal asked
        if incoming.path == "/robots.txt":
            return None
        asked += 1
        headers = tuple(("Set-Cookie", value) for value in make(asked))
        return Answer(html("Cookies", _LINKS).body, headers=headers)

    return reply


def _cookies(name: str, about: str, make: Callable[[int], list[str]], ends: str = "done") -> Kind:
    return Kind(name=f"cookies/{name}", about=about, reply=_with_cookies(make), handler="follow", ends=ends)


COOKIES: Final = (
    _cookies("thousands", "2,000 cookies", lambda _: [f"c{n}=x; Path=/" for n in range(2000)], "done|dead"),
    _cookies("large", "a cookie of 100 KB", lambda _: ["c=" + "x" * 100_000], "done|dead"),
    _cookies("near", "50 cookies of 4,000 bytes", lambda _: [f"c{n}=" + "x" * 4000 for n in range(50)], "done|dead"),
    _cookies("changing", "50 new cookies for each request", lambda asked: [f"c{asked}-{n}=x" for n in range(50)]),
    _cookies("controls", "control characters in cookies", lambda _: ["a=\x01\x02\x07", "\x7f=b", "c=\t"], "done|dead"),
    _cookies("bytes", "every byte above 127 in cookies", lambda _: ["a=" + bytes(range(160, 256)).decode("latin-1")]),
    _cookies("nameless", "cookies without names", lambda _: ["=x", "x", "", ";", "=", "; Path=/"]),
    _cookies("attributes", "a cookie of 10,000 attributes", lambda _: ["a=b" + "; x=y" * 10_000], "done|dead"),
    _cookies("paths", "a cookie for a path of 50 KB", lambda _: ["a=b; Path=/" + "x" * 50_000], "done|dead"),
    _cookies(
        "domains", "cookies for other hosts", lambda _: ["a=b; Domain=com", "c=d; Domain=.127.0.0.1", "e=f; Domain=."]
    ),
    _cookies(
        "expires",
        "dates of the year 9999 and 0",
        lambda _: [
            "a=b; Expires=Fri, 31 Dec 9999 23:59:59 GMT",
            "c=d; Expires=Mon, 00 Jan 0000 00:00:00 GMT",
            "e=f; Max-Age=" + "9" * 400,
            "g=h; Max-Age=-" + "9" * 400,
            "i=j; Expires=" + "9" * 10_000,
        ],
    ),
    _cookies("quotes", "quotes and semicolons", lambda _: ['a="x; y', 'b=";', "c=\\\\\\", "d==="]),
)


# Redirects


def _moved(target: Callable[[Incoming], str], status: int = 302) -> Replier:
    return lambda incoming: None if incoming.path == "/robots.txt" else redirect(target(incoming), status)


def _refreshed(value: Callable[[Incoming], str]) -> Replier:
    def reply(incoming: Incoming) -> Reply:
        if incoming.path == "/robots.txt":
            return None
        return Answer(PLAIN.body, headers=(("Refresh", value(incoming)),))

    return reply


def _with_new_cookie(incoming: Incoming) -> Reply:
    number = int(incoming.cookies.get("n", "0") or 0) + 1
    return redirect(incoming.target, 302, ("Set-Cookie", f"n={number}; Path=/"))


def _meta_refresh(incoming: Incoming) -> Reply:
    if incoming.path == "/robots.txt":
        return None
    body = f'<meta http-equiv="refresh" content="0; url={incoming.path}x"><p>Wait.</p>'
    return Answer(f"<!doctype html><title>x</title>{body}".encode())


def _many_locations(incoming: Incoming) -> Reply:
    return Answer(b"", TEXT, 302, tuple(("Location", f"/{number}") for number in range(1000)))


def _to(target: str, status: int = 302) -> Replier:
    """Redirect from the first page only, so that the fate of the target can be checked."""
    return lambda incoming: redirect(target, status) if incoming.path == "/" else None


def _redirects(name: str, about: str, reply: Replier, ends: str = "done|dead", **settings: Any) -> Kind:
    return Kind(name=f"redirects/{name}", about=about, reply=reply, ends=ends, settings=settings)


REDIRECTS: Final = (
    _redirects("self", "to itself, always", _moved(lambda incoming: incoming.target)),
    _redirects("pair", "to another that leads back", _moved(lambda incoming: "/b" if incoming.path == "/a" else "/a")),
    _redirects("chain", "to a new URL, always", _moved(lambda incoming: incoming.path + "x")),
    _redirects(
        "growing", "to a URL twice as long, always", _moved(lambda incoming: "/" + incoming.path[1:] * 2 + "xy")
    ),
    _redirects("cookie", "to itself with a new cookie, always", _with_new_cookie),
    _redirects("long", "to a URL of 50 KB", _to("/" + "x" * 50_000)),
    _redirects("many", "a thousand Location headers", _many_locations),
    _redirects("file", "to a local file", _to("file:///etc/passwd"), "dead: redirect"),
    _redirects("data", "to a data: URL", _to("data:text/html,<p>x"), "dead: redirect"),
    _redirects("javascript", "to javascript:", _to("javascript:alert(1)"), "dead: redirect"),
    _redirects("ftp", "to ftp:", _to("ftp://127.79.255.1/"), "dead: redirect"),
    _redirects("gopher", "to gopher:", _to("gopher://127.79.255.1:6379/_FLUSHALL"), "dead: redirect"),
    _redirects("private", "to a private address", _to("http://10.0.0.1/"), "done", private=False),
    _redirects(
        "metadata", "to the address of cloud metadata", _to("http://169.254.169.254/latest/"), "done", private=False
    ),
    _redirects("loopback", "to the crawler's own machine", _to("http://127.0.0.1:1/"), "done", private=False),
    _redirects("loopback-hex", "to 0x7f000001", _to("http://0x7f000001:1/"), "done", private=False),
    _redirects("loopback-six", "to [::1]", _to("http://[::1]:1/"), "done", private=False),
    _redirects("loopback-mapped", "to [::ffff:127.0.0.1]", _to("http://[::ffff:127.0.0.1]:1/"), "done", private=False),
    _redirects("zero", "to 0.0.0.0", _to("http://0.0.0.0:1/"), "done", private=False),
    _redirects("port-0", "to port 0", _to("http://127.79.255.1:0/")),
    _redirects("port-25", "to a port of mail", _to("http://127.79.255.1:25/")),
    _redirects("login", "to a URL with a password", _to("http://user:secret@127.79.255.1:9/")),
    _redirects("bad", "to something that is not a URL", _to("http://[bad")),
    _redirects("empty", "an empty Location", _to(""), "done|dead"),
    _redirects("nul", "a Location with NUL", _to("/a\0b")),
    _redirects("controls", "a Location with control characters", _to("/a\x01\x7f\tb")),
    _redirects("unicode", "a Location of raw UTF-8", _to("/grüße".encode().decode("latin-1"))),
    _redirects("unknown-host", "to a host that does not exist", _to("http://no-such-host.invalid/")),
    _redirects("300", "300 Multiple Choices, to itself", _moved(lambda incoming: incoming.target, 300)),
    _redirects("308", "308 to itself", _moved(lambda incoming: incoming.target, 308)),
    _redirects("refresh-self", "Refresh to itself", _refreshed(lambda incoming: "0")),
    _redirects(
        "refresh-chain", "Refresh to a new URL, always", _refreshed(lambda incoming: f"0; url={incoming.path}x")
    ),
    _redirects("refresh-never", "Refresh after a year", _refreshed(lambda incoming: "31536000; url=/x")),
    _redirects("refresh-meta", "meta refresh to a new URL, always", _meta_refresh),
    _redirects("refresh-javascript", "Refresh to javascript:", _refreshed(lambda incoming: "0; url=javascript:x")),
)


# Rates


def _refused(status: int, *headers: tuple[str, str]) -> Replier:
    return lambda incoming: None if incoming.path == "/robots.txt" else Answer(b"Later.\n", TEXT, status, headers)


def _sometimes(status: int, retry_after: str) -> Replier:
    """Refuse every second request for a path."""
    asked: Counter[str] = Counter()

    def reply(incoming: Incoming) -> Reply:
        if incoming.path == "/robots.txt":
            return None
        asked[incoming.path] += 1
        if asked[incoming.path] % 2:
            return Answer(b"Later.\n", TEXT, status, (("Retry-After", retry_after),))
        return PLAIN

    return reply


def _rates(name: str, about: str, reply: Replier, ends: str = "dead") -> Kind:
    return Kind(name=f"rates/{name}", about=about, reply=reply, ends=ends, settings=_RETRIES)


RATES: Final = (
    _rates("year", "429 with Retry-After of a year", _refused(429, ("Retry-After", "31536000"))),
    _rates("year-503", "503 with Retry-After of a year", _refused(503, ("Retry-After", "31536000"))),
    _rates("9999", "Retry-After in the year 9999", _refused(429, ("Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"))),
    _rates("digits", "Retry-After of 10,000 digits", _refused(429, ("Retry-After", "9" * 10_000))),
    _rates("500-year", "500 with Retry-After of a year", _refused(500, ("Retry-After", "31536000"))),
    _rates("500", "500, always", _refused(500)),
    _rates("inf", "500 with Retry-After: inf", _refused(500, ("Retry-After", "inf"))),
    _rates("negative", "500 with Retry-After: -1", _refused(500, ("Retry-After", "-1"))),
    _rates(
        "past", "500 with a Retry-After that is over", _refused(500, ("Retry-After", "Thu, 01 Jan 1970 00:00:00 GMT"))
    ),
    _rates("garbage", "500 with a Retry-After of garbage", _refused(500, ("Retry-After", "soon\x01" * 1000))),
    _rates("lines", "500 with 1,000 Retry-After", _refused(500, *[("Retry-After", "1")] * 1000)),
    _rates("sometimes", "every second request is refused", _sometimes(503, "1"), "done"),
)


# Traps


def _trap(name: str, about: str, path: str, **settings: Any) -> Kind:
    return Kind(
        name=f"traps/{name}",
        about=about,
        reply=trap,
        path=path,
        handler="follow",
        endless=True,
        settings=settings,
        ends="done",
    )


def _sessions(incoming: Incoming) -> Reply:
    """Every page links to paths with new session ids."""
    if incoming.path == "/robots.txt":
        return None
    visits = crc32(incoming.target.encode())
    links = "".join(f'<a href="/s{visits + n:x}/page{n}">{n}</a>' for n in range(10))
    return html("Sessions", links)


def _filters(incoming: Incoming) -> Reply:
    """A shop with filters that can be combined endlessly."""
    if incoming.path == "/robots.txt":
        return None
    mark = "&" if incoming.query_string else "?"
    return html("Filters", "".join(f'<a href="{incoming.target}{mark}f{n}=1">{n}</a>' for n in range(12)))


TRAPS: Final = (
    _trap("calendar", "a calendar without end", "/trap/calendar/2026/11/"),
    _trap("deep", "paths that repeat themselves", "/trap/deep/a/b/"),
    _trap("session", "a session id in every link", "/trap/session?sid=1"),
    _trap("long", "links that grow", "/trap/long?x=x"),
    Kind(
        name="traps/sessions-path", about="a session id in every path", reply=_sessions, handler="follow", endless=True
    ),
    Kind(
        name="traps/filters", about="filters that combine without end", reply=_filters, handler="follow", endless=True
    ),
)

KINDS: Final = (*COOKIES, *REDIRECTS, *RATES, *TRAPS)
