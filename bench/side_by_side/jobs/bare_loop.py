"""The job without any framework: an HTTP library (pyreqwest), the HTML parser and the URL library that Uttu uses too.

It keeps everything in memory, and has no retries, no limits, no charsets and only one host.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

import ada_url
import msgspec
import uvloop
from pyreqwest.client import Client, ClientBuilder
from selectolax.lexbor import LexborCSSSelector, LexborHTMLParser

CONNECTIONS = 64


class Crawl:
    def __init__(self, start: str) -> None:
        self.seen = {start}
        self.waiting = deque([start])
        self.in_flight = 0
        self.more = asyncio.Event()
        self.find = LexborCSSSelector().find

    async def work(self, client: Client, write: Callable[[bytes], object]) -> None:
        encode = msgspec.json.encode
        while True:
            if not self.waiting:
                if not self.in_flight:
                    self.more.set()  # let the other workers end too
                    return
                self.more.clear()
                await self.more.wait()
                continue
            url = self.waiting.popleft()
            self.in_flight += 1
            response = await client.get(url).build().send()
            body = await response.bytes()
            write(encode(self.visit(url, body.to_bytes())) + b"\n")
            self.in_flight -= 1
            if self.waiting or not self.in_flight:
                self.more.set()

    def visit(self, url: str, body: bytes) -> dict[str, str]:
        find, root, seen = self.find, LexborHTMLParser(body).root, self.seen
        for node in find("a", root):
            target = ada_url.join_url(url, node.attrs["href"])
            if target not in seen:
                seen.add(target)
                self.waiting.append(target)
        return {"url": url, "title": find("title", root)[0].text(), "price": find("span.price", root)[0].text()}


async def crawl(start: str, write: Callable[[bytes], object]) -> None:
    run = Crawl(start)
    builder = ClientBuilder().danger_accept_invalid_certs(True)
    builder = builder.http2(True) if os.environ["HTTP2"] == "1" else builder.http1_only()
    async with builder.build() as client:
        await asyncio.gather(*[run.work(client, write) for _ in range(CONNECTIONS)])


with Path("out.jsonl").open("wb", buffering=1 << 16) as file:
    uvloop.run(crawl(os.environ["START_URL"], file.write))
