"""Any sequence of calls, by two workers, at any times: a frontier does as the model does.

A backend inherits :class:`FrontierMachine` and says how its crawl is made, opened, read and removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from weft.frontier.base import Frontier, Rules, StoredItem
from weft.model import Dead, Done, Lease, Outcome, Pace, Request, Retry
from weft.testing.clock import FakeClock
from weft.testing.frontier_model import FrontierModel
from weft.testing.frontier_store import TICK, page

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
ITEMS = st.lists(st.sampled_from([b"1", b'{"a":"\'"}']), max_size=2).map(tuple)
RULES = st.builds(
    Rules,
    order=st.sampled_from(["fifo", "lifo", "priority"]),
    pace=PACES,
    probe=st.booleans(),
    lease_seconds=st.sampled_from([2.0, 8.0]),
    ahead=st.sampled_from([0.0, 0.5]),
    max_losses=st.sampled_from([1, 2, 8]),
    max_pages=st.sampled_from([0, 0, 0, 8]),
    max_per_lane=st.sampled_from([0, 0, 0, 5]),
)
# Few different times, so that steps often end exactly where something is due.
STEPS = st.sampled_from([TICK, 3 * TICK, 0.5, 0.5, 1.0, 2.0, 2.0, 8.0])
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

    def items(self) -> list[StoredItem]:
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

    @invariant()
    def the_counts_agree(self) -> None:
        counts = self.run(self.frontiers[0].counts())
        assert counts == self.model.counts()
        assert counts.seen == len(self.model.seen)

    def teardown(self) -> None:
        if not hasattr(self, "frontiers"):
            return
        stored = self.items()
        for frontier in self.frontiers:
            self.run(frontier.close())
        self.remove()
        self.runner.close()
        assert [(item.id, item.json) for item in stored] == self.model.items

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
