"""The CPU time of a page, by kind of page, in whole crawls in one process.

    python -m bench.pages [KIND ...] [--rounds 7] [--against PYTHON] [--instructions]

Kinds: small pages (4.4 KB, 32 links), large ones (108 KB, 220 cards, 30 of them read), small ones over TLS and HTTP/2
("tls"), small ones with 30 nested queries ("css"), large ones by XPath, small ones with an asynchronous handler.
"start" is the CPU time of a whole crawl of one page by the command line.

Each crawl runs in a fresh process, with the real engine, the SQLite frontier and the real fetcher; the server is
another process. The time of a page is the difference between a long and a short crawl, so starting does not count.

``--against`` is the interpreter of another environment, with another version of Uttu. Both run in turns, and the least
of all rounds counts. ``--instructions`` counts instructions with valgrind instead: few pages, one round, and no noise
of other processes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from uttu import Page

KINDS: Final = ("small", "large", "tls", "css", "xpath", "async", "start")
# Pages of a short and of a long crawl.
_TIMED: Final = {"small": (200, 3000), "large": (20, 320), "xpath": (20, 220)}
_COUNTED: Final = {"small": (100, 400), "large": (20, 60), "xpath": (20, 60)}


def _handlers() -> dict[str, Any]:
    def small(page: Page) -> Iterator[Any]:
        yield {"url": page.url, "title": page.css("title::text").get(), "price": page.css("span.price::text").get()}
        yield page.follow_all("a")

    def css(page: Page) -> Iterator[Any]:
        rows = page.css("li")[:30]
        yield {"url": page.url, "links": [row.css("a::attr(href)").get() for row in rows]}
        yield page.follow_all("a")

    def large(page: Page) -> Iterator[Any]:
        for card in page.css("div.card")[:30]:
            name, price = card.css("h3 a::text").get(), card.css("span.price::text").get()
            yield {"name": name, "price": price, "tags": card.css("li.tag::text").getall()}
        yield page.follow_all("a")

    def xpath(page: Page) -> Iterator[Any]:
        for card in page.xpath("//div[@class='card']")[:30]:
            yield {
                "name": card.xpath(".//h3/a/text()").get(),
                "price": card.xpath(".//span[@class='price']/text()").get(),
                "tags": card.xpath(".//li/text()").getall(),
            }
        yield page.follow_all(page.xpath("//a"))

    async def as_async(page: Page) -> AsyncIterator[Any]:
        for each in small(page):
            yield each

    return {"small": small, "tls": small, "css": css, "large": large, "xpath": xpath, "async": as_async}


def crawl(kind: str, url: str, pages: int) -> None:
    """Crawl ``pages`` pages in this process; print the CPU seconds."""
    import uvloop

    from uttu import Spider
    from uttu.runtime.factory import tune
    from uttu.testing.crawls import crawl as run

    spider = Spider("bench", start=f"{url}{'large' if kind in ('large', 'xpath') else 'small'}/{pages}/0", private=True)
    spider.page(_handlers()[kind])
    tune()
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        begin = time.process_time()
        result = runner.run(run(spider, Path(folder), verify=False))
        seconds = time.process_time() - begin
    if result.counts.done != pages or result.dead:
        raise SystemExit(f"{result.counts} instead of {pages} pages, {result.dead[:1]}")
    print(seconds)


# The server.


def _small(pages: int) -> list[bytes]:
    from uttu.testing.site import Site
    from uttu.testing.site.model import Layout
    from uttu.testing.site.pages import Pages

    render = Pages(Layout.at(Site(pages=pages, page_bytes=4400), 80)).render
    return [(render(0, number) or b"").replace(b"/p/", b"/small/%d/" % pages) for number in range(pages)]


def _large(pages: int) -> list[bytes]:
    return [_large_page(number, pages).encode() for number in range(pages)]


def _large_page(number: int, pages: int) -> str:
    # Two of the links lead to new pages, so that all are reached.
    below = [each for each in (2 * number + 1, 2 * number + 2) if each < pages]
    cards = "".join(
        f'<div class="card" id="c{card}"><a href="{_target(number, card, below, pages)}"><img src="/img/{card}.jpg" '
        f'alt="Product {card}" loading="lazy"></a><h3><a href="{_target(number, card + 1, below, pages)}">Product '
        f'{number}.{card} – très bon</a></h3><span class="price">{card}.99 €</span><p>{"A fine thing to have. " * 9}'
        f'</p><ul class="tags"><li class="tag">new</li><li class="tag">n{card % 7}</li></ul></div>\n'
        for card in range(220)
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>List {number}</title></head>'
        f'<body><nav><a href="/large/{pages}/0">Home</a></nav><main>{cards}</main></body></html>'
    )


def _target(number: int, card: int, below: list[int], pages: int) -> str:
    return f"/large/{pages}/{below[card] if card < len(below) else (number * 31 + card) % pages}"


def _body(bodies: dict[str, list[bytes]], path: str) -> bytes:
    """The body of ``/small/PAGES/NUMBER`` or ``/large/PAGES/NUMBER``; all these pages are made at the first request."""
    folder, _, number = path.rpartition("/")
    _, kind, *pages = folder.split("/")
    if folder not in bodies:
        bodies[folder] = (_small if kind == "small" else _large)(int(pages[0]))
    return bodies[folder][int(number)]


class _Http1(asyncio.Protocol):
    def __init__(self, bodies: dict[str, list[bytes]]) -> None:
        self._bodies = bodies
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._read += data
        while b"\r\n\r\n" in self._read:
            head, _, self._read = self._read.partition(b"\r\n\r\n")
            body = _body(self._bodies, head.split(b" ", 2)[1].decode())
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n\r\n%s"
                % (len(body), body)
            )


class _Http2(asyncio.Protocol):
    def __init__(self, bodies: dict[str, list[bytes]]) -> None:
        import h2.config
        import h2.connection

        self._bodies = bodies
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._h2.initiate_connection()
        self._transport.write(self._h2.data_to_send())

    def data_received(self, data: bytes) -> None:
        import h2.events

        for event in self._h2.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                assert event.headers
                assert event.stream_id
                path = next(value for name, value in event.headers if name in (b":path", ":path"))
                body = _body(self._bodies, path.decode() if isinstance(path, bytes) else path)
                self._h2.send_headers(
                    event.stream_id,
                    [
                        (":status", "200"),
                        ("content-type", "text/html; charset=utf-8"),
                        ("content-length", str(len(body))),
                    ],
                )
                # Small pages fit into the window that every client opens.
                self._h2.send_data(event.stream_id, body, end_stream=True)
        self._transport.write(self._h2.data_to_send())


async def _serve(folder: Path) -> None:
    """Print the two ports, plain and TLS, and serve until standard input ends."""
    import ssl

    from uttu.testing.site.hostile.certificates import Authority

    loop = asyncio.get_running_loop()
    bodies: dict[str, list[bytes]] = {}
    context = Authority(folder).context("self-signed", "127.0.0.1", ("h2",))
    assert isinstance(context, ssl.SSLContext)
    plain = await loop.create_server(lambda: _Http1(bodies), "127.0.0.1", 0)
    secure = await loop.create_server(lambda: _Http2(bodies), "127.0.0.1", 0, ssl=context)
    print(plain.sockets[0].getsockname()[1], secure.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


@contextlib.contextmanager
def _server() -> Iterator[dict[bool, str]]:
    """The URLs without TLS and with it."""
    command = [sys.executable, "-m", "bench.pages", "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        assert child.stdin
        try:
            plain, secure = child.stdout.readline().split()
            yield {False: f"http://127.0.0.1:{plain}/", True: f"https://127.0.0.1:{secure}/"}
        finally:
            child.stdin.close()


# The measuring.


def _command(python: str, kind: str, url: str, pages: int) -> list[str]:
    return [python, "-P", str(Path(__file__).resolve()), kind, "--crawl", url, "--pages", str(pages)]


def _seconds(python: str, kind: str, url: str, pages: int) -> float:
    return float(subprocess.run(_command(python, kind, url, pages), check=True, capture_output=True, text=True).stdout)


def _instructions(python: str, kind: str, url: str, pages: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        done = subprocess.run(
            valgrind + _command(python, kind, url, pages), check=True, capture_output=True, text=True, env=environment
        )
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found, done.stderr
    return int(found[1])


def _start(python: str, url: str) -> float:
    """CPU seconds of ``uttu crawl`` with one page."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "spider.py").write_text(
            "from uttu import Spider\n"
            f"spider = Spider('start', start='{url}small/1/0', delay=0, private=True, robots=False)\n"
            "@spider.page\ndef page(page):\n    yield {'title': page.css('title::text').get()}\n"
        )
        begin = _children()
        uttu = str(Path(python).with_name("uttu"))
        subprocess.run([uttu, "crawl", "spider.py", "-o", "out.jsonl"], cwd=folder, check=True, capture_output=True)
        return _children() - begin


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _measure(pythons: list[str], kind: str, urls: dict[bool, str], rounds: int, *, count: bool) -> list[float]:
    """For each interpreter: microseconds, or thousands of instructions, of a page; milliseconds of a start.

    The least of all rounds: other processes can only add to it.
    """
    url = urls[kind == "tls"]
    if kind == "start":
        starts = [[_start(python, url) for python in pythons] for _ in range(rounds)]
        return [min(each) * 1e3 for each in zip(*starts, strict=True)]
    pages = _COUNTED if count else _TIMED
    short, long = pages.get(kind, pages["small"])
    run = _instructions if count else _seconds
    few = [[run(python, kind, url, short) for python in pythons] for _ in range(rounds)]
    many = [[run(python, kind, url, long) for python in pythons] for _ in range(rounds)]
    unit = 1e-3 if count else 1e6
    return [
        (min(most) - min(least)) / (long - short) * unit
        for most, least in zip(zip(*many, strict=True), zip(*few, strict=True), strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default="all", choices=("all", *KINDS), metavar="KIND")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--against", default="", metavar="PYTHON")
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--crawl", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--pages", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.crawl:
        crawl(options.kinds[0], options.crawl, options.pages)
    elif options.serve:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_serve(Path(folder)))
    else:
        compare(options)


def compare(options: argparse.Namespace) -> None:
    """Measure all kinds that are asked for, and print a table."""
    from bench.common import compile_uttu, table

    compile_uttu()
    pythons = [sys.executable, *([options.against] if options.against else [])]
    rows: list[list[Any]] = []
    with _server() as urls:
        _seconds(sys.executable, "small", urls[False], _TIMED["small"][1])  # the server makes its pages
        for kind in KINDS if options.kinds == "all" else options.kinds:
            count = options.instructions and kind != "start"
            found = _measure(pythons, kind, urls, 1 if count else options.rounds, count=count)
            unit = "1000 instructions" if count else "ms" if kind == "start" else "us"
            row = [kind, unit, *found]
            row += [] if len(found) == 1 else [f"{(found[0] / found[1] - 1) * 100:+.1f} %"]
            rows.append(row)
            print(*row, flush=True)
    heads = ["kind", "unit", "this", *(["against", "difference"] if options.against else [])]
    table("A page costs", heads, rows)


if __name__ == "__main__":
    main()
