"""Whole crawls in a test: the real engine, the real store, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from weft import assembly, config, launch
from weft.engine.supervisor import Ending
from weft.frontier.base import DeadLetter
from weft.model import Counts
from weft.sinks.base import Sink
from weft.spider import Spider


class Crawled(msgspec.Struct, frozen=True):
    """What came of a crawl."""

    ending: Ending
    counts: Counts
    items: list[Any]
    dead: list[DeadLetter]

    def dead_reason(self, url: str) -> str:
        """``kind: reason`` of a URL that was given up.

        :raises KeyError: it was not.
        """
        return {letter.request.url: f"{letter.kind}: {letter.reason}" for letter in self.dead}[url]


async def crawl(spider: Spider, folder: Path, *, sinks: Sequence[Sink] = (), **settings: Any) -> Crawled:
    """Run a spider to its end, its state in ``folder``. Goes on if a crawl is there that did not end.

    Settings are those of a crawl on this machine: no delay, no robots.txt, unless they say otherwise.
    """
    quick = {"delay": 0.0, "per_host": 0, "robots": False}
    loaded = config.load(quick | spider.settings, settings, folder=folder, environment={})
    depot = await assembly.open_depot(loaded.frontier, folder)
    opened = await launch.open_crawl(depot, spider.name, loaded, fresh=False, resume=False)
    store, fetcher = opened.store, assembly.fetcher_for(loaded, folder)
    try:
        supervisor = await launch.supervisor_for(spider, loaded, store, fetcher, sinks)
        await supervisor.open()
        await depot.keep(spider.name)
        ending = await supervisor.run()
        stored = await store.outbox.items(0, 1_000_000)
        return Crawled(
            ending,
            await store.frontier.counts(),
            [msgspec.json.decode(item.json) for item in stored],
            await store.inspector.dead(1_000_000),
        )
    finally:
        await fetcher.close()
        await store.frontier.close()
        await depot.close()
