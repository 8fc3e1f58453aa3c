"""Servers that are killed, stopped and restarted while a store and a bus are at work on them.

``python -m tests.harness.nemesis.server_kills``: for each kind of server and each seed, many tasks call every method of
the store and the bus, without a pause, while the servers fail at random: kill -9 and restart, a short SIGSTOP, all
connections cut. Three things must hold:

- What a call raises is an error of ours. Anything else is an error of a driver that nobody mapped: *escaped*.
- No task that the calls left behind, and no thread, ends with an exception: *unseen*.
- When the servers are well again, everything works within a minute, nothing admitted is lost, and what was confirmed
  has been delivered.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

import uvloop

from tests.harness.servers import KafkaServer, RabbitServer, RedisCluster, RedisSentinel, RedisServer
from tests.harness.servers.base import Life, Server
from uttu.bus.base import Bus, Delivery, Message, SubscribeOptions
from uttu.errors import BusError, UttuError
from uttu.frontier.base import Cursor, Rules
from uttu.frontier.catalog import CrawlStore
from uttu.model import Done, Pace, Request
from uttu.model.inspection import DeadQuery, LaneQuery

_EASY: Final = Rules(pace=Pace(0.0, 0), lease_seconds=5.0)
_CRAWLS: Final = 6
_HEALED_SECONDS: Final = 60.0
_REST: Final = (0.02, 0.6)  # seconds between two harms
_PAUSED: Final = (0.05, 1.5)  # how long a server stands still
KINDS: Final = ("redis", "valkey", "cluster", "sentinel", "rabbitmq", "kafka")


class Findings:
    """What should not have happened, with the last frames of where it did."""

    def __init__(self) -> None:
        self.escaped: Counter[str] = Counter()
        self.unseen: Counter[str] = Counter()
        self.mapped: Counter[str] = Counter()
        self.calls = 0
        self.harms: Counter[str] = Counter()
        self.wrong: list[str] = []

    @property
    def clean(self) -> bool:
        return not (self.escaped or self.unseen or self.wrong)

    async def watch(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """The result of a call, or None if it failed in a way that we know."""
        self.calls += 1
        try:
            return await call()
        except UttuError as error:
            self.mapped[type(error).__name__] += 1
            await asyncio.sleep(0.01)
        except Exception as error:
            self.escaped[place_of(error)] += 1
            await asyncio.sleep(0.01)
        return None

    def unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """For the event loop: a task's exception that nobody asked for."""
        error = context.get("exception")
        # A driver's own leftover; nobody waits for it, and nothing is lost by it.
        if isinstance(error, Exception) and not isinstance(error, OSError):
            self.unseen[f"{context['message']}: {place_of(error)}"] += 1

    def ended(self, args: threading.ExceptHookArgs) -> None:
        """For threads."""
        if args.exc_value is not None:
            self.unseen[f"thread {args.thread and args.thread.name}: {place_of(args.exc_value)}"] += 1


def place_of(error: BaseException) -> str:
    """The exception, and the last frames of its traceback."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    where = " < ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    return f"{type(error).__name__}: {str(error)[:100]} at {where}"


class Harm:
    """Hurts the servers of one kind until it is told to heal them."""

    def __init__(self, servers: Sequence[Server], findings: Findings, seed: int) -> None:
        self._servers = servers
        self._findings = findings
        self._random = random.Random(seed)

    async def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            server = self._random.choice(self._servers)
            ways = [self._kill, self._kill, self._pause, self._stop]
            if isinstance(server, RedisServer):
                ways += [self._cut, self._cut, self._cut]
            way = self._random.choice(ways)
            self._findings.harms[way.__name__.strip("_")] += 1
            await way(server)
            await asyncio.sleep(self._random.uniform(*_REST))

    async def _kill(self, server: Server) -> None:
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(self._random.uniform(*_REST))
        await asyncio.to_thread(server.restart)

    async def _stop(self, server: Server) -> None:
        await asyncio.to_thread(server.restart)

    async def _pause(self, server: Server) -> None:
        server.pause()
        try:
            await asyncio.sleep(self._random.uniform(*_PAUSED))
        finally:
            server.resume()

    async def _cut(self, server: Server) -> None:
        assert isinstance(server, RedisServer)
        with contextlib.suppress(OSError):
            await asyncio.to_thread(server.ask, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


class StoreLoad:
    """Everything that a store offers, on several crawls at once."""

    def __init__(self, stores: Sequence[CrawlStore], findings: Findings) -> None:
        self._stores = stores
        self._findings = findings
        self._admitted = [0 for _ in stores]
        self._stopping = False

    async def run(self) -> None:
        workers = (self._crawl, self._look, self._write)
        await asyncio.gather(*(work(number) for number in range(len(self._stores)) for work in workers))

    def stop(self) -> None:
        self._stopping = True

    async def check(self) -> None:
        """Finish the crawls; every request that was admitted is done."""
        for number, store in enumerate(self._stores):
            deadline = time.monotonic() + _HEALED_SECONDS
            while not (counts := await store.frontier.counts()).finished and time.monotonic() < deadline:
                leases = await store.frontier.lease(50, "last")
                await store.frontier.settle([Done(lease=lease, items=(b"1",)) for lease in leases])
                if not leases:
                    await asyncio.sleep(0.1)
            items = sum([1 async for _ in _all_items(store)])
            if (counts.done, counts.items, items) != (self._admitted[number],) * 3:
                self._findings.wrong.append(
                    f"crawl {number}: {self._admitted[number]} admitted, {items} items, {counts}"
                )

    async def _crawl(self, number: int) -> None:
        store, watch, numbers = self._stores[number], self._findings.watch, itertools.count()
        while not self._stopping:
            pages = [Request.to(f"https://a.example/{number}/{next(numbers)}") for _ in range(5)]
            await self._admit(number, pages)
            leases = await watch(lambda: store.frontier.lease(10, "w")) or []
            await watch(lambda leases=leases: store.frontier.extend(leases))  # type: ignore[misc]
            outcomes = [Done(lease=lease, items=(b"1",), status=200) for lease in leases]
            await watch(lambda outcomes=outcomes: store.frontier.settle(outcomes))  # type: ignore[misc]

    async def _admit(self, number: int, pages: list[Request]) -> None:
        """Until it is known that they are in: a call that failed may have admitted them, or not."""
        while await self._findings.watch(lambda: self._stores[number].frontier.put(pages)) is None:
            pass
        self._admitted[number] += len(pages)

    async def _look(self, number: int) -> None:
        store, watch = self._stores[number], self._findings.watch
        looks: tuple[Callable[[], Awaitable[Any]], ...] = (
            store.frontier.counts,
            store.ledger.facts,
            store.ledger.reports,
            store.ledger.claimed,
            lambda: store.outbox.items(0, 20),
            lambda: store.outbox.cursor("x"),
            lambda: store.inspector.lanes(LaneQuery(limit=5)),
            lambda: store.inspector.dead(DeadQuery(limit=5)),
            store.inspector.dead_groups,
            lambda: store.memo.recall("k"),
            lambda: store.inspector.trace(1),
        )
        while not self._stopping:
            for look in looks:
                await watch(look)

    async def _write(self, number: int) -> None:
        store, watch = self._stores[number], self._findings.watch
        writes: tuple[Callable[[], Awaitable[Any]], ...] = (
            lambda: store.ledger.note(spider="b"),
            lambda: store.ledger.report("w", b"{}"),
            lambda: store.ledger.claim("drain x", "me", 5.0),
            lambda: store.outbox.advance("x", Cursor(1, b"s"), "me"),
            lambda: store.memo.remember("k", b"v", 60.0),
            lambda: store.frontier.hold("b.example", 0.1, "why"),
            lambda: store.ledger.release("drain x", "me"),
        )
        while not self._stopping:
            for write in writes:
                await watch(write)


class BusLoad:
    """A publisher, two subscribers of a group, one without a group, and someone who looks."""

    def __init__(self, buses: Sequence[Bus], findings: Findings) -> None:
        self._publisher, self._subscriber = buses
        self._findings = findings
        self._word = f"n{random.randrange(1 << 40):x}"
        self._confirmed: set[str] = set()
        self._arrived: set[str] = set()
        self._stopping = False

    async def open(self) -> None:
        for bus in (self._publisher, self._subscriber):
            await bus.subscribe(
                SubscribeOptions(topics=(f"{self._word}.t",), group=f"{self._word}.g", attempts=1000), self._take
            )
        await self._subscriber.subscribe(SubscribeOptions(topics=(f"{self._word}.t",)), self._ignore)

    async def run(self) -> None:
        await asyncio.gather(self._publish(), self._publish(), self._look())

    def stop(self) -> None:
        self._stopping = True

    async def check(self) -> None:
        deadline = time.monotonic() + _HEALED_SECONDS
        while missing := self._confirmed - self._arrived:
            if time.monotonic() > deadline:
                self._findings.wrong.append(f"{len(missing)} of {len(self._confirmed)} confirmed messages never came")
                return
            await asyncio.sleep(0.1)

    async def _take(self, deliveries: list[Delivery]) -> None:
        self._arrived |= {delivery.id for delivery in deliveries}

    async def _ignore(self, deliveries: list[Delivery]) -> None:
        pass

    async def _publish(self) -> None:
        while not self._stopping:
            ids = [f"{random.randrange(1 << 60):x}" for _ in range(20)]
            messages = [Message(topic=f"{self._word}.t", payload=b"x" * 100, id=each) for each in ids]

            async def publish(messages: list[Message] = messages) -> bool:
                await self._publisher.publish(messages)
                return True

            if await self._findings.watch(publish):
                self._confirmed.update(ids)
            await asyncio.sleep(0.005)

    async def _look(self) -> None:
        group = f"{self._word}.g"
        while not self._stopping:
            await self._findings.watch(lambda: self._subscriber.groups(group))
            await self._findings.watch(lambda: self._subscriber.peek(group, 3))
            await asyncio.sleep(0.02)


def made(kind: str) -> Life:
    """The servers of a kind; they keep on disk what they confirm."""
    match kind:
        case "redis":
            return RedisServer(appendonly=True)
        case "valkey":
            return RedisServer("valkey", appendonly=True)
        case "cluster":
            return RedisCluster(appendonly=True, node_timeout_ms=1_000)
        case "sentinel":
            return RedisSentinel(appendonly=True, replicas=1, down_after_ms=60_000)
        case "rabbitmq":
            return RabbitServer()
        case "kafka":
            return KafkaServer()
    raise ValueError(kind)


def victims(servers: Life) -> Sequence[Server]:
    match servers:
        case RedisCluster():
            return servers.nodes
        case RedisSentinel():
            return (*servers.servers, *servers.sentinels)
        case Server():
            return (servers,)
    raise TypeError(servers)


@contextlib.asynccontextmanager
async def load_on(servers: Life, findings: Findings) -> AsyncIterator[list[StoreLoad | BusLoad]]:
    """Who works with these servers; connected, and closed in the end."""
    url: str = servers.url  # type: ignore[attr-defined]
    loads: list[StoreLoad | BusLoad] = []
    async with contextlib.AsyncExitStack() as stack:
        if url.startswith("redis"):
            from uttu.bus.redis.bus import RedisBus
            from uttu.frontier.redis.catalog import RedisCatalog

            url += ("&" if "?" in url else "?") + "socket_timeout=2"
            catalog = await RedisCatalog.connect(url)
            stack.push_async_callback(catalog.close)
            stores = [await catalog.create(f"crawl-{number}", _EASY) for number in range(_CRAWLS)]
            loads.append(StoreLoad(stores, findings))
            buses: list[Bus] = [await RedisBus.connect(url), await RedisBus.connect(url)]
        elif url.startswith("amqp"):
            from uttu.bus.rabbitmq import RabbitBus

            url += "&timeout=30&delay=0.2"
            buses = [await RabbitBus.connect(url), await RabbitBus.connect(url)]
        else:
            from uttu.bus.kafka import KafkaBus

            url += ("&" if "?" in url else "?") + "partitions=3&session=6&timeout=30"
            buses = [await KafkaBus.connect(url), await KafkaBus.connect(url)]
        for bus in buses:
            stack.push_async_callback(bus.close)
        messages = BusLoad(buses, findings)
        await messages.open()
        loads.append(messages)
        yield loads


@contextlib.contextmanager
def watched(findings: Findings) -> Iterator[None]:
    """Hear of exceptions that tasks and threads end with."""
    loop = asyncio.get_running_loop()
    before, hook = loop.get_exception_handler(), threading.excepthook
    loop.set_exception_handler(findings.unhandled)
    threading.excepthook = findings.ended
    try:
        yield
    finally:
        loop.set_exception_handler(before)
        threading.excepthook = hook


async def hurt(servers: Life, seed: int, seconds: float) -> Findings:
    """Work on these servers while they are hurt for so many seconds; leaves them well."""
    findings = Findings()
    with watched(findings):
        async with load_on(servers, findings) as loads:
            working = [asyncio.create_task(load.run()) for load in loads]
            await Harm(victims(servers), findings, seed).run(seconds)
            if isinstance(servers, RedisCluster):
                await asyncio.to_thread(servers.wait)
            for load in loads:
                load.stop()
            done, late = await asyncio.wait(working, timeout=_HEALED_SECONDS)
            findings.wrong += [f"after {_HEALED_SECONDS:.0f} s a call still waits" for _ in late]
            findings.wrong += [place_of(error) for task in done if (error := task.exception())]
            for load in loads:
                try:
                    await asyncio.wait_for(load.check(), 2 * _HEALED_SECONDS)
                except (TimeoutError, BusError) as error:
                    findings.wrong.append(f"the last look: {place_of(error)}")
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
    return findings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.harness.nemesis.server_kills")
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    parser.add_argument("--seeds", type=int, default=3, help="how many of each kind (%(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (%(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long servers are hurt (%(default)s)")
    given = parser.parse_args()
    clean = True
    for kind in given.kinds:
        for seed in range(given.first, given.first + given.seeds):
            # Drivers fail in other ways on the other event loop.
            loop = uvloop.new_event_loop if seed % 2 else asyncio.new_event_loop
            with made(kind) as servers, asyncio.Runner(loop_factory=loop) as runner:
                findings = runner.run(hurt(servers, seed, given.seconds))
            clean = clean and findings.clean
            print(
                f"{kind} {seed}: {findings.calls:,} calls, harms {dict(findings.harms)}, errors of ours "
                f"{dict(findings.mapped)}: {'clean' if findings.clean else 'NOT CLEAN'}",
                flush=True,
            )
            for name, found in (("escaped", findings.escaped), ("unseen", findings.unseen)):
                for what, count in found.most_common():
                    print(f"  {name} {count}×: {what}", flush=True)
            for what in findings.wrong:
                print(f"  wrong: {what}", flush=True)
    return 0 if clean else 1


async def _all_items(store: CrawlStore) -> AsyncIterator[int]:
    after = 0
    while found := await store.outbox.items(after, 1000):
        for item in found:
            yield item.position
        after = found[-1].position


if __name__ == "__main__":
    sys.exit(main())
