# mypy: disable-error-code="no-untyped-def"
"""The pages of a site, and the products of its shop."""

from uttu import Page, Request, Spider

spider = Spider(
    "demo",
    args={"site": "http://127.0.0.1:8000/"},  # set with -a site=URL
    delay=0.03,  # seconds between two requests to one host
    private=True,  # the site is on this machine
)


@spider.start
def start():
    site = spider.args["site"]
    yield site + "p/0"
    yield Request(url=site + "shop/", handler="shop")
    # Not everything goes well on a site:
    yield site + "private/"  # robots.txt forbids it
    yield site + "odd/status/500"  # is broken, and tried again
    yield site + "odd/redirect/to?url=/p/0"


@spider.page
async def article(page: Page):
    yield record(page)
    yield page.follow_all("li a")


@spider.page
async def shop(page: Page):
    yield page.follow_all("article.product a", to=product)
    yield page.follow_all(".categories a, li.next a", to=shop)


@spider.page
async def product(page: Page):
    yield record(page)


def record(page: Page):
    title, price = page.css("h1::text"), page.css(".price::text")
    return {"url": page.url, "title": title.get(), "price": price.get()}
