"""Large pages as a shop or a news site has them: 60 to 300 KB of deep markup, scripts, styles, JSON and tables.

A page is built in this order: a head with styles, scripts and JSON-LD; a menu; the product with its title and price;
blocks (comment threads, tables, articles, forms, scripts, JSON) until the page has its size; cards of other products;
a footer. Menu and footer have the same 150 links on every page. The 50 cards link to other products: the first ten to
the page's children in a tree, so that every page can be reached from page 0, the others to random pages. ::

    page n ──► children 10n+1 … 10n+10 (cards)     ──► pages 0 … 149 (menu and footer)     ──► 40 random pages (cards)

With ``origin``, 160 links more are as authors write them, see ``_MIXED``. Those that lead to pages of this site lead to
pages that are linked anyway.

The pages depend only on their numbers and the seed. Blocks come from a pool that is rendered once, so a page takes less
than a millisecond to make.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Final

from uttu.testing.site.model import Site, mix
from uttu.testing.site.pages import price, title
from uttu.testing.site.words import ADJECTIVES, CATEGORIES, FILLER, MATERIALS, THINGS

SMALLEST, LARGEST = 60_000, 300_000  # bytes; sizes are spread evenly between them
NAVIGATION, CARDS = 150, 50
LINKS: Final = NAVIGATION + CARDS

_FAN: Final = 10  # children of a page
# How often, and how, a link to {page} or to elsewhere is written. Crawlers compare most of them as they are; others
# have a fragment, dots or spaces, lead to another site, or to no page.
_MIXED: Final = (
    (64, "{origin}/p/{page}"),
    (24, "/p/{page}"),
    (16, "/p/{page}#comments"),
    (8, "#"),
    (8, "../p/{page}"),
    (4, "{page}"),
    (4, " {origin}/p/{page} "),
    (6, "javascript:void(0)"),
    (2, "mailto:news{page}@shop.example"),
    (16, "https://share.example/sharer.php?u=https%3A%2F%2Fshop.example%2Fp%2F{page}&amp;title=A+good+lamp"),
    (4, "//static.example/guides/{page}.html"),
    (4, "https://news.example/2026/01/a-lamp-that-lasts-{page}/?utm_source=shop&amp;utm_medium=footer"),
)
_HEADER_LINKS: Final = 120  # of the navigation; the others are in the footer
_VARIANTS: Final = 24  # of each kind of block
_THREAD_DEPTH: Final = 14
_ICON: Final = (
    '<svg class="icon" width="16" height="16" viewBox="0 0 24 24" aria-hidden="true"><path fill="none" stroke="'
    'currentColor" stroke-width="2" d="M12 2l3.1 6.3 6.9 1-5 4.9 1.2 6.8-6.2-3.2L5.8 21 7 14.2 2 9.3l6.9-1z"/></svg>'
)


class LargePages:
    """Renders the large pages of one site. ``origin``, such as ``https://127.77.0.1:8443``, adds the mixed links."""

    def __init__(self, site: Site, origin: str = "") -> None:
        self._site = site
        self._origin = origin
        self._head = _styles() + _script(site.seed, 12)
        links = [f"/p/{each % site.pages}" for each in range(NAVIGATION)]
        self._menu = _menu(links[:_HEADER_LINKS])
        self._footer = _footer(links[_HEADER_LINKS:])
        kinds: tuple[Callable[[int], str], ...] = (_thread, _table, _state, _article, _form, _inline_script)
        self._blocks = [make(mix(site.seed, each)) for each in range(_VARIANTS) for make in kinds]

    def render(self, number: int) -> bytes:
        chance = mix(self._site.seed, number, 3)
        name = title(number)
        top = (
            f'<!doctype html>\n<html lang="en" data-page="{number}"><head><meta charset="utf-8"><title>{name}</title>\n'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><meta property="og:title" content='
            f'"{name}"><meta name="description" content="{_text(chance, 25)}">{self._head}'
            f'<script type="application/ld+json">{_product_json(number, name)}</script></head>\n'
            f'<body class="product page-{number}">{self._menu}<div id="root"><div class="layout"><main role="main">'
            f'<article class="product" itemscope><h1 itemprop="name">{name}</h1><div class="buy"><div class="offer">'
            f'<span class="price">{price(self._site, number)}</span></div></div>'
        )
        links = self._cards(number, chance) + self._mixed(chance)
        bottom = f"</article>{links}</main></div></div>{self._footer}</body></html>\n"
        size = SMALLEST + (chance >> 16) % (LARGEST - SMALLEST)
        return (top + self._fill(chance, size - len(top) - len(bottom)) + bottom).encode()

    def _fill(self, chance: int, room: int) -> str:
        """Blocks, chosen at random, up to ``room`` characters."""
        found: list[str] = []
        while True:
            block = self._blocks[mix(chance, len(found)) % len(self._blocks)]
            room -= len(block)
            if room < 0:
                return "".join(found)
            found.append(block)

    def _cards(self, number: int, chance: int) -> str:
        cards = "".join(_card(to, index) for index, to in enumerate(targets(self._site, number, chance)))
        return f'<section class="related"><h2>Related</h2><div class="grid">{cards}</div></section>'

    def _mixed(self, chance: int) -> str:
        if not self._origin:
            return ""
        pages = (mix(chance, each, 5) % min(NAVIGATION, self._site.pages) for each in itertools.count())
        links = [link.format(origin=self._origin, page=next(pages)) for count, link in _MIXED for _ in range(count)]
        entries = "".join(f'<li><a href="{link}">More</a></li>' for link in links)
        return f'<ul class="more">{entries}</ul>'


def targets(site: Site, number: int, chance: int) -> list[int]:
    """The pages that the cards of page ``number`` link to."""
    children = range(min(number * _FAN + 1, site.pages), min(number * _FAN + _FAN + 1, site.pages))
    return [*children, *(mix(chance, each, 4) % site.pages for each in range(len(children), CARDS))]


def _pick(words: tuple[str, ...], chance: int) -> str:
    return words[chance % len(words)]


def _text(chance: int, count: int) -> str:
    """``count`` words."""
    return " ".join(_pick(FILLER, mix(chance, each)) for each in range(count)).capitalize() + "."


def _menu(links: list[str]) -> str:
    groups = []
    size = len(links) // len(CATEGORIES)
    for index, category in enumerate(CATEGORIES):
        entries = "".join(
            f'<li class="menu__item menu__item--level-2" role="none"><a class="menu__link" role="menuitem" '
            f'href="{link}" data-track="menu:{index}:{place}"><span class="menu__text">{_pick(MATERIALS, place)} '
            f"{_pick(THINGS, place)}</span></a></li>"
            for place, link in enumerate(links[index * size : (index + 1) * size])
        )
        groups.append(
            f'<li class="menu__item" role="none"><button class="menu__button" aria-expanded="false">{category}{_ICON}'
            f'</button><div class="menu__panel" hidden><ul class="menu__list" role="menu">{entries}</ul></div></li>'
        )
    return (
        '<header class="header"><div class="header__inner"><nav class="menu" aria-label="Shop"><ul class="menu__bar" '
        f'role="menubar">{"".join(groups)}</ul></nav></div></header>\n'
    )


def _footer(links: list[str]) -> str:
    entries = "".join(
        f'<li><a class="footer__link" href="{link}">About {_pick(ADJECTIVES, place)} {_pick(THINGS, place)}s</a></li>'
        for place, link in enumerate(links)
    )
    return f'<footer class="footer"><div class="footer__inner"><ul class="footer__list">{entries}</ul></div></footer>'


def _card(number: int, index: int) -> str:
    return (
        f'<div class="card" data-index="{index}" data-id="{number}"><div class="card__media"><picture><source srcset="'
        f'/img/{number}.avif 1x, /img/{number}@2x.avif 2x" type="image/avif"><img src="/img/{number}.jpg" '
        f'loading="lazy" width="320" height="240" alt="{title(number)}"></picture></div><div class="card__body"><h3 '
        f'class="card__title"><a href="/p/{number}">{title(number)}</a></h3><span class="amount">{number % 90 + 9}.99 €'
        "</span>"
        f'<ul class="tags"><li class="tag">{_pick(MATERIALS, number)}</li><li class="tag">{_pick(ADJECTIVES, number)}'
        "</li></ul></div></div>\n"
    )


def _product_json(number: int, name: str) -> str:
    offer = {"@type": "Offer", "availability": "https://schema.example/InStock", "priceCurrency": "EUR"}
    return json.dumps({"@type": "Product", "sku": f"{number:08d}", "name": name, "offers": offer})


def _styles() -> str:
    rules = "".join(
        f".{_pick(THINGS, each)}__{_pick(MATERIALS, each)}--{each}{{display:flex;margin:{each % 9}px auto;padding:"
        f"{each % 5}rem;color:#{mix(5, each) % 0xFFFFFF:06x}}}@media(max-width:{480 + each}px){{.u{each}>li{{top:0}}}}"
        for each in range(60)
    )
    return f"<style>{rules}</style>"


def _script(chance: int, functions: int) -> str:
    """Code as a minifier leaves it, with markup in its strings that is not part of the page."""
    code = "".join(
        f"function f{each}(e,t){{if(!e||e.n<{mix(chance, each) % 999}&&t)return null;var n=e.map(function(r){{return"
        f" r.id>{each}?'<li class=\"row\"><a href=\"/p/'+r.id+'\">'+r.name+'<\\/a><\\/li>':''}});return t?n.join():n}}"
        for each in range(functions)
    )
    return f"<script>!function(w,d){{'use strict';{code}w.app={{f0:f0}}}}(window,document);</script>"


def _inline_script(chance: int) -> str:
    return _script(chance, 10 + chance % 15)


def _state(chance: int) -> str:
    """The state of a client-side application, as JSON."""
    products = [
        {
            "id": mix(chance, each) % 1_000_000,
            "name": f"{_pick(ADJECTIVES, mix(chance, each, 1))} {_pick(THINGS, mix(chance, each, 2))}",
            "price": {"amount": mix(chance, each, 3) % 10_000, "currency": "EUR", "was": None},
            "text": _text(mix(chance, each), 12),
            "images": [f"/img/{each}-{size}.jpg" for size in (320, 640, 1280)],
            "inStock": each % 3 != 0,
        }
        for each in range(8 + chance % 12)
    ]
    state = json.dumps({"products": products, "version": chance % 1000}).replace("</", "<\\/")
    return f'<script type="application/json" data-state="{chance % 1000}">{state}</script>\n'


def _thread(chance: int) -> str:
    """Comments, each an answer to the one before it."""
    depth = 4 + chance % (_THREAD_DEPTH - 3)
    opened = "".join(
        f'<div class="comment comment--depth-{each}" id="c{chance % 9999}-{each}" data-score="{mix(chance, each) % 50}"'
        f'><div class="comment__head"><span class="avatar" style="background:#{mix(chance, each) % 0xFFFFFF:06x};width:'
        f'32px"></span><b class="author">{_pick(THINGS, mix(chance, each))}{each}</b><span class="stars">{_ICON}{_ICON}'
        f'</span><time datetime="2026-01-{each + 1:02d}T10:00">{each + 1} days ago</time></div><div class='
        f'"comment__body"><p>{_text(mix(chance, each), 30)}</p></div><div class="comment__answers">'
        for each in range(depth)
    )
    return f'<section class="thread">{opened}{"</div></div>" * depth}</section>\n'


def _table(chance: int) -> str:
    rows = "".join(
        f'<tr class="spec__row"><th scope="row">{_pick(MATERIALS, mix(chance, each))}</th><td>{each * 7 % 90} cm</td>'
        f'<td class="num">{mix(chance, each) % 1000}</td><td><span class="badge" title="tested">{_ICON}</span></td><td>'
        f"{_text(mix(chance, each), 6)}</td></tr>"
        for each in range(10 + chance % 15)
    )
    head = "<thead><tr><th>Part</th><th>Size</th><th>Count</th><th>Tested</th><th>Note</th></tr></thead>"
    return f'<div class="table-wrap"><table class="spec">{head}<tbody>{rows}</tbody></table></div>\n'


def _article(chance: int) -> str:
    paragraphs = "".join(
        f'<p style="text-indent:{each % 3}em">{_text(mix(chance, each), 40)} <em>{_text(mix(chance, each, 1), 4)}</em> '
        f"<strong>{_pick(THINGS, each)} &amp; {_pick(MATERIALS, each)}</strong>, très bon — "
        f"{_text(mix(chance, each), 20)}</p>"
        for each in range(3 + chance % 5)
    )
    figure = f'<figure><img src="/img/a{chance % 999}.jpg" alt=""><figcaption>{_text(chance, 8)}</figcaption></figure>'
    return f"<section><h2>{_text(chance, 4)}</h2>{figure}{paragraphs}</section><!-- end of section -->\n"


def _form(chance: int) -> str:
    options = "".join(f'<option value="{each}">{_pick(MATERIALS, each + chance)} {each}</option>' for each in range(40))
    return (
        f'<form class="options" action="/cart" method="post"><input type="hidden" name="token" value="{chance:x}">'
        f'<fieldset><legend>Options</legend><label>Kind <select name="kind">{options}</select></label><label>Count '
        '<input type="number" name="count" value="1"></label><button type="submit">Add</button></fieldset></form>\n'
    )
