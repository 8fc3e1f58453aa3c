"""The links of a page: which URLs are kept, and what a string given to ``page.follow`` means.

A string given to ``page.follow`` is a URL reference or a CSS selector. Most strings can be only one of them. Some can
be both: ``page-2.html`` is a file, and also an element ``page-2`` with the class ``html``. A wrong guess would end a
pagination silently, so a string that stays ambiguous is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, Literal

from selectolax.lexbor import LexborHTMLParser

from uttu.model.url import hostname_of
from uttu.spider.query import parse

Patterns = str | re.Pattern[str] | Iterable[str | re.Pattern[str]]

# Files that pages link to and that are not pages. ``filter_links`` keeps them only if ``allow`` matches them.
_OTHER_FILES = re.compile(
    r"\.(?:7z|aac|apk|avi|bin|bmp|bz2|css|deb|dmg|docx?|eot|epub|exe|flac|flv|gif|gz|ico|iso|jar|jpe?g|js|m4[av]|mkv|"
    r"mov|mp[34g]|mpe?g|msi|odt|ogg|og[av]|otf|pdf|png|pptx?|rar|rpm|rtf|svg|swf|tar|tgz|tiff?|ttf|wasm|wav|web[mp]|"
    r"wm[av]|woff2?|xlsx?|xz|zip)$",
    re.IGNORECASE,
)


def filter_links(
    urls: Iterable[str], page_url: str, *, allow: Patterns = (), deny: Patterns = (), same_site: bool = False
) -> Iterator[str]:
    """The URLs that match an ``allow`` pattern (if there is one) and no ``deny`` pattern, and that lead to pages.

    :param same_site: keep only URLs on the site of ``page_url``, see :func:`is_same_site`.
    """
    allowed, denied = _compile_all(allow), _compile_all(deny)
    for url in urls:
        if allowed and not any(pattern.search(url) for pattern in allowed):
            continue
        if any(pattern.search(url) for pattern in denied):
            continue
        if not allowed and _OTHER_FILES.search(url.partition("?")[0]):
            continue
        if same_site and not is_same_site(url, page_url):
            continue
        yield url


def is_same_site(url: str, other: str) -> bool:
    """Whether both URLs have the same host, or one host is a subdomain of the other. ``www.`` is ignored."""
    one, two = hostname_of(url).removeprefix("www."), hostname_of(other).removeprefix("www.")
    return one == two or one.endswith("." + two) or two.endswith("." + one)


def _compile_all(patterns: Patterns) -> list[re.Pattern[str]]:
    if isinstance(patterns, str | re.Pattern):
        patterns = (patterns,)
    return [re.compile(pattern) for pattern in patterns]


TargetKind = Literal["url", "selector", "unclear"]

# "a:hover" is a selector, so a scheme must be a known one or be followed by "//".
_match_url_beginning: Final = re.compile(
    r"/|\.\.?/|\.\.?$|\?|[a-z][a-z0-9+.-]*://|https?:|(?:mailto|tel|javascript|data|ftp|sms|blob|about|file):",
    re.IGNORECASE,
).match
# XPath: "//" before something that is not a host, "(//a)[1]", "./a/@href", and paths as browsers copy them.
_match_xpath: Final = re.compile(
    r"""
      \.?//(?!\[|localhost(?![\w.-])|[\w-]+:\d)[\w*:@-]+(?![\w.:@-])
    | \.//
    | \(+\.?/
    | /html(?:\[1\])?/(?:body|head)
    | \.?/.*/@(?:href|src|content|value|title|id|class|data-[\w-]+)$
    | \.?/[^?]*(?:\[(?:@|\d+\]|contains\(|text\(|position\(|last\()|/text\(\)$)
    | \.?/[^?]*(?:ancestor|following|preceding|parent|child|self|descendant)[a-z-]*::
    """,
    re.VERBOSE,
).match
# Characters and forms that occur only in selectors.
_search_selector_only: Final = re.compile(r"[\s>+~,*\[\]\"'|]|::|:[a-z-]+|^[.#]", re.IGNORECASE).search
# Characters of selectors that a path does not have before its first "/" or "?".
_match_never_in_paths: Final = re.compile(r"[^/?]*[\s\[\]\"'<>{}|:()]").match
_search_page_file: Final = re.compile(
    r"\.(?:[xsp]?html?|php[3-8]?|phtml|aspx?|jspx?|cfm|cgi)(?:[?#].*)?$", re.IGNORECASE
).search
_search_other_file: Final = re.compile(
    r"\.(?:xml|rss|atom|json|txt|csv|pdf|do|action|md|gz|zip|png|jpe?g|gif|svg|webp|js|css)$", re.IGNORECASE
).search
# Elements that contain links. "a.pdf" is a selector, "data.json" is a file, though there is an element <data>, too.
_match_container: Final = re.compile(
    r"(?:a|area|article|aside|b|button|dd|div|dl|dt|em|footer|h[1-6]|header|i|iframe|img|li|link|main|nav|ol|p|section|"
    r"span|strong|table|tbody|td|th|tr|ul)",
    re.IGNORECASE,
).fullmatch
# Characters that file names do not have. A comma alone is allowed: "a,b.html".
_search_never_in_names: Final = re.compile(r"[>*\[\]\"'|]|^[.#]|[,+~]\s|\s[,+~]").search
_match_type: Final = re.compile(r"[^\W\d][\w-]*").match

# lexbor gives small numbers to the elements of HTML, SVG and MathML. Other elements get the address of their name.
_FIRST_UNKNOWN: Final = 0x1000
_parser: Final = LexborHTMLParser("")


def classify_target(text: str) -> TargetKind:
    """Classify ``text``, given that no element of the page matches it as a selector.

    :raises ValueError: ``text`` is XPath, or neither a URL nor a selector.
    """
    if _match_xpath(text):
        raise ValueError(f"Cannot follow {text!r}: this is XPath. Use page.follow(page.xpath({text!r})).")
    if _match_url_beginning(text):
        return "url"
    try:
        parse(text)
    except ValueError as error:
        if not text or (_match_never_in_paths(text) and not _search_page_file(text)):
            raise ValueError(f"Cannot follow {text!r}. {error} If it is a URL, use page.follow(url=…).") from error
        return "url"
    name = _match_type(text)
    if _search_page_file(text) and not _search_never_in_names(text):
        return "url"
    if _search_selector_only(text) or (name and _match_container(name[0])):
        return "selector"
    if _search_other_file(text):
        return "url"
    return "selector" if name and _is_element(name[0].lower()) else "unclear"


@lru_cache(maxsize=256)
def _is_element(name: str) -> bool:
    return 0 < _parser.create_node(name).tag_id < _FIRST_UNKNOWN


def is_url(text: str) -> bool:
    """Whether the beginning of ``text`` shows that it is a URL reference. XPath is not one."""
    return bool(_match_url_beginning(text)) and not _match_xpath(text)


def explain_ambiguity(text: str) -> str:
    """The error message for a string that could be a URL or a selector and matches no element."""
    return (
        f"Cannot follow {text!r}: as a CSS selector it matches no element here, and it could be a URL. "
        f"For the URL, use page.follow(url={text!r}); for elements, page.follow(page.css({text!r}))."
    )
