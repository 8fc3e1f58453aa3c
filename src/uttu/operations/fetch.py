"""Fetch one page as a crawl would, with redirects within the crawl's scope."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from uttu.fetch.base import Fetcher
from uttu.model import Request, Response
from uttu.model.url import canonical, host_of, hostname_of
from uttu.policy import redirect
from uttu.policy.scope import Scope, is_private_host
from uttu.settings import Settings
from uttu.spider.page import find_refresh_target

RedirectCallback = Callable[[Response, str], None]

_match_bare = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[\w-]+(?:\.[\w-]+)*\.?)(?::[0-9]+)?(?:[/?#].*)?").fullmatch


def parse_web_url(text: str) -> str:
    """The canonical URL for what a person typed; the scheme may be left out.

    Without a scheme it is https, or http for private hosts.

    :raises ValueError: it is not an http(s) URL.
    """
    text = text.strip()
    try:
        if not _match_bare(text):
            return canonical(text)
        url = canonical("https://" + text)
        # Servers in a private network rarely have a certificate.
        return canonical("http://" + text) if is_private_host(hostname_of(url)) else url
    except ValueError:
        raise ValueError(f"{text!r} is no URL of the web; write it out, like https://example.org/") from None


async def fetch_with_redirects(
    fetcher: Fetcher, request: Request, settings: Settings, hop: RedirectCallback
) -> Response:
    """Fetch a request, and follow redirects as a crawl that starts there would.

    :param hop: Called for each redirect, with the response and a description of its target.
    :raises FetchError: a fetch failed.
    """
    scope = Scope(start_hosts=frozenset({host_of(request.url)}), private=settings.private)
    while True:
        response = await fetcher.fetch(request)
        location, status = response.headers.get("location"), response.status
        if response.ok and settings.meta_refresh:
            location, status = find_refresh_target(response), 303
        if status not in redirect.STATUSES or location is None:
            return response
        set_cookies = response.headers.get_all("set-cookie")
        target = redirect.redirect_request(request, status, location, set_cookies, time.time())
        if target is None:
            hop(response, f"{location!r}, which is no web address")
            return response
        if refused := scope.refuse(target.url, 0):
            hop(response, f"{target.url}, which a crawl from here would not follow: {refused}")
            return response
        if len(request.via) >= settings.max_redirects:
            hop(response, f"{target.url}: stopped after max_redirects={settings.max_redirects}")
            return response
        hop(response, target.url)
        request = target
