"""Bodies that are large or endless, or have a type other than HTML."""

from __future__ import annotations

from typing import Final

from uttu.testing.site.message import HTML, JSON, TEXT, XML, Answer, Exchange, Incoming, Reply, html

_BLOCK: Final = (b"All work and no play makes a long body. " * 1700)[:65536]
_PAGE: Final = html("A page", '<p>With <a href="/odd/">a link</a>.</p>').body
_PDF: Final = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<< /Type /Catalog >>\nendobj\n" + bytes(range(256)) + b"\n%%EOF\n"

TYPES: Final = {
    "json": Answer(b'{"name": "teapot", "prices": [12.5, 8], "none": null}\n', JSON),
    "xml": Answer(b'<?xml version="1.0"?>\n<stock><item id="1">teapot</item></stock>\n', XML),
    "pdf": Answer(_PDF, "application/pdf"),
    "text": Answer(b"Plain text, <b>not</b> html.\n", TEXT),
    "empty": Answer(b"", HTML),
    "none": Answer(_PAGE, ""),
    "wrong": Answer(_PAGE, "application/octet-stream"),
}


def typed(parts: list[str], incoming: Incoming) -> Reply:
    return TYPES.get(parts[1]) if len(parts) == 2 else None


def bodies(parts: list[str], incoming: Incoming) -> Reply:
    match parts:
        case ["chunked"]:
            return _chunked
        case ["huge"]:
            return _Huge(int(incoming.number("bytes", 100_000_000)))
        case ["endless"]:
            return _endless
        case ["headers"]:
            lines, rest = divmod(int(incoming.number("bytes", 100_000)), 1000)
            fillers = tuple((f"X-Filler-{line}", "x" * 990) for line in range(lines))
            return Answer(_PAGE, headers=(*fillers, ("X-Filler", "x" * rest)))
    return None


class _Huge:
    def __init__(self, size: int) -> None:
        self._size = size

    async def __call__(self, exchange: Exchange) -> None:
        exchange.start(Answer(content_type=TEXT), self._size)
        for at in range(0, self._size, len(_BLOCK)):
            await exchange.write(_BLOCK[: self._size - at])


async def _chunked(exchange: Exchange) -> None:
    exchange.start(Answer(), None)
    for at in range(0, len(_PAGE), 32):
        await exchange.write(_PAGE[at : at + 32])
    exchange.finish()


async def _endless(exchange: Exchange) -> None:
    exchange.start(Answer(content_type=TEXT), None)
    while True:
        await exchange.write(_BLOCK)
