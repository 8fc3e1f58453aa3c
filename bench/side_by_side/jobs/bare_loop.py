"""The job without any framework, on the libraries that Uttu rests on: the ceiling, but for the HTTP library's thread.

Uttu has no use for that thread here, as the site is without TLS (ADR 11).

It keeps everything in memory and forgives nothing: no retries, no limits, no charsets, one host.
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
        self.under_way = 0
        self.more = asyncio.Event()
        self.find = LexborCSSSelector().find

    async def work(self, client: Client, write: Callable[[bytes], object]) -> None:
        encode = msgspec.json.encode
        while True:
            if not self.waiting:
                if not self.under_way:
                    self.more.set()  # the others wait for nothing
                    return
                self.more.clear()
                await self.more.wait()
                continue
            url = self.waiting.popleft()
            self.under_way += 1
            response = await client.get(url).build().send()
            body = await response.bytes()
            write(encode(self.visit(url, body.to_bytes())) + b"\n")
            self.under_way -= 1
            if self.waiting or not self.under_way:
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
    async with ClientBuilder().http1_only().build() as client:
        await asyncio.gather(*[run.work(client, write) for _ in range(CONNECTIONS)])


with Path("out.jsonl").open("wb", buffering=1 << 16) as file:
    uvloop.run(crawl(os.environ["START_URL"], file.write))
