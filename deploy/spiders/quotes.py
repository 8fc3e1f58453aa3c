"""An example: put your own spider beside it, and name it by SPIDER=yours.py."""

from uttu import Page, Spider

spider = Spider("quotes", start="https://quotes.toscrape.com/", domains=["quotes.toscrape.com"])


@spider.page
def listing(page: Page):
    for quote in page.css("div.quote"):
        yield {"text": quote.css("span.text::text").get(), "author": quote.css("small.author::text").get()}
    yield page.follow("li.next a")
