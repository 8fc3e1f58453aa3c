"""Make pages from text, to test handlers without a server."""

from __future__ import annotations

from typing import Any

from uttu.model import Headers, Request, Response
from uttu.spider import Page


def page_of(
    body: str | bytes = "",
    url: str = "http://example.org/",
    *,
    status: int = 200,
    content_type: str = "text/html; charset=utf-8",
    headers: dict[str, str] | None = None,
    **request: Any,
) -> Page:
    """A page as a handler gets it::

        items = list(my_handler(page_of("<h1>Hello</h1>", meta={"category": "books"})))

    :param request: fields of :class:`uttu.Request`.
    """
    pairs = {"Content-Type": content_type} | (headers or {})
    sent = Request.to(url, **request)
    return Page(
        Response(
            request=sent,
            url=sent.url,
            status=status,
            headers=Headers(pairs.items()),
            body=body.encode() if isinstance(body, str) else body,
        )
    )
