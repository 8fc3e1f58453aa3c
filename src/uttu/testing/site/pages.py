"""The ordinary pages: ``/p/0`` to ``/p/<pages - 1>``.

They form a tree, so that every page can be reached from ``/p/0``: page n links to its children n·k+1 … n·k+k, where k
is half of the links. The other links lead to random pages. A page is rendered for each request and not cached: it takes
about 10 µs, and memory stays flat with millions of pages.
"""

from __future__ import annotations

from typing import Final

from uttu.testing.site.model import Layout, Site, mix
from uttu.testing.site.words import ADJECTIVES, FILLER, MATERIALS, THINGS

_PARAGRAPHS: Final = 64
_PARAGRAPH: Final = 480  # bytes, tags included
_OPEN, _CLOSE = "<p>", "</p>\n"
_TAGS: Final = len(_OPEN + _CLOSE)
_BOTTOM: Final = "</body></html>\n"


def targets(site: Site, number: int) -> list[int]:
    """The pages that page ``number`` links to, in order. There are exactly ``site.links`` of them."""
    return _targets(site, _keys(site), number, mix(site.seed, number))


def price(site: Site, number: int) -> str:
    """The price that page ``number`` shows."""
    return _price(mix(site.seed, number))


def title(number: int) -> str:
    return f"{ADJECTIVES[number % len(ADJECTIVES)]} {THINGS[number % len(THINGS)]} {number}".capitalize()


class Pages:
    """Renders the pages of one site."""

    def __init__(self, layout: Layout) -> None:
        site = layout.site
        self._site = site
        self._hosts = site.hosts
        self._prefixes = [f"{origin}/p/" for origin in layout.origins] if site.hosts > 1 else ["/p/"]
        self._keys = _keys(site)
        self._filler = _filler(site)
        labels = [f"{MATERIALS[i % len(MATERIALS)]} {THINGS[i % len(THINGS)]}" for i in range(site.links)]
        # One formatting step for the whole page: a loop over the links would take three times as long.
        self._top = (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>%s</title></head>\n<body>\n'
            '<h1>%s</h1>\n<span class="price">%s</span>\n<ul>\n'
            + "".join(f'<li><a href="%s%d">{label}</a></li>\n' for label in labels)
            + "</ul>\n"
        )

    def render(self, host: int, number: int) -> bytes | None:
        """The page, or None if it does not exist on ``host``."""
        site, hosts = self._site, self._hosts
        if not 0 <= number < site.pages or number % hosts != host:
            return None
        chance = mix(site.seed, number)
        to = _targets(site, self._keys, number, chance)
        links: list[str | int] = [""] * (2 * len(to))
        prefixes = self._prefixes
        links[0::2] = [prefixes[one % hosts] for one in to]
        links[1::2] = to
        name = title(number)
        top = self._top % (name, name, _price(chance), *links)
        room = max(site.page_bytes - len(top) - len(_BOTTOM), 0)
        return (top + self._text(chance, room) + _BOTTOM).encode("ascii")

    def _text(self, chance: int, room: int) -> str:
        """Exactly ``room`` characters of paragraphs. The last one is cut to fit."""
        whole, rest = divmod(room, _PARAGRAPH)
        start = (chance >> 32) % _PARAGRAPHS * _PARAGRAPH
        end = start + whole * _PARAGRAPH
        if rest < _TAGS:
            return self._filler[start:end] + " " * rest
        cut = self._filler[end + len(_OPEN) : end + rest - len(_CLOSE)]
        return f"{self._filler[start:end]}{_OPEN}{cut}{_CLOSE}"


def _keys(site: Site) -> list[int]:
    """For each link of a page, a number that makes its target differ from the others."""
    return [mix(site.seed, slot, 1) for slot in range(site.links)]


def _targets(site: Site, keys: list[int], number: int, chance: int) -> list[int]:
    fan = (site.links + 1) // 2
    first = number * fan + 1
    pages = site.pages
    children = range(min(first, pages), min(first + fan, pages))
    return [*children, *[(chance ^ key) % pages for key in keys[len(children) :]]]


def _price(chance: int) -> str:
    cents = 99 + chance % 99_900
    return f"{cents // 100}.{cents % 100:02d}"


def _filler(site: Site) -> str:
    """Paragraphs of equal length, one after the other, with enough text after the last possible start."""
    size = _PARAGRAPH - _TAGS
    paragraphs: list[str] = []
    step = 0
    for _ in range(_PARAGRAPHS):
        words: list[str] = []
        length = 0
        while length < size:
            step += 1
            word = FILLER[mix(site.seed, step, 2) % len(FILLER)]
            words.append(word)
            length += len(word) + 1
        paragraphs.append(f"{_OPEN}{' '.join(words).capitalize()[: size - 1]}.{_CLOSE}")
    once = "".join(paragraphs)
    return once * (2 + site.page_bytes // len(once))
