"""A shop to scrape, for demos, tutorials and tests of extraction.

=====================================  =====================================================
``/shop/``, ``/shop/page/<k>/``        listing, 20 products per page, ``li.next a`` is the next page
``/shop/category/<name>/``             the same for one category (``…/page/<k>/``)
``/shop/product/<sku>``                name, price, stock, breadcrumbs, description, JSON-LD
``/shop/api/products?page=<k>``        the listing as JSON
=====================================  =====================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from uttu.testing.site.catalogue import Product, products
from uttu.testing.site.message import Answer, Incoming, Reply, html, json, natural
from uttu.testing.site.model import Site

_PER_PAGE: Final = 20


class Shop:
    """Renders the shop of one site. All links are paths, so every host serves the whole shop."""

    def __init__(self, site: Site) -> None:
        self._all = products(site)
        self._categories: dict[str, list[Product]] = {}
        for one in self._all:
            self._categories.setdefault(one.category.lower(), []).append(one)

    def reply(self, incoming: Incoming) -> Reply:
        match incoming.path.split("/")[2:]:
            case [""]:
                return self._listing("All products", "/shop/", self._all, 1)
            case ["page", number, ""]:
                return self._listing("All products", "/shop/", self._all, natural(number) or 0)
            case ["category", name, ""]:
                return self._category(name, 1)
            case ["category", name, "page", number, ""]:
                return self._category(name, natural(number) or 0)
            case ["product", sku]:
                return self._product(natural(sku) or 0)
            case ["api", "products"]:
                return self._api(natural(incoming.query.get("page", "1")) or 0)
        return None

    def _category(self, name: str, number: int) -> Reply:
        stock = self._categories.get(name)
        return self._listing(stock[0].category, f"/shop/category/{name}/", stock, number) if stock else None

    def _listing(self, name: str, folder: str, stock: Sequence[Product], number: int) -> Reply:
        visible, last = _cut(stock, number)
        if not visible:
            return None
        boxes = "".join(
            f'<article class="product" data-sku="{one.sku}">\n<h3><a href="{one.path}">{one.name}</a></h3>\n'
            f'<p class="price">£{one.price}</p>\n<p class="stock">{_stock(one)}</p>\n</article>\n'
            for one in visible
        )
        categories = "".join(
            f'<li><a href="/shop/category/{key}/">{group[0].category}</a></li>\n'
            for key, group in sorted(self._categories.items())
        )
        previous_url = _folder(folder, number - 1)
        previous = f'<li class="previous"><a href="{previous_url}">previous</a></li>\n' if number > 1 else ""
        following = f'<li class="next"><a href="{folder}page/{number + 1}/">next</a></li>\n' if number < last else ""
        return html(
            name,
            f'<nav><ul class="categories">\n{categories}</ul></nav>\n<section>\n{boxes}</section>\n'
            f'<ul class="pager">\n{previous}<li class="current">Page {number} of {last}</li>\n{following}</ul>',
        )

    def _product(self, sku: int) -> Reply:
        if not 1 <= sku <= len(self._all):
            return None
        one = self._all[sku - 1]
        linked = {
            "@context": "https://schema.org",
            "@type": "Product",
            "sku": str(one.sku),
            "name": one.name,
            "description": one.description,
            "category": one.category,
            "offers": {
                "@type": "Offer",
                "price": one.price,
                "priceCurrency": one.currency,
                "availability": "https://schema.org/" + ("InStock" if one.stock else "OutOfStock"),
            },
        }
        return html(
            one.name,
            '<ul class="breadcrumb">\n<li><a href="/">Home</a></li>\n<li><a href="/shop/">Shop</a></li>\n'
            f'<li><a href="/shop/category/{one.category.lower()}/">{one.category}</a></li>\n'
            f'<li class="active">{one.name}</li>\n</ul>\n'
            f'<article class="product" data-sku="{one.sku}">\n<p class="price">£{one.price}</p>\n'
            f'<p class="stock">{_stock(one)}</p>\n<p class="category">{one.category}</p>\n'
            f'<div class="description"><p>{one.description}</p></div>\n</article>\n'
            f'<script type="application/ld+json">{msgspec.json.encode(linked).decode()}</script>',
        )

    def _api(self, number: int) -> Answer | None:
        visible, last = _cut(self._all, number)
        if not visible:
            return None
        following = f"/shop/api/products?page={number + 1}" if number < last else None
        return json({"page": number, "pages": last, "total": len(self._all), "products": visible, "next": following})


def _cut(stock: Sequence[Product], number: int) -> tuple[Sequence[Product], int]:
    """The products on page ``number`` (empty if it does not exist), and the number of pages."""
    last = -(-len(stock) // _PER_PAGE)
    return (stock[(number - 1) * _PER_PAGE : number * _PER_PAGE] if number > 0 else ()), last


def _folder(folder: str, number: int) -> str:
    return folder if number <= 1 else f"{folder}page/{number}/"


def _stock(one: Product) -> str:
    return f"In stock ({one.stock} available)" if one.stock else "Sold out"
