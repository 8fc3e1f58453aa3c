"""The job for crawlee, with its queue in memory. Rows are written to the file directly: its dataset is slower."""

import json
import logging
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import uvloop
from crawlee import ConcurrencySettings
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.storage_clients import MemoryStorageClient


async def crawl(start: str, write: Callable[[str], object]) -> None:
    crawler = ParselCrawler(
        concurrency_settings=ConcurrencySettings(min_concurrency=64, desired_concurrency=64, max_concurrency=64),
        storage_client=MemoryStorageClient(),
        use_session_pool=False,
        retry_on_blocked=False,
        configure_logging=False,
        status_message_logging_interval=timedelta(hours=1),
    )

    @crawler.router.default_handler
    async def page(context: ParselCrawlingContext) -> None:
        select = context.selector
        row = {
            "url": context.request.url,
            "title": select.xpath("//title/text()").get(),
            "price": select.xpath('//span[@class="price"]/text()').get(),
        }
        write(json.dumps(row) + "\n")
        await context.enqueue_links(strategy="all")

    await crawler.run([start])


logging.disable(logging.WARNING)
with Path("out.jsonl").open("w") as file:
    uvloop.run(crawl(os.environ["START_URL"], file.write))
