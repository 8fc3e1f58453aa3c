"""The products of the shop, generated from the seed of the site."""

from __future__ import annotations

import msgspec

from uttu.testing.site.model import Site, mix
from uttu.testing.site.words import ADJECTIVES, CATEGORIES, MATERIALS, PRAISE


class Product(msgspec.Struct, frozen=True):
    """A product. ``sku`` counts from 1 and is the number in its URL."""

    sku: int
    name: str
    price: str
    currency: str
    category: str
    stock: int
    description: str

    @property
    def path(self) -> str:
        return f"/shop/product/{self.sku}"


def product(site: Site, sku: int) -> Product:
    """Product ``sku`` of this site. The same arguments give the same product."""

    def draw(what: int, choices: int) -> int:
        return mix(site.seed, sku, what) % choices

    categories = list(CATEGORIES)
    category = categories[draw(11, len(categories))]
    things = CATEGORIES[category]
    thing = things[draw(12, len(things))]
    material = MATERIALS[draw(13, len(MATERIALS))]
    # The adjective depends on the number, not on chance, so that neighbours have different names.
    name = f"{ADJECTIVES[sku % len(ADJECTIVES)]} {material} {thing}".capitalize()
    first = draw(14, len(PRAISE))
    second = (first + 1 + draw(15, len(PRAISE) - 1)) % len(PRAISE)
    pounds = 4 + draw(16, 90)
    return Product(
        sku=sku,
        name=name,
        price=f"{pounds}.{(0, 25, 50, 75, 95, 99)[draw(17, 6)]:02d}",
        currency="GBP",
        category=category,
        # One in ten is sold out.
        stock=draw(18, 40) + 1 if draw(19, 10) else 0,
        description=f"A {thing} of {material}, {PRAISE[first]}, and {PRAISE[second]}.",
    )


def products(site: Site) -> tuple[Product, ...]:
    return tuple(product(site, sku) for sku in range(1, site.products + 1))
