"""The job as a Uttu spider. The crawl is durable: settings that affect what survives a crash keep their defaults."""

import os

from uttu import Page, Spider

spider = Spider(
    "bench",
    start=os.environ["START_URL"],
    robots=False,
    delay=0,
    per_host=0,
    verify=False,
    http2=os.environ["HTTP2"] == "1",
)


@spider.page
def page(page: Page):
    yield {"url": page.url, "title": page.css("title::text").get(), "price": page.css("span.price::text").get()}
    yield page.follow_all("a")
