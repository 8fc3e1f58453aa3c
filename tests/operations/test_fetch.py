"""One request by hand follows what a crawl would follow."""

from __future__ import annotations

import pytest

from tests.crawl.servers import answering, asked, page
from tests.fetch.servers import response
from uttu.fetch.http import HttpFetcher
from uttu.model import Request, Response
from uttu.operations.fetch import fetch_with_redirects
from uttu.settings import Settings

HOPS = {
    "/": response(b"", "Location: /two", "Set-Cookie: a=1; Path=/three", "Set-Cookie: b=2", status="302 Found"),
    "/two": page(head='<meta http-equiv=refresh content="1; url=/three">', headers=("Set-Cookie: b=; Max-Age=0",)),
    "/three": page(),
}


@pytest.mark.parametrize("refresh", [True, False])
async def test_redirects_and_refreshes(refresh: bool) -> None:
    told: list[str] = []

    def hop(response: Response, where: str) -> None:
        told.append(where)

    async with answering(HOPS.__getitem__) as server:
        fetcher = HttpFetcher(user_agent="Test/1")
        settings = Settings(meta_refresh=refresh, private=True)
        last = await fetch_with_redirects(fetcher, Request.to(server.url), settings, hop)
        await fetcher.close()
        assert asked(server) == ["/", "/two", "/three"][: 2 + refresh]
        assert told == [server.url + "two", server.url + "three"][: 1 + refresh]
        assert last.request.cookies == ({"a": "1"} if refresh else {"b": "2"})
        assert (server.headers["cookie"]) == ("a=1" if refresh else "b=2")
