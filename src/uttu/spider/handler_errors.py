"""Errors of the user's functions: which exceptions they may raise, and how these are shown.

A traceback of a handler is shown without the frames of ``engine`` and ``spider`` around the user's code. Messages that
come from names of other tools (Scrapy, requests, BeautifulSoup) get a hint about what to write instead.
"""

from __future__ import annotations

import asyncio
import re
import traceback
from pathlib import Path
from typing import Final

_OWN_FOLDERS: Final = tuple(str(Path(__file__).parents[1] / room) for room in ("engine", "spider"))
# Exceptions of the user's functions that must not stop the crawl. This includes sys.exit(), and the cancellation of a
# future that belongs to the user.
USER_ERRORS: Final = (Exception, SystemExit, asyncio.CancelledError)
MAX_MESSAGE: Final = 10_000
# Python's own limit is 1,000; a handler may have raised it.
_MOST_FRAMES: Final = 1_100

_FOLLOW_ERROR: Final = re.compile(r"Page\.follow(?:_all)?\(\) takes .* positional arguments")
_KEYWORD_ERROR: Final = re.compile(r"Unexpected keyword argument '(\w+)'")
_KEYWORD_HINTS: Final = {
    "callback": "write to=HANDLER in page.follow(…), handler='NAME' in Request(…)",
    "errback": "write @spider.on_error above a function",
    "cb_kwargs": "write meta={…}",
    "dont_filter": "write salt=, with a different text each time",
    "formdata": "write method='POST' and body=urllib.parse.urlencode(…)",
    "data": "write method='POST' and body=urllib.parse.urlencode(…)",
    "json": "write method='POST', body=json.dumps(…) and headers={'Content-Type': 'application/json'}",
    "params": "write them into the URL",
    "timeout": "it is a setting of the crawl",
    "encoding": "it is detected automatically",
    "css": "pass the selector by position: page.follow_all('li a')",
    "xpath": "pass a selection: page.follow_all(page.xpath(…))",
    "restrict_css": "pass the selector: page.follow_all('nav a')",
    "allow": "write page.follow_all(page.links(allow=…))",
    "deny": "write page.follow_all(page.links(deny=…))",
}
_ATTRIBUTE_HINTS: Final = {
    "extract": "write .getall()",
    "extract_first": "write .get()",
    "selector": "write page.css(…) or page.xpath(…)",
    "body_as_unicode": "write page.text",
    "content": "write page.body",
    "status_code": "write page.status",
    "select": "write .css(…)",
    "select_one": "write .css(…).get()",
    "find": "write .css(…)",
    "find_all": "write .css(…)",
    "get_text": "write .text",
    "attrs": "write .attrib",
    "cb_kwargs": "write page.meta",
    "attr": "write .attrib['NAME'], or select ::attr(NAME)",
    "attributes": "write .attrib",
    "string": "write .text",
    "strings": "select ::text",
    "stripped_strings": "select ::text",
    "text_content": "write .text",
    "inner_text": "write .text",
    "html": "write page.text, or .get() of an element",
    "soup": "write page.css(…) or page.xpath(…)",
    "css_first": "write .css(…)[0], or .css(…).get() for its HTML",
    "first": "write [0] or .get()",
    "title": "write page.css('title::text').get()",
    "raise_for_status": "handlers only get pages with a status of 2xx; errors go to @spider.on_error",
    "ok": "handlers only get pages with a status of 2xx; errors go to @spider.on_error",
    "cookies": "cookies are sent back automatically; page.headers.get_all('set-cookie') has those of this page",
    "url_join": "write page.urljoin(…)",
    "follow_link": "write page.follow(…)",
    "css": "write page.css(…) in a handler",
    "xpath": "write page.xpath(…) in a handler",
    "text": "write page.text in a handler",
}


def reraise_own_cancel(error: BaseException) -> None:
    """Raise ``error`` again if it is the cancellation of the current task, and not an error of the user's function."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error


def format_frames(error: BaseException) -> str:
    """The traceback of ``error``: the lines of the user's code and of the libraries that it called."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__, _MOST_FRAMES)
        if not frame.filename.startswith(_OWN_FOLDERS)
    ]
    return replace_surrogates("".join(traceback.format_list(frames)))


def format_message(error: BaseException) -> str:
    """The type and text of ``error``, with a hint if it comes from a name of another tool.

    A text of more than ``MAX_MESSAGE`` characters is cut.
    """
    try:
        text = str(error)
    except Exception:  # its __str__ fails
        text = ""
    if len(text) > MAX_MESSAGE:
        return replace_surrogates(f"{type(error).__name__}: {text[:MAX_MESSAGE]}… ({len(text):,} characters)")
    message = replace_surrogates("".join(traceback.format_exception_only(error)).strip()) or type(error).__name__
    hint = _find_hint(error)
    return f"{message} ({hint})" if hint and "\n" not in message else message


def _find_hint(error: BaseException) -> str:
    """Advice about a name that other crawlers use: what to write here. Empty if the name is not known."""
    if isinstance(error, TypeError):
        text = str(error)
        if text == "Extra positional arguments provided":
            return "pass only the URL by position: Request(url, handler=…), or page.follow(url=…)"
        if text == "Encoding objects of type function is unsupported":
            return "pass handlers by name: handler='NAME', or page.follow(…, to=HANDLER)"
        if _FOLLOW_ERROR.match(text):
            return "write to=HANDLER"
        if match := _KEYWORD_ERROR.fullmatch(text):
            return _KEYWORD_HINTS.get(match[1], "")
    if isinstance(error, AttributeError) and error.name is not None:
        type_name = type(error.obj).__name__
        return (
            _ATTRIBUTE_HINTS.get(error.name, "")
            if type_name in ("Page", "Response") or "Selection" in _get_base_names(error.obj)
            else ""
        )
    return ""


def _get_base_names(value: object) -> set[str]:
    return {each.__name__ for each in type(value).__mro__}


def format_line(error: BaseException) -> str:
    """``format_message`` in one line: its first line, or for a syntax error its last, after the quoted code."""
    return format_message(error).splitlines()[-1 if isinstance(error, SyntaxError) else 0]


def replace_surrogates(text: str) -> str:
    """``text`` with ``?`` for lone surrogates, which no store accepts."""
    return text.encode("utf-8", "replace").decode()
