"""Fetch one page as a crawl would, with redirects within the crawl's scope."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from uttu.errors import PrivateHost, UsageError, UttuError
from uttu.fetch.base import Fetcher, ResolverAware
from uttu.fetch.resolver import look_up_addresses
from uttu.model import Request, Response
from uttu.model.url import canonical, host_of, hostname_of
from uttu.policy import redirect
from uttu.policy.scope import Scope, is_private_address, is_private_host
from uttu.settings import DATA_FOLDER, Settings
from uttu.spider.page import Page, find_refresh_target

_LOOKUP_SECONDS: Final = 5.0
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
        raise ValueError(f"{text!r} is not a web URL. Write it in full, like https://example.org/") from None


def parse_target(words: Sequence[str]) -> Request:
    """The request for a URL, or for a curl command in one word or several.

    :raises ValueError: it is neither.
    """
    from uttu.model.curl import parse_curl

    command = words[0] if len(words) == 1 else shlex.join(words)
    if not re.match(r"curl(\s|$)", command.lstrip()):
        if len(words) != 1:
            raise ValueError(f"Give one URL, or a curl command: {' '.join(words)!r:.80} is neither")
        return Request(url=parse_web_url(command))
    try:
        return parse_curl(command)
    except (UttuError, ValueError) as error:
        raise ValueError(f"Cannot parse the curl command: {error}") from error


class FetchedPage(msgspec.Struct, frozen=True, kw_only=True):
    """A response as data, with its body as text. ``via``: the URLs that redirected to it."""

    url: str
    status: int
    ok: bool
    via: tuple[str, ...]
    headers: tuple[tuple[str, str], ...]
    elapsed: float
    version: str
    size: int
    text: str

    @classmethod
    def of(cls, response: Response) -> FetchedPage:
        return cls(
            url=response.url,
            status=response.status,
            ok=response.ok,
            via=response.request.via,
            headers=response.headers.pairs(),
            elapsed=response.elapsed,
            version=response.version,
            size=len(response.body),
            text=Page(response).text,
        )


def create_fetcher(settings: Settings, folder: Path = Path()) -> Fetcher:
    """Build the fetcher of a project: its cache and a relative ``ca_file`` are in ``folder``.

    :raises ConfigError: the settings name no fetcher, or one that can't be loaded.
    """
    from uttu.runtime import factory

    if settings.ca_file:
        settings = msgspec.structs.replace(settings, ca_file=str(folder / settings.ca_file))
    return factory.create_fetcher(settings, folder / DATA_FOLDER)


async def fetch_page(
    request: Request,
    settings: Settings,
    hop: RedirectCallback = lambda response, target: None,
    *,
    confined: bool = False,
    public: bool = False,
    folder: Path = Path(),
) -> Response:
    """Fetch one request with a new fetcher; see :func:`fetch_with_redirects`.

    :param confined: The request comes from a message, and may not name a proxy in a private network.
    :param public: Connect to public addresses only, unless the setting ``private`` allows others. The addresses that
        were judged are those that are used, so a name server that changes its answer gains nothing.
    :raises UsageError: the request names a proxy or a host that it may not.
    :raises ConfigError: the settings are not usable.
    :raises FetchError: a fetch failed.
    """
    if confined:
        from uttu.fetch.resolver import check_proxy

        try:
            await check_proxy(request, settings.proxy)
        except ValueError as error:
            raise UsageError(str(error)) from error
    fetcher = create_fetcher(settings, folder)
    try:
        if public and not settings.private:
            await _check_public(request.url)
            if isinstance(fetcher, ResolverAware):
                fetcher.use_resolver(_resolve_public)
        return await fetch_with_redirects(fetcher, request, settings, hop)
    except PrivateHost as error:
        raise UsageError(str(error)) from error
    finally:
        await fetcher.close()


async def _check_public(url: str) -> None:
    """Check the host of a URL. A name that does not resolve is left to the fetch, which reports it.

    :raises PrivateHost: it is in a private network.
    """
    with contextlib.suppress(OSError, UnicodeError, TimeoutError):
        async with asyncio.timeout(_LOOKUP_SECONDS):
            await _resolve_public(host_of(url), hostname_of(url))


async def _resolve_public(host: str, name: str) -> list[str]:
    """The addresses of a host, all of them public.

    :raises PrivateHost: one is not.
    :raises OSError: the name does not resolve.
    """
    # is_private_host also knows addresses that are written as one number (2130706433).
    found = [] if is_private_host(name) else await look_up_addresses(name)
    if not found or any(map(is_private_address, found)):
        raise PrivateHost(f"{name!r:.200} is in a private network. Fetch it in a terminal with: uttu fetch URL")
    return found


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
            hop(response, f"{location!r}, which is not a web address")
            return response
        if refused := scope.refuse(target.url, 0):
            hop(response, f"{target.url}, which a crawl from here would not follow: {refused}")
            return response
        if len(request.via) >= settings.max_redirects:
            hop(response, f"{target.url}: stopped after max_redirects={settings.max_redirects}")
            return response
        hop(response, target.url)
        request = target
