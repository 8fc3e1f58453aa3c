"""Run whole crawls in a test: the real engine and the real store, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from uttu.engine.supervisor import Ending
from uttu.model import Counts
from uttu.model.inspection import DeadQuery
from uttu.model.lease import DeadLetter
from uttu.runtime.crawl import lead_program
from uttu.runtime.spec import CrawlSpec
from uttu.settings import load_settings
from uttu.sinks.base import Sink
from uttu.spider import Spider


class Crawled(msgspec.Struct, frozen=True):
    """The result of a crawl."""

    ending: Ending
    counts: Counts
    items: list[Any]
    dead: list[DeadLetter]

    def dead_reason(self, url: str) -> str:
        """``kind: reason`` of a URL that was given up.

        :raises KeyError: the URL was not given up.
        """
        return {letter.request.url: f"{letter.kind}: {letter.reason}" for letter in self.dead}[url]


async def crawl(spider: Spider, folder: Path, *, sinks: Sequence[Sink] = (), **settings: Any) -> Crawled:
    """Run a spider to its end, with its store in ``folder``. Resumes a crawl there that did not end.

    :param sinks: write the items to these, in addition to returning them.
    :param settings: the defaults are those for a site on this machine: no delay, no limit per host, no robots.txt.
    """
    defaults = {"delay": 0.0, "per_host": 0, "robots": False}
    loaded = load_settings(defaults | spider.settings, settings, folder=folder, environment={})
    spec = CrawlSpec(
        file=spider.file or Path(), spider_name=spider.name, outputs=tuple(sink.name for sink in sinks), overwrite=True
    )
    async with lead_program(spec, spider, loaded, spider.name, sinks, folder=folder) as session:
        ending = await session.supervisor.run()
        store = session.opened.store
        items = await store.outbox.items(0, 1_000_000)
        return Crawled(
            ending,
            await store.frontier.counts(),
            [msgspec.json.decode(item.json) for item in items],
            (await store.inspector.dead(DeadQuery(limit=1_000_000))).letters,
        )
