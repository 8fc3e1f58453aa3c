"""The rules of sites, and what is known of those that can't be had."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from uttu.engine import robots as engine_robots
from uttu.engine import throttled_hosts
from uttu.engine.link_filter import LinkFilter
from uttu.engine.robots import RobotsCache, RobotsUnavailable
from uttu.errors import FetchError
from uttu.fetch import resolver
from uttu.fetch.resolver import GuardedResolver
from uttu.frontier.base import Memo
from uttu.frontier.sqlite import Database
from uttu.frontier.sqlite.outbox import SqliteMemo
from uttu.model import Headers, Pace, Request, Response
from uttu.policy import robots
from uttu.policy.scope import Scope
from uttu.policy.traps import Traps
from uttu.testing.clock import FakeClock

ORIGIN = "http://example.org"
PACE = Pace(0.5, 1)


class Host:
    """Answers with these statuses, the last one from then on."""

    def __init__(self, *statuses: int) -> None:
        self._statuses = list(statuses)
        self.asked = 0
        self.held: list[tuple[str, float]] = []

    async def fetch(self, request: Request, *, first: int | None = None) -> Response:
        self.asked += 1
        await asyncio.sleep(0)  # so that others can ask meanwhile
        status = self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]
        return Response(request=request, url=request.url, status=status, headers=Headers(), body=b"")

    async def close(self) -> None:
        pass

    async def hold(self, lane: str, seconds: float, reason: str) -> None:
        self.held.append((lane, seconds))


class Moved(Host):
    """Its robots.txt is elsewhere, and forbids everything."""

    def __init__(self, target: str) -> None:
        super().__init__(301)
        self._target = target
        self.urls: list[str] = []

    async def fetch(self, request: Request, *, first: int | None = None) -> Response:
        self.urls.append(request.url)
        moved = request.url != self._target
        return Response(
            request=request,
            url=request.url,
            status=301 if moved else 200,
            headers=Headers([("Location", self._target)] if moved else []),
            body=b"" if moved else b"User-agent: *\nDisallow: /",
        )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def memo(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Memo]:
    database = Database.open(tmp_path / "crawl.db")
    yield SqliteMemo(database, clock)
    database.close()


def keeper(host: Host, memo: Memo, clock: FakeClock, private_names: GuardedResolver | None = None) -> RobotsCache:
    """That of one worker."""
    link_filter = LinkFilter(Scope(), Traps(datetime.date(2026, 1, 1)))
    return RobotsCache(
        fetcher=host,
        link_filter=link_filter,
        names=private_names,
        memo=memo,
        user_agent="Uttu",
        pace=PACE,
        hold=host.hold,
        clock=clock,
    )


async def refused(keeper: RobotsCache) -> RobotsUnavailable:
    with pytest.raises(RobotsUnavailable) as caught:
        await keeper.learn(ORIGIN)
    return caught.value


async def test_the_tries_are_counted_over_all_workers(memo: Memo, clock: FakeClock) -> None:
    host = Host(501)
    workers = [keeper(host, memo, clock) for _ in range(2)]
    holds = []
    for number in range(3):
        unavailable = await refused(workers[number % 2])
        assert unavailable.verdict.retry
        holds.append(unavailable.verdict.hold)
        clock.advance(unavailable.verdict.hold)
    assert all(low <= hold <= 2 * low for hold, low in zip(holds, (0.5, 1.0, 2.0), strict=True))
    last = await refused(workers[1])
    assert (str(last), last.kind) == ("robots.txt was answered with 501 (4 tries)", "http")
    assert (last.verdict.retry, last.verdict.hold) == (False, 0.0)
    assert host.asked == 4


async def test_a_site_that_was_given_up_is_not_asked_for_a_while(memo: Memo, clock: FakeClock) -> None:
    host = Host(501, 501, 501, 501, 200)
    workers = [keeper(host, memo, clock) for _ in range(2)]
    while (unavailable := await refused(workers[0])).verdict.retry:
        clock.advance(unavailable.verdict.hold)
    for worker in workers:
        again = await refused(worker)
        assert (str(again), again.verdict.retry, again.touched) == (str(unavailable), False, None)
    assert host.asked == 4
    clock.advance(robots.AWAY_SECONDS)
    await workers[0].learn(ORIGIN)
    assert (await workers[1].learn(ORIGIN))[1] is None, "known from the store"
    assert host.asked == 5


async def test_a_site_that_was_given_up_is_asked_for_pages_that_are_put_back(memo: Memo, clock: FakeClock) -> None:
    host = Host(501, 501, 501, 501, 501, 200)
    workers = [keeper(host, memo, clock) for _ in range(2)]
    while (unavailable := await refused(workers[0])).verdict.retry:
        clock.advance(unavailable.verdict.hold)
    await refused(workers[1])
    await throttled_hosts.write_retry_token(memo)
    again = await refused(workers[0])
    assert (again.verdict.retry, host.asked) == (True, 5), "with all of its tries"
    clock.advance(again.verdict.hold)
    await workers[1].learn(ORIGIN)
    assert host.asked == 6


async def test_of_pages_that_are_out_together_one_asks_for_all(memo: Memo, clock: FakeClock) -> None:
    host = Host(501, 200)
    worker = keeper(host, memo, clock)
    found = await asyncio.gather(*(refused(worker) for _ in range(5)))
    assert host.asked == 1
    assert [each.touched is None for each in found] == [False, True, True, True, True]
    assert [each.verdict.hold for each in found] == pytest.approx([found[0].verdict.hold] * 5)
    clock.advance(found[0].verdict.hold)
    assert (await worker.learn(ORIGIN))[1] is not None
    assert host.asked == 2


async def test_a_proxy_that_does_not_work_closes_no_site(memo: Memo, clock: FakeClock) -> None:
    class Proxied(Host):
        async def fetch(self, request: Request, *, first: int | None = None) -> Response:
            if request.proxy:
                raise FetchError("no such proxy")
            return await super().fetch(request, first=first)

    worker = keeper(Proxied(200), memo, clock)
    with pytest.raises(RobotsUnavailable, match="no such proxy") as caught:
        await worker.learn(ORIGIN, "http://nowhere.example")
    assert not caught.value.verdict.retry
    assert (await worker.learn(ORIGIN))[1] is not None


@pytest.mark.parametrize(
    ("target", "followed"),
    [
        ("http://public.example/robots.txt", True),
        ("http://router.example/robots.txt", False),
        ("http://192.168.0.1/robots.txt", False),
    ],
)
async def test_a_redirect_into_a_private_network_is_not_followed(
    memo: Memo, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, target: str, followed: bool
) -> None:
    async def addresses(name: str) -> list[str]:
        return ["192.168.0.1" if name == "router.example" else "93.184.215.14"]

    monkeypatch.setattr(resolver, "look_up_addresses", addresses)
    host = Moved(target)
    worker = keeper(host, memo, clock, GuardedResolver(frozenset(), memo, clock))
    rules, _ = await worker.learn(ORIGIN)
    assert host.urls == [ORIGIN + "/robots.txt", target][: 1 + followed]
    assert worker.allows(rules, ORIGIN + "/page") is not followed


async def test_a_file_that_moved_to_another_host_is_its_robots_too(memo: Memo, clock: FakeClock) -> None:
    host = Moved("http://www.example.org/robots.txt")
    await keeper(host, memo, clock).learn(ORIGIN)
    assert host.held == [("www.example.org", PACE.delay)]
    another = keeper(host, memo, clock)
    rules, asked = await another.learn("http://www.example.org")
    assert not another.allows(rules, "http://www.example.org/page")
    assert asked is None
    assert len(host.urls) == 2


async def test_a_host_whose_rules_are_known_is_not_asked_for_those_of_another(memo: Memo, clock: FakeClock) -> None:
    host = Moved("http://www.example.org/robots.txt")
    worker = keeper(host, memo, clock)
    await worker.learn("http://www.example.org")
    rules, asked = await worker.learn(ORIGIN)
    assert not worker.allows(rules, ORIGIN + "/page")
    assert asked is not None
    assert host.urls == ["http://www.example.org/robots.txt", ORIGIN + "/robots.txt"]
    assert not host.held


async def test_another_file_of_another_host_is_not_its_robots(memo: Memo, clock: FakeClock) -> None:
    host = Moved("http://files.example/rules.txt")
    rules, _ = await keeper(host, memo, clock).learn(ORIGIN)
    assert not keeper(host, memo, clock).allows(rules, ORIGIN + "/page")
    assert host.held == [("files.example", PACE.delay)]
    assert await memo.recall("robots http://files.example") is None


async def test_a_private_host_that_is_crawled_may_lead_to_itself(memo: Memo, clock: FakeClock) -> None:
    host = Moved("http://192.168.0.1/rules.txt")
    worker = keeper(host, memo, clock)
    rules, _ = await worker.learn("http://192.168.0.1")
    assert not worker.allows(rules, "http://192.168.0.1/page")


class Large(Host):
    """A robots.txt of many rules."""

    async def fetch(self, request: Request, *, first: int | None = None) -> Response:
        body = b"User-agent: *\n" + b"".join(b"Disallow: /%d\n" % number for number in range(20_000))
        return Response(request=request, url=request.url, status=200, headers=Headers(), body=body)


async def test_the_memory_for_rules_is_bounded(memo: Memo, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_robots, "_MOST_BYTES", 20_000_000)
    worker = keeper(Large(200), memo, clock)
    for number in range(6):
        rules, _ = await worker.learn(f"http://{number}.example")
        assert not worker.allows(rules, f"http://{number}.example/77")
    kept = [number for number in range(6) if worker.known(f"http://{number}.example")]
    assert kept in ([4, 5], [3, 4, 5])
    assert worker._bytes == sum(rules.weight for rules, _ in worker._known.values()) <= 20_000_000
    rules, touched = await worker.learn("http://0.example")
    assert touched is None, "from the store"
    assert not worker.allows(rules, "http://0.example/77")


@pytest.mark.parametrize(
    ("delay", "refused", "pace"),
    [
        ("2", None, Pace(2.0, 1)),
        ("300", None, Pace(300.0, 1)),
        ("301", "robots.txt asks for 5 minutes between two requests, more than max_crawl_delay=300", PACE),
        ("inf", "robots.txt asks for an endless time between two requests, more than max_crawl_delay=300", PACE),
    ],
)
async def test_crawl_delays(memo: Memo, clock: FakeClock, delay: str, refused: str | None, pace: Pace) -> None:
    worker = keeper(Host(200), memo, clock)
    rules = robots.parse(f"User-agent: *\nCrawl-delay: {delay}\n".encode())
    assert worker.refuse(rules, ORIGIN + "/page") == refused
    assert worker.pace(rules) == pace
