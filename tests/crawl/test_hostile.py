"""The short form of the hostile suite: many kinds in one crawl, each on its own host, beside a host that behaves.

``python -m tests.harness.nemesis.hostile`` tries all kinds, most of them alone, and holds them to a gap of one second.
Here a gap may be longer, because tests share their processors; memory, endings and outcomes are exact.
"""

from __future__ import annotations

import re

import msgspec
import pytest

from tests.harness.nemesis.hostile import Case, Result, Trial, all_cases, run

GAP_SECONDS = 8.0

TOGETHER = {
    "http1": r"^http1/",
    "tls": r"^tls/(?!http1-|codings-)|^tls/http1-(length|chunk|lines|line|heads|high|endless|poisoned|reset|never)",
    "http2": r"^http2/",
    "codings": r"^codings/(gzip|br|zstd|onion|mixed|lines|unknown)",
    "codings over TLS": r"^tls/codings-(gzip|deflate|mixed|lines)",
    "robots": r"^robots/(?!never|closes|500$|chain|17mb|endless)",
    "sitemaps": r"^sitemaps/(laughs|quadratic|entities|external|deep|attributes|siblings|bomb$|bomb-file|members|text)",
    "cookies and charsets": r"^(cookies|charsets)/",
    "redirects": r"^redirects/(?!private|metadata|loopback|zero)",
    "private addresses": r"^redirects/(private|metadata|loopback|zero)",
    "rates": r"^rates/(year|year-503|9999|digits|500-year)$",
    "documents": r"^documents/(json|xml-(laughs|quadratic|file|device|deep|attributes|namespaces|defaults))",
    "depth": r"^content/nested-(div|b|a|table|ul|svg|template|select)-80k|^content/nested-(xpath|text-html|follow)",
    "attributes and formatting": r"^content/(attributes|formatting-1000|stray-ends)",
    "siblings and links": r"^content/(siblings-(i|p)|cells|links-1m-found|links-same)",
    "sizes": r"^content/(text|comment|script|title|attribute|entities|angles|nulls|random|too-large)$",
    "handlers that raise": r"^handlers/(raises|recursion$|recursion-json|warns|runs-loop)",
    "handlers that give too much": r"^handlers/endless-(items|items-async|nothing|nested)|^handlers/item-(?!1gb)",
    "handlers that hang": r"^handlers/(hangs|hangs-deaf|hangs-in-cleanup|cancels-itself|cancels-later)$",
    "requests that are wrong": r"^handlers/request-(?!tree|meta-large)",
    "handlers that block": r"^handlers/(while-true|sleeps|regex)$",
}


# The pages of these groups are as large as a body may be, and many of them are fetched at once. A process may have more
# memory then than with one of them, which is what the long form measures.
SEVERAL_MEGABYTES = 600
LARGE = frozenset(
    {
        "codings",
        "codings over TLS",
        "documents",
        "sitemaps",
        "depth",
        "attributes and formatting",
        "siblings and links",
        "sizes",
    }
)


def chosen(pattern: str) -> tuple[Case, ...]:
    cases = tuple(case for case in all_cases() if re.search(pattern, case.name) and not case.endless)
    assert cases
    return cases


def assert_clean(result: Result) -> None:
    assert not result.findings, "\n".join([*result.findings, result.said])


@pytest.mark.parametrize("group", TOGETHER)
def test_many_kinds_in_one_crawl(group: str) -> None:
    cases = chosen(TOGETHER[group])
    if group in LARGE:
        cases = tuple(msgspec.structs.replace(case, megabytes=SEVERAL_MEGABYTES) for case in cases)
    blocked = sum(case.blocks for case in cases)
    result = run(Trial(cases=cases, gap_seconds=GAP_SECONDS * (1 + blocked), patience=90))
    assert_clean(result)


ENDLESS = r"^traps/(calendar|session|filters)|^content/links-(1m|hosts)$|^sitemaps/(entries-300k|index-tree)$"


def test_a_crawl_with_more_pages_than_it_can_fetch_goes_on_until_it_is_stopped() -> None:
    cases = tuple(case for case in all_cases() if re.search(ENDLESS, case.name))
    result = run(Trial(cases=cases, gap_seconds=GAP_SECONDS, patience=90))
    assert_clean(result)
    assert result.code == 143, "it ended by itself"


@pytest.mark.parametrize("how", ["exits-0", "segfault", "kills-itself"])
def test_a_handler_that_ends_its_process_ends_its_page(how: str) -> None:
    """Another worker goes on; the page is not given out again and again."""
    result = run(Trial(cases=chosen(f"^handlers/{how}$"), workers=2, gap_seconds=GAP_SECONDS * 3, patience=90))
    assert_clean(result)
