"""The job as a Uttu spider. It stays durable: nothing that guards a crawl is turned off."""

import os

from uttu import Page, Spider

spider = Spider("bench", start=os.environ["START_URL"], robots=False, delay=0, per_host=0)


@spider.page
def page(page: Page):
    yield {"url": page.url, "title": page.css("title::text").get(), "price": page.css("span.price::text").get()}
    yield page.follow_all("a")
