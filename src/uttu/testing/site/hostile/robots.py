"""robots.txt files that are too long, never end, or ask for the impossible. Each host also has an ordinary page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from uttu.testing.site.hostile.codings import bomb
from uttu.testing.site.hostile.model import Kind, Replier, page
from uttu.testing.site.message import TEXT, Answer, Exchange, redirect

_ON: Final[dict[str, Any]] = {"robots": True}
_MB: Final = 1024 * 1024
_MILLION: Final = 1_000_000
_EVERYONE: Final = "User-agent: *\n"


def _served(make: Callable[[], str | bytes], *headers: tuple[str, str], status: int = 200) -> Replier:
    return page(make, TEXT, *headers, status=status, path="/robots.txt")


def _moved(target: Callable[[str], str]) -> Replier:
    return lambda incoming: None if incoming.path == "/page" else redirect(target(incoming.path))


def _played(script: Callable[[Exchange], Any]) -> Replier:
    return lambda incoming: script if incoming.path == "/robots.txt" else None


async def _endless(exchange: Exchange) -> None:
    exchange.start(Answer(content_type=TEXT), None)
    while True:
        await exchange.write(b"Disallow: /x\n" * 5000)


async def _close(exchange: Exchange) -> None:
    exchange.close()


async def _never(exchange: Exchange) -> None:
    import asyncio

    await asyncio.Event().wait()


def _robots(name: str, about: str, reply: Replier, ends: str = "done|dead: robots") -> Kind:
    return Kind(name=f"robots/{name}", about=about, reply=reply, path="/page", settings=_ON, ends=ends)


def _text(name: str, about: str, make: Callable[[], str | bytes], ends: str = "done|dead: robots") -> Kind:
    return _robots(name, about, _served(make), ends)


def _delay(name: str, value: str, ends: str = "done|dead") -> Kind:
    return _text(f"delay-{name}", f"Crawl-delay: {value}", lambda: f"{_EVERYONE}Crawl-delay: {value}\n", ends)


KINDS: Final = (
    _text("10mb", "10 MB of rules", lambda: _EVERYONE + "Disallow: /x\n" * (10 * _MB // 13)),
    _text("17mb", "17 MB, past the limit of a body", lambda: _EVERYONE + "Disallow: /x\n" * (17 * _MB // 13)),
    _text(
        "rules",
        "a million rules, all different",
        lambda: _EVERYONE + "".join(f"Disallow: /{n}\n" for n in range(_MILLION)),
    ),
    _text("agents", "300,000 user agents", lambda: "".join(f"User-agent: a{n}\nDisallow: /\n" for n in range(300_000))),
    _text("agents-line", "a user agent of 5 MB", lambda: "User-agent: " + "x" * (5 * _MB) + "\nDisallow: /\n"),
    _text("sitemaps", "a million sitemaps", lambda: "".join(f"Sitemap: /s{n}.xml\n" for n in range(_MILLION))),
    _text("line", "a line of 10 MB", lambda: _EVERYONE + "Disallow: /" + "x" * (10 * _MB)),
    _text("comments", "10 MB of comments", lambda: "#\n" * (5 * _MB)),
    _text(
        "wildcards", "a rule of wildcards: *a*a*a…b", lambda: _EVERYONE + "Disallow: /" + "*a" * 1000 + "*b$\n", "done"
    ),
    _text(
        "wildcards-many",
        "10,000 rules of wildcards",
        lambda: _EVERYONE + ("Disallow: /" + "*a" * 30 + "*b$\n") * 10_000,
    ),
    _text("stars", "a rule of a million stars", lambda: _EVERYONE + "Disallow: /" + "*" * _MILLION + "$\n"),
    _text("nulls", "10 MB of NUL bytes", lambda: bytes(10 * _MB)),
    _text("random", "every byte, repeated", lambda: bytes(range(256)) * 4096),
    _text("html", "a page instead of rules", lambda: "<html>" + "<p>Disallow: /</p>\n" * 10_000),
    _text("utf16", "rules in UTF-16", lambda: (_EVERYONE + "Disallow: /\n").encode("utf-16")),
    _text("escapes", "rules of escapes", lambda: _EVERYONE + "Disallow: /%ff%zz%\n" * 10_000),
    _delay("inf", "inf"),
    _delay("huge", "1e308"),
    _delay("nan", "nan"),
    _delay("negative", "-1", "done"),
    _delay("year", "31536000"),
    _delay("digits", "9" * 5000),
    _delay("word", "banana", "done"),
    _text("request-rate", "Request-rate: 1/1e308", lambda: _EVERYONE + "Request-rate: 1/1e308\nCrawl-delay: \n"),
    _robots("bomb", "a gzip bomb", _served(lambda: bomb("gzip", 200), ("Content-Encoding", "gzip"))),
    _robots("endless", "rules without end", _played(_endless)),
    _robots("never", "never answers", _played(_never), "dead"),
    _robots("closes", "hangs up", _played(_close), "dead"),
    _robots("500", "500, always", _served(lambda: "", status=500), "dead"),
    _robots(
        "503-year",
        "503 with Retry-After of a year",
        _served(lambda: "", ("Retry-After", "31536000"), status=503),
        "dead",
    ),
    _robots("401", "401", _served(lambda: "", status=401), "done"),
    _robots("loop", "a redirect to itself", _moved(lambda path: path)),
    _robots("chain", "redirects without end", _moved(lambda path: path + "x")),
    _robots("elsewhere", "a redirect to a file", _moved(lambda path: "file:///etc/passwd")),
)
