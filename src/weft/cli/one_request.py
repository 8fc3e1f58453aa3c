"""One request by hand, for ``fetch`` and ``shell``: from a URL or a curl command to a response."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence

import typer

from weft.config import Settings
from weft.errors import WeftError
from weft.fetch.base import Fetcher
from weft.model import Request, Response
from weft.model.url import canonical, host_of, hostname_of
from weft.policy import redirect
from weft.policy.scope import Scope, is_private_host

Hop = Callable[[Response, str], None]

_bare = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[\w-]+(?:\.[\w-]+)*\.?)(?::[0-9]+)?(?:[/?#].*)?").fullmatch


def url_of(text: str) -> str:
    """The canonical URL that a person means; the scheme may be left out.

    :raises ValueError: it is none of the web.
    """
    text = text.strip()
    try:
        if not _bare(text):
            return canonical(text)
        url = canonical("https://" + text)
        # Nobody has a certificate for a server on the own machine.
        return canonical("http://" + text) if is_private_host(hostname_of(url)) else url
    except ValueError:
        raise ValueError(f"{text!r} is no URL of the web; write it out, like https://example.org/") from None


def given_url(text: str) -> str:
    """The same for what stands on the command line: anything else ends the program as wrong usage."""
    try:
        return url_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def request_of(words: Sequence[str]) -> Request:
    """The request that a URL, or a curl command in one word or several, asks for.

    Anything else ends the program as wrong usage.
    """
    from weft.cli.curl import parse_curl

    command = words[0] if len(words) == 1 else shlex.join(words)
    if not re.match(r"curl(\s|$)", command.lstrip()):
        if len(words) != 1:
            raise typer.BadParameter(f"give one URL, or a curl command: {' '.join(words)!r:.80} is neither")
        return Request(url=given_url(command))
    try:
        return parse_curl(command)
    except (WeftError, ValueError) as error:
        raise typer.BadParameter(f"this curl command can't be read: {error}") from error


async def fetch_following(fetcher: Fetcher, request: Request, settings: Settings, hop: Hop) -> Response:
    """Fetch, and follow redirects as a crawl that starts there would.

    ``hop`` is told of each response that is not the last, and where it led.

    :raises FetchError: no response could be had.
    """
    scope = Scope(start_hosts=frozenset({host_of(request.url)}), private=settings.private)
    while True:
        response = await fetcher.fetch(request)
        location = response.headers.get("location")
        if response.status not in redirect.STATUSES or location is None:
            return response
        target = redirect.redirected(request, response.status, location, response.headers.get_all("set-cookie"))
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
