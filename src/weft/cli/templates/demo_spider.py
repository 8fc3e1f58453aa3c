# mypy: disable-error-code="no-untyped-def"
"""The pages of a site, and the products of its shop."""

from weft import Page, Request, Spider

spider = Spider(
    "demo",
    args={"site": "http://127.0.0.1:8000/"},  # set with -a site=URL
    delay=0.03,  # seconds between two requests to a host; be slower with hosts that are not yours
    private=True,  # this site is on your own machine, where crawls do not go unasked
)


@spider.start
def start():
    site = spider.args["site"]
    yield site + "p/0"
    yield Request(url=site + "shop/", handler="shop")
    # Things go wrong on every site:
    yield site + "private/"  # robots.txt forbids it
    yield site + "odd/status/404"  # is not there
    yield site + "odd/status/500"  # is broken, and tried again
    yield site + "odd/redirect/to?url=/p/7"  # leads to a page that others lead to as well


@spider.page
async def article(page: Page):
    yield {"url": page.url, "title": page.css("h1::text").get(), "price": page.css(".price::text").get()}
    yield page.follow_all("li a")


@spider.page
async def shop(page: Page):
    yield page.follow_all("article.product a", to=product)
    yield page.follow_all(".categories a, li.next a", to=shop)


@spider.page
async def product(page: Page):
    data = page.css("script[type='application/ld+json']::text").get()
    yield {"url": page.url, "title": page.css("h1::text").get(), "price": page.css(".price::text").get(), "data": data}
