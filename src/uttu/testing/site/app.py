"""Routes a path to the part of the site that answers it.

=====================  ===========================================================
``/``                  index: the first page, the shop, the oddities, the traps
``/p/<n>``             the ordinary pages (:mod:`.pages`)
``/shop/…``            a shop to scrape (:mod:`.shop`)
``/odd/…``             one path for each thing that a server can do wrong (:mod:`.odd`)
``/trap/…``            endless pages (:mod:`.traps`)
``/private/…``         forbidden by robots.txt; it exists, so that a visit shows in the log
``/robots.txt`` …      robots.txt, sitemaps, feeds (:mod:`.discovery`)
=====================  ===========================================================
"""

from __future__ import annotations

from collections.abc import Callable

from uttu.testing.site.discovery import Discovery
from uttu.testing.site.message import NOT_FOUND, Answer, Incoming, Reply, Script, html, natural
from uttu.testing.site.model import Layout
from uttu.testing.site.odd import Oddities
from uttu.testing.site.pages import Pages
from uttu.testing.site.shop import Shop
from uttu.testing.site.traps import trap


class SiteApp:
    """Answers every request of a site, on all its hosts."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._pages = Pages(layout)
        self._discovery = Discovery(layout)
        self._rooms: dict[str, Callable[[Incoming], Reply]] = {
            "p": self._page,
            "": self._index,
            "shop": Shop(layout.site).reply,
            "odd": Oddities(layout).reply,
            "trap": trap,
            "private": _private,
        }

    def reply(self, incoming: Incoming) -> Answer | Script:
        room = self._rooms.get(incoming.path[1:].partition("/")[0], self._discovery.reply)
        return room(incoming) or NOT_FOUND

    def _page(self, incoming: Incoming) -> Reply:
        number = natural(incoming.path[3:])
        body = None if number is None else self._pages.render(incoming.host, number)
        return None if body is None else Answer(body)

    def _index(self, incoming: Incoming) -> Reply:
        hosts = "".join(f'<li><a href="{origin}/">{origin}</a></li>\n' for origin in self.layout.origins)
        return html(
            f"Test site, host {incoming.host}",
            f'<ul>\n<li><a href="{self.layout.page_url(0)}">The first page</a></li>\n'
            '<li><a href="/shop/">The shop</a></li>\n<li><a href="/odd/">The oddities</a></li>\n'
            f'<li><a href="/trap/">The traps</a></li>\n</ul>\n<h2>Hosts</h2>\n<ul class="hosts">\n{hosts}</ul>',
        )


def _private(incoming: Incoming) -> Reply:
    return html("Private", "<p>robots.txt asks crawlers to stay away from here.</p>")
