"""What users' functions give, sorted; and what they raise, in words."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from uttu import Page, Request
from uttu.engine.handler_output import collect, describe_error
from uttu.testing.pages import page_of


async def generator() -> AsyncIterator[Any]:
    yield {"n": 1}
    yield None
    yield [Request.to("http://example.org/a"), None, [{"n": 2}]]


def plain_generator() -> Iterator[Any]:
    yield {"n": 1}
    yield (Request.to("http://example.org/a"),)
    yield ({"n": n} for n in (2,))


async def coroutine() -> Any:
    return [{"n": 1}, Request.to("http://example.org/a"), {"n": 2}]


def function() -> Any:
    return {"n": 1}, Request.to("http://example.org/a"), {"n": 2}


@pytest.mark.parametrize("handler", [generator, plain_generator, coroutine, function])
async def test_handlers_of_every_kind(handler: Any) -> None:
    assert await collect(handler()) == ([Request.to("http://example.org/a")], [b'{"n":1}', b'{"n":2}'])


async def test_handlers_may_give_nothing() -> None:
    assert await collect(None) == ([], [])


async def test_handlers_that_give_something_else() -> None:
    with pytest.raises(TypeError, match=r"yielded 'http://example.org/', a str; .* page.follow"):
        await collect("http://example.org/")


async def test_links_stay_together() -> None:
    """They become requests when it is known which of them are new."""
    page = page_of('<a href="/1">1</a> <a href="/2">2</a>')
    links = page.follow_all("a")
    assert await collect(link for link in [links, {"n": 1}]) == ([links], [b'{"n":1}'])
    assert await collect([links]) == ([links], [])


async def raised_by(handler: Callable[[Page], Any]) -> tuple[str, str]:
    with pytest.raises(BaseException) as raised:  # noqa: PT011 (whatever it is)
        await collect(handler(page_of("no json")))
    return describe_error(raised.value)


async def test_an_error_is_shown_by_the_lines_of_the_user_and_what_they_called() -> None:
    def helper(page: Page) -> Any:
        return json.loads(page.text)

    def handler(page: Page) -> Iterator[Any]:
        yield helper(page)

    line, text = await raised_by(handler)
    assert line == "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
    first, *frames, last = text.splitlines()
    assert (first, last) == ("Traceback (most recent call last):", line)
    assert [frame.partition(", in ")[2] for frame in frames if ", in " in frame] == [
        "raised_by",
        "handler",
        "helper",
        "loads",
        "decode",
        "raw_decode",
    ]
    assert "yield helper(page)" in text
    assert "handling.py" not in text.replace(__file__, "")


@pytest.mark.parametrize(
    ("error", "line", "ending"),
    [
        (ValueError(), "ValueError", "\nValueError"),
        (SystemExit(3), "SystemExit: 3", "\nSystemExit: 3"),
        (ValueError("first\nlast"), "ValueError: first", "\nValueError: first\nlast"),
        (SyntaxError("odd", ("f.py", 3, 1, "x = (")), "SyntaxError: odd", "\nSyntaxError: odd"),
        (ValueError("lone \udcff"), "ValueError: lone ?", "\nValueError: lone ?"),
    ],
)
async def test_an_error_in_one_line(error: BaseException, line: str, ending: str) -> None:
    def handler(page: Page) -> None:
        raise error

    told, text = await raised_by(handler)
    assert told == line
    assert text.endswith(ending)
    assert text.encode().decode() == text, "any store takes it"


def test_a_long_message_is_cut() -> None:
    reason, detail = describe_error(ValueError("x" * 50_000_000))
    assert reason.startswith("ValueError: xxx")
    assert reason.endswith("… (50,000,000 characters)")
    assert len(detail) < 11_000


def test_a_message_that_can_not_be_had() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert "Silent" in describe_error(Silent())[0]
