"""What one page may give is bounded, and whatever gives much gives way to others."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from uttu import Request
from uttu.engine.handler_output import OutputBounds, TooMuchOutput, collect
from uttu.engine.handler_steps import HandlerRun, HandlerTimeout, StepTracker
from uttu.model import Lease, Links
from uttu.model.url import Joiner

BOUNDS = OutputBounds(max_links_per_page=100, max_items_per_page=100, max_item_size=1000, max_items_size_per_page=5000)


def items() -> Iterator[Any]:
    for number in itertools.count():
        yield {"n": number}


async def items_async() -> AsyncIterator[Any]:
    for item in items():
        yield item


def in_one_list() -> Any:
    return [{"n": 1}] * 1_000_000


def in_a_generator() -> Iterator[Any]:
    yield items()


async def awaited() -> Any:
    return items()


def requests() -> Iterator[Any]:
    for number in itertools.count():
        yield Request(url=f"http://example.org/{number}")


def large() -> Iterator[Any]:
    yield {"text": "x" * 1000}


def many_bytes() -> Iterator[Any]:
    for _ in range(10):
        yield {"text": "x" * 900}


JOINER = Joiner("http://example.org/")


def links_one_by_one() -> Iterator[Any]:
    for number in itertools.count():
        yield Links([f"/{number}"], JOINER, {})


def links_in_lists() -> Iterator[Any]:
    while True:
        yield [Links(["/a"] * 50_000, JOINER, {})]


def shared_text() -> Iterator[Any]:
    """A small object in memory, and 10^12 characters as JSON."""
    text: Any = "x" * 1000
    for _ in range(9):
        text = [text] * 10
    yield {"text": text}


def requests_with_meta() -> Iterator[Any]:
    for number in range(50):
        yield Request(url=f"http://example.org/{number}", meta={"text": "x" * 2_000_000})


def requests_with_bodies() -> Iterator[Any]:
    return (Request(url="http://example.org/", method="POST", body=b"x" * 2_000_000) for _ in range(50))


def links_with_meta() -> Iterator[Any]:
    yield Links(["/a"] * 1000, JOINER, {"meta": {"text": "x" * 2_000_000}})


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (links_one_by_one, "yielded more requests than max_links_per_page=100"),
        (links_in_lists, "yielded more than 1,000,000 links"),
        (shared_text, "yielded an item of more than 1,000 bytes; max_item_size=1000"),
        (requests_with_meta, "more than 67,108,864 bytes of meta and bodies"),
        (requests_with_bodies, "more than 67,108,864 bytes of meta and bodies"),
        (links_with_meta, "more than 67,108,864 bytes of meta and bodies"),
        (items, "yielded more items than max_items_per_page=100"),
        (items_async, "yielded more items than max_items_per_page=100"),
        (in_one_list, "yielded more items than max_items_per_page=100"),
        (in_a_generator, "yielded more items than max_items_per_page=100"),
        (awaited, "yielded more items than max_items_per_page=100"),
        (requests, "yielded more requests than max_links_per_page=100"),
        (large, "yielded an item of more than 1,000 bytes; max_item_size=1000"),
        (many_bytes, "yielded items of 5,466 bytes; max_items_size_per_page=5000"),
    ],
)
async def test_a_page_gives_no_more_than_it_may(handler: Callable[[], Any], reason: str) -> None:
    with pytest.raises(TooMuchOutput, match=reason):
        await collect(handler(), None, BOUNDS)


async def test_a_page_may_give_as_much_as_it_may() -> None:
    found, stored = await collect([*itertools.islice(items(), 100), *itertools.islice(requests(), 100)], None, BOUNDS)
    assert (len(found), len(stored)) == (100, 100)


async def test_zero_is_no_limit() -> None:
    unbounded = OutputBounds(max_links_per_page=0, max_items_per_page=0, max_item_size=0, max_items_size_per_page=0)
    found, stored = await collect(
        [*itertools.islice(items(), 500), *itertools.islice(requests(), 500), *large()], None, unbounded
    )
    assert (len(found), len(stored)) == (500, 501)


def lease() -> Lease:
    request = Request(url="http://example.org/")
    return Lease(id=1, fingerprint=1, lane="example.org", request=request, attempt=1, wait=0, deadline=0)


def slow() -> Iterator[Any]:
    for number in range(60):
        time.sleep(0.02)
        yield {"n": number}


async def slow_async() -> AsyncIterator[Any]:
    for item in slow():
        yield item


@pytest.mark.parametrize("handler", [slow, slow_async])
async def test_others_have_their_turns_meanwhile(handler: Callable[[], Any]) -> None:
    gaps: list[float] = []

    async def beat() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - began)

    beating = asyncio.create_task(beat())
    await asyncio.sleep(0)
    began = time.monotonic()
    with HandlerRun(StepTracker(), lease(), 0) as run:
        _, stored = await collect(handler(), run)
    beating.cancel()
    assert len(stored) == 60
    assert len(gaps) > 2
    # Without turns, one gap takes all of the time.
    assert max(gaps) < 0.6 * (time.monotonic() - began)


async def test_while_a_handler_waits_it_does_not_run() -> None:
    """Only of a page whose step runs it is said so: the watchdog must not interrupt others."""
    steps = StepTracker()
    seen = []

    async def handler() -> None:
        seen.append(steps.running)
        await asyncio.sleep(0.01)
        seen.append(steps.running)

    async def look() -> None:
        seen.append(steps.running)

    with HandlerRun(steps, lease(), 0) as run:
        looking = asyncio.create_task(look())
        await run.drive(handler())
        await looking
    assert seen == [lease(), None, lease()]
    assert steps.running is None


async def test_a_handler_that_hangs_is_cancelled() -> None:
    ended = []

    async def handler() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(0.01)  # it may clean up
            ended.append(True)

    late = pytest.raises(HandlerTimeout, match=r"took longer than handler_timeout=0.05 s")
    with late, HandlerRun(StepTracker(), lease(), 0.05) as run:
        await run.drive(handler())
    assert ended == [True]
    await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_a_handler_that_swallows_its_cancellation_is_closed() -> None:
    over = False

    async def handler() -> None:
        while not over:  # or it would go on when it is collected, after the loop has ended
            with contextlib.suppress(BaseException):
                await asyncio.sleep(1000)

    began = time.monotonic()
    with pytest.raises(HandlerTimeout), HandlerRun(StepTracker(), lease(), 0.05) as run:
        await run.drive(handler())
    assert time.monotonic() - began < 5
    over = True


class Awkward:
    """An awaitable without a generator's methods."""

    def __init__(self) -> None:
        self._left = 3

    def __await__(self) -> Awkward:
        return self

    def __iter__(self) -> Awkward:
        return self

    def __next__(self) -> None:
        self._left -= 1
        if not self._left:
            raise StopIteration("value")


async def test_an_awaitable_of_any_kind() -> None:
    with HandlerRun(StepTracker(), lease(), 1) as run:
        assert await run.drive(Awkward()) == "value"  # type: ignore[arg-type]
