"""Finding the links of a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from weft.model.url import hostname_of

Patterns = str | re.Pattern[str] | Iterable[str | re.Pattern[str]]

# Things that are linked to but are no pages: fetched only when asked for by name.
_NO_PAGES = re.compile(
    r"\.(?:7z|aac|apk|avi|bin|bmp|bz2|css|deb|dmg|docx?|eot|epub|exe|flac|flv|gif|gz|ico|iso|jar|jpe?g|js|m4[av]|mkv|"
    r"mov|mp[34g]|mpe?g|msi|odt|ogg|og[av]|otf|pdf|png|pptx?|rar|rpm|rtf|svg|swf|tar|tgz|tiff?|ttf|wasm|wav|web[mp]|"
    r"wm[av]|woff2?|xlsx?|xz|zip)(?:\?|$)",
    re.IGNORECASE,
)


def chosen(
    urls: Iterable[str], page_url: str, *, allow: Patterns = (), deny: Patterns = (), same_site: bool = False
) -> Iterator[str]:
    """Those of the URLs that match an ``allow`` pattern (if any), no ``deny`` pattern, and lead to a page."""
    allowed, denied = _compiled(allow), _compiled(deny)
    for url in urls:
        if allowed and not any(pattern.search(url) for pattern in allowed):
            continue
        if any(pattern.search(url) for pattern in denied):
            continue
        if not allowed and _NO_PAGES.search(url):
            continue
        if same_site and not is_same_site(url, page_url):
            continue
        yield url


def is_same_site(url: str, other: str) -> bool:
    """Whether two URLs are of one host or one is of a subdomain of the other; ``www.`` aside."""
    one, two = hostname_of(url).removeprefix("www."), hostname_of(other).removeprefix("www.")
    return one == two or one.endswith("." + two) or two.endswith("." + one)


def _compiled(patterns: Patterns) -> list[re.Pattern[str]]:
    if isinstance(patterns, str | re.Pattern):
        patterns = (patterns,)
    return [re.compile(pattern) for pattern in patterns]
