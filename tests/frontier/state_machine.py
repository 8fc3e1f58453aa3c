"""Any sequence of calls, by two workers, at any times: a frontier does as the model does.

Two outputs take items meanwhile, and items that they have are removed.

A backend inherits :class:`FrontierMachine` and says how its crawl is made, opened, read and removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from uttu.errors import ItemsTrimmed
from uttu.frontier.base import Cursor, Frontier, Ledger, Outbox, Rules
from uttu.model import Dead, Done, Lease, Outcome, Pace, Request, Retry
from uttu.testing.clock import FakeClock
from uttu.testing.contracts.model import FrontierModel
from uttu.testing.contracts.store import TICK, page

T = TypeVar("T")

HOSTS = st.sampled_from(["a.example", "b.example", "c.example", "d.example"])
PACES = st.builds(Pace, st.sampled_from([0.0, 0.0, 0.5, 2.0]), st.sampled_from([0, 1, 1, 2, 3]))
REQUESTS = st.builds(
    lambda number, host, priority: page(number, host, priority=priority),
    st.integers(0, 12),
    HOSTS,
    st.sampled_from([0, 0, -1, 1]),
)
CHILDREN = st.lists(REQUESTS, max_size=4).map(tuple)
# Sometimes many, as the store removes items by the hundred.
ITEMS = st.lists(st.sampled_from([b"1", b'{"a":"\'"}']), max_size=2).map(tuple) | st.sampled_from([60, 130]).map(
    lambda count: tuple(b"%d" % number for number in range(count))
)
RULES = st.builds(
    Rules,
    order=st.sampled_from(["fifo", "lifo", "priority"]),
    pace=PACES,
    probe=st.booleans(),
    lease_seconds=st.sampled_from([2.0, 8.0]),
    ahead=st.sampled_from([0.0, 0.5]),
    max_losses=st.sampled_from([1, 2, 8]),
    max_pages=st.sampled_from([0, 0, 0, 8]),
    max_items=st.sampled_from([0, 0, 0, 0, 3, 250]),
    max_per_lane=st.sampled_from([0, 0, 0, 5]),
)
# Few different times, so that steps often end exactly where something is due.
STEPS = st.sampled_from([TICK, 3 * TICK, 0.5, 0.5, 1.0, 2.0, 2.0, 8.0])
SINKS = st.sampled_from(["one.jsonl", "other.jsonl"])
KEEP = st.sampled_from([1, 1, 50, 200])
# Not a multiple of TICK: whether a claim holds at its very end is left open.
CLAIM_SECONDS = 1.3
WORKERS = st.sampled_from([0, 1])


SETTINGS = settings(max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))


class FrontierMachine(RuleBasedStateMachine):
    """Two workers, each with a handle of its own on one crawl, and the model beside them."""

    def make(self, coin: bool) -> None:
        """An empty crawl; ``coin`` is for a backend that has two ways to be tried."""
        raise NotImplementedError

    def opened(self, rules: Rules) -> Frontier:
        """A handle on it."""
        raise NotImplementedError

    def shelves(self) -> tuple[Outbox, Ledger]:
        """Handles on its items and claims, that need not be closed before :meth:`remove`."""
        raise NotImplementedError

    def remove(self) -> None:
        raise NotImplementedError

    @initialize(rules=RULES, requests=st.lists(REQUESTS, min_size=6, max_size=20), coin=st.booleans())
    def begin(self, rules: Rules, requests: list[Request], coin: bool) -> None:
        self.runner = asyncio.Runner()
        self.clock = FakeClock()
        self.make(coin)
        self.told = rules
        self.model = FrontierModel(rules, self.clock)
        self.frontiers = [self.opened(rules), self.opened(rules)]
        self.outbox, self.ledger = self.shelves()
        # Of all items that were ever looked at.
        self.positions: list[int] = []
        # What each worker holds, or believes to hold.
        self.leases: list[list[Lease]] = [[], []]
        self.put(0, requests)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @rule(worker=WORKERS, requests=st.lists(REQUESTS, max_size=8))
    def put(self, worker: int, requests: list[Request]) -> None:
        assert self.run(self.frontiers[worker].put(requests)) == self.model.put(requests)

    @rule(worker=WORKERS, limit=st.integers(0, 7))
    def lease(self, worker: int, limit: int) -> None:
        leases = self.run(self.frontiers[worker].lease(limit, f"w{worker}"))
        self.model.lease(limit, leases)
        self.leases[worker] += leases

    @precondition(lambda self: any(self.leases))
    @rule(worker=WORKERS, data=st.data())
    def settle(self, worker: int, data: st.DataObject) -> None:
        outcomes = data.draw(st.lists(self.outcomes(), min_size=1, max_size=5), label="outcomes")
        assert self.run(self.frontiers[worker].settle(outcomes)) == self.model.settle(outcomes)
        if data.draw(st.sampled_from([True, True, False]), label="forget them"):
            ended = {outcome.lease.id for outcome in outcomes}
            self.leases = [[lease for lease in leases if lease.id not in ended] for leases in self.leases]

    @rule(seconds=STEPS)
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(worker=WORKERS, data=st.data())
    def something_rare(self, worker: int, data: st.DataObject) -> None:
        """One rule for all of these: rules are drawn with equal chances."""
        data.draw(st.sampled_from([self.extend, self.hold, self.abandon, self.reopen]))(worker, data)

    def extend(self, worker: int, data: st.DataObject) -> None:
        leases = data.draw(st.lists(st.sampled_from(self.believed()), max_size=4) if self.believed() else st.just([]))
        assert self.run(self.frontiers[worker].extend(leases)) == self.model.extend(leases)

    def hold(self, worker: int, data: st.DataObject) -> None:
        lane, seconds = data.draw(HOSTS), data.draw(STEPS)
        self.run(self.frontiers[worker].hold(lane, seconds, "told to"))
        self.model.hold(lane, seconds)

    def abandon(self, worker: int, _: st.DataObject) -> None:
        """The worker does no more about what it holds; its handle stays, so that only deadlines count."""
        self.leases[worker].clear()

    def reopen(self, worker: int, _: st.DataObject) -> None:
        """Close and open, and show up at once: a worker of this name is not gone."""
        self.run(self.frontiers[worker].close())
        self.frontiers[worker] = self.opened(self.told)
        self.model.lease(0, self.run(self.frontiers[worker].lease(0, f"w{worker}")))

    @rule(worker=WORKERS, items=st.sampled_from([10, 60, 130]))
    def work(self, worker: int, items: int) -> None:
        """Pages with many items, from the lease to the end."""
        leases = self.run(self.frontiers[worker].lease(3, f"w{worker}"))
        self.model.lease(3, leases)
        outcomes = [Done(lease=lease, items=tuple(b"%d" % number for number in range(items))) for lease in leases]
        assert self.run(self.frontiers[worker].settle(outcomes)) == self.model.settle(outcomes)

    @rule(sinks=st.lists(SINKS, min_size=1, max_size=2, unique=True), data=st.data())
    def drain(self, sinks: list[str], data: st.DataObject) -> None:
        self.look()
        for sink in sinks:
            self.drain_one(sink, data)

    def drain_one(self, sink: str, data: st.DataObject) -> None:
        """A sink takes some more items, or starts anew; now and then without a claim."""
        if data.draw(st.sampled_from([True, True, True, False]), label="claims"):
            assert self.run(self.ledger.claim(f"drain {sink}", "me", CLAIM_SECONDS))
            self.model.claim(f"drain {sink}", CLAIM_SECONDS)
        full = len(self.positions)
        count = data.draw(st.sampled_from([full, full, full // 2, 0]) | st.integers(0, full), label="items it has")
        cursor = Cursor(self.positions[count - 1], b"note") if count else Cursor()
        assert self.run(self.outbox.advance(sink, cursor, "me")) == self.model.advance(sink, count)
        if data.draw(st.booleans(), label="trims"):
            self.trim(data.draw(st.lists(SINKS, max_size=2, unique=True)), data.draw(KEEP), 1)

    @rule(sinks=st.lists(SINKS, max_size=2, unique=True), keep=KEEP, whole=st.integers(0, 4))
    def trim(self, sinks: list[str], keep: int, whole: int) -> None:
        self.look()
        if whole == 0:
            assert self.run(self.ledger.claim("whole export", "me", CLAIM_SECONDS))
            self.model.claim("whole export", CLAIM_SECONDS)
        more = True
        while more:
            more = self.run(self.outbox.trim(sinks, keep))
            self.model.trim(sinks, keep, self.run(self.outbox.trimmed()).count, is_over=not more)
        self.look()

    def look(self) -> None:
        """Read the items that are left: all of the model's, but for those that were removed."""
        gone = self.run(self.outbox.trimmed())
        assert gone.count == self.model.trimmed
        assert gone.position == (self.positions[gone.count - 1] if gone.count else 0)
        left = self.run(self.outbox.items(gone.position, 100_000))
        assert [(item.id, item.json) for item in left] == self.model.items[gone.count :]
        if gone.count:
            with pytest.raises(ItemsTrimmed):
                self.run(self.outbox.items(gone.position - 1, 1))
        positions = [item.position for item in left]
        assert positions[: len(self.positions) - gone.count] == self.positions[gone.count :]
        self.positions[gone.count :] = positions
        assert self.positions == sorted(set(self.positions))

    @invariant()
    def the_counts_agree(self) -> None:
        counts = self.run(self.frontiers[0].counts())
        assert counts == self.model.counts()
        assert counts.seen == len(self.model.seen)

    def teardown(self) -> None:
        if not hasattr(self, "frontiers"):
            return
        self.look()
        for frontier in self.frontiers:
            self.run(frontier.close())
        self.remove()
        self.runner.close()

    def believed(self) -> list[Lease]:
        return self.leases[0] + self.leases[1]

    def outcomes(self) -> st.SearchStrategy[Outcome]:
        now = self.clock.monotonic()
        shared: dict[str, Any] = {
            "lease": st.sampled_from(self.believed()),
            "touched": st.sampled_from([None, None, now, now, now - TICK, now - 1]),
            "pace": st.none() | st.none() | PACES,
        }
        later = st.sampled_from([0.0, 0.0, 0.5, 2.0])
        return st.one_of(
            st.builds(Done, **shared, children=CHILDREN, items=ITEMS, size=st.integers(0, 9)),
            st.builds(Retry, **shared, after=later, counted=st.booleans()),
            st.builds(Dead, **shared, kind=st.just("http"), reason=st.just("404"), children=CHILDREN, items=ITEMS),
        )
