"""A frontier in memory: everything that a backend must do, in the simplest code.

It repeats the contract of :mod:`uttu.frontier.base` as readable code, and serves as a model for backends: a test makes
every call on both, and both must return the same. The contract leaves open which of several lanes gives a request.
There :meth:`FrontierModel.lease` takes the backend's choice, asserts that it is allowed, and follows it.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from uttu.clock import Clock
from uttu.frontier.base import TRIM_STEP, Rules
from uttu.model import Counts, Dead, Done, Lease, Outcome, Pace, Request, Retry


@dataclass
class ModelEntry:
    """An admitted request that is neither done nor dead; ``place`` is its place in the lane."""

    request: Request
    place: tuple[int, int]
    attempt: int = 0
    losses: int = 0


@dataclass
class ModelLane:
    due: float
    pace: Pace
    waiting: list[ModelEntry] = field(default_factory=list)
    out: int = 0
    total: int = 0

    def enter(self, entry: ModelEntry) -> None:
        insort(self.waiting, entry, key=lambda each: each.place)

    def room(self) -> int:
        """Return how many requests it could give if it is due."""
        free = self.pace.limit - self.out if self.pace.limit else len(self.waiting)
        return max(0, min(free, len(self.waiting), 1 if self.pace.delay > 0 else free))


@dataclass
class ModelLease:
    entry: ModelEntry
    lane: ModelLane
    deadline: float


class FrontierModel:
    """See :class:`uttu.frontier.base.Frontier`; the methods are like those, without ``await``."""

    def __init__(self, rules: Rules, clock: Clock) -> None:
        self.rules = rules
        self.clock = clock
        self.seen: set[int] = set()
        self.lanes: dict[str, ModelLane] = {}
        self.leases: dict[int, ModelLease] = {}
        self.delayed: list[tuple[float, ModelEntry]] = []
        self.items: list[tuple[str, bytes]] = []
        self.cursors: dict[str, int] = {}  # sink → number of items it has
        self.claims: dict[str, float] = {}  # role → expiry time
        self.trimmed = self.most_items = 0
        self.done = self.dead = self.bytes = self.last_id = self.admitted = 0

    def put(self, requests: Sequence[Request]) -> int:
        return sum(self._admit(request) for request in requests)

    def lease(self, limit: int, answer: Sequence[Lease]) -> None:
        """Assert that a frontier may return these leases, and take the same."""
        now = self.clock.time()
        self._end_lost(now)
        self._wake(now)
        if self.rules.max_pages:
            # Leased pages count too: they will end as done or dead.
            counts = self.counts()
            limit = min(limit, self.rules.max_pages - counts.done - counts.dead - counts.leased)
        if self.rules.max_items and len(self.items) >= self.rules.max_items:
            limit = 0
        ready = {name: lane for name, lane in self.lanes.items() if lane.room() and lane.due <= now + self.rules.ahead}
        given = Counter(lease.lane for lease in answer)
        assert len(answer) == max(0, min(limit, sum(lane.room() for lane in ready.values()))), "too few or too many"
        assert all(name in ready and count <= ready[name].room() for name, count in given.items()), "not due"
        passed_over = [ready[name].due for name in ready.keys() - given.keys()]
        if given and passed_over:
            assert max(given.values()) == 1, "two of a lane before one of another"
            assert max(ready[name].due for name in given) <= min(passed_over), "not the longest due"
        for lease in answer:
            self._hand_out(lease, ready[lease.lane], now)
        for lane in (ready[name] for name in given):
            # With a limit of 1, the delay is added at the end, when the last touch is known.
            lane.due = max(lane.due, now) + (0.0 if lane.pace.limit == 1 else lane.pace.delay)

    def extend(self, leases: Sequence[Lease]) -> set[int]:
        ids = {lease.id for lease in leases}
        for owned in (self.leases[id_] for id_ in ids & self.leases.keys()):
            owned.deadline = self.clock.time() + self.rules.lease_seconds
        return ids - self.leases.keys()

    def settle(self, outcomes: Sequence[Outcome]) -> set[int]:
        lost = {outcome.lease.id for outcome in outcomes} - self.leases.keys()
        before = len(self.items)
        ended: list[tuple[ModelLane, Outcome]] = []
        for outcome in outcomes:
            owned = self.leases.pop(outcome.lease.id, None)
            if owned:
                if not isinstance(outcome, Retry) and outcome.items and self.rules.max_items:
                    room = self.rules.max_items - len(self.items)
                    if room > 0:
                        outcome = msgspec.structs.replace(outcome, items=outcome.items[:room])
                    else:
                        lost.add(outcome.lease.id)
                        outcome = Retry(lease=outcome.lease, touched=outcome.touched, pace=outcome.pace, counted=False)
                self._end(owned, outcome)
                ended.append((owned.lane, outcome))
        for name in {outcome.lease.lane for _, outcome in ended}:
            self._turn(self.lanes[name], [outcome for lane, outcome in ended if lane is self.lanes[name]])
        self.most_items = max(self.most_items, len(self.items) - before)
        return lost

    def hold(self, lane: str, seconds: float) -> None:
        held = self._lane(lane)
        held.due = max(held.due, self.clock.time() + seconds)

    def claim(self, role: str, seconds: float) -> None:
        """Claim a role. All claims have the same owner."""
        self.claims[role] = self.clock.time() + seconds

    def advance(self, sink: str, count: int) -> bool:
        """Set the cursor of a sink to the first ``count`` items; 0 means that it starts from scratch."""
        if not self._is_claimed(f"drain {sink}"):
            return False
        self.cursors[sink] = count
        return True

    def trim(self, sinks: Sequence[str], keep: int, count: int, is_over: bool) -> None:
        """Assert that a frontier may have removed ``count`` items by now, and remove the same.

        ``is_over``: the frontier says that there is nothing more to remove.
        """
        claimed = {role for role in self.claims if self._is_claimed(role)}
        counting = {*sinks, *(role.removeprefix("drain ") for role in claimed if role.startswith("drain "))}
        reached = min((self.cursors.get(sink, 0) for sink in counting), default=0)
        if any(role.startswith("whole ") for role in claimed):
            reached = 0
        most = min(reached, len(self.items) - keep)
        assert count == self.trimmed or self.trimmed < count <= most, "removed what must stay"
        if is_over:
            assert count > most - TRIM_STEP - self.most_items, "left what may go"
        self.trimmed = count

    def _is_claimed(self, role: str) -> bool:
        return self.claims.get(role, 0.0) > self.clock.time()

    def counts(self) -> Counts:
        return Counts(
            pending=sum(len(lane.waiting) for lane in self.lanes.values()),
            leased=len(self.leases),
            delayed=len(self.delayed),
            done=self.done,
            dead=self.dead,
            items=len(self.items),
            bytes=self.bytes,
        )

    def _lane(self, name: str) -> ModelLane:
        pace = Pace(self.rules.pace.delay, 1) if self.rules.probe else self.rules.pace
        return self.lanes.setdefault(name, ModelLane(self.clock.time(), pace))

    def _admit(self, request: Request) -> bool:
        if request.fingerprint in self.seen:
            return False
        lane = self._lane(request.lane)
        if self.rules.max_per_lane and lane.total >= self.rules.max_per_lane:
            return False
        self.seen.add(request.fingerprint)
        self.admitted += 1
        lane.total += 1
        rank = -request.priority if self.rules.order == "priority" else 0
        lane.enter(ModelEntry(request, (rank, -self.admitted if self.rules.order == "lifo" else self.admitted)))
        return True

    def _hand_out(self, lease: Lease, lane: ModelLane, now: float) -> None:
        entry = lane.waiting.pop(0)
        entry.attempt += 1
        lane.out += 1
        deadline = now + self.rules.lease_seconds
        assert lease.id > self.last_id, "ids must grow"
        assert (lease.request, lease.fingerprint) == (entry.request, entry.request.fingerprint), "out of order"
        assert (lease.attempt, lease.deadline) == (entry.attempt, deadline)
        assert abs(lease.wait - max(0.0, lane.due - now)) < 1e-6, "the wait is wrong"
        self.last_id = lease.id
        self.leases[lease.id] = ModelLease(entry, lane, deadline)

    def _end(self, owned: ModelLease, outcome: Outcome) -> None:
        owned.lane.out -= 1
        match outcome:
            case Retry():
                owned.entry.attempt -= not outcome.counted
                if outcome.after > 0:
                    self.delayed.append((self.clock.time() + outcome.after, owned.entry))
                else:
                    owned.lane.enter(owned.entry)
                return
            case Done():
                self.done += 1
                self.bytes += outcome.size
            case Dead():
                self.dead += 1
        self.put(outcome.children)
        page = f"{outcome.lease.fingerprint % 2**64:016x}"
        first, mark = (0, "") if isinstance(outcome, Done) else (outcome.lease.id * 1000, "e")
        self.items += [(f"{page}-{mark}{number}", item) for number, item in enumerate(outcome.items, first)]

    def _turn(self, lane: ModelLane, outcomes: list[Outcome]) -> None:
        """Compute when the lane is due again after these of its leases have ended."""
        touches = [outcome.touched for outcome in outcomes if outcome.touched is not None]
        paces = [outcome.pace for outcome in outcomes if outcome.pace is not None]
        one_at_a_time = lane.pace.limit == 1
        if paces:
            lane.pace = paces[-1]
        if touches and (one_at_a_time or paces):
            touched = max(touches) + self.clock.time() - self.clock.monotonic()
            lane.due = max(lane.due, touched + lane.pace.delay)

    def _end_lost(self, now: float) -> None:
        for id_, owned in list(self.leases.items()):
            if owned.deadline > now:
                continue
            del self.leases[id_]
            owned.lane.out -= 1
            owned.lane.due = max(owned.lane.due, now + owned.lane.pace.delay)
            owned.entry.losses += 1
            if owned.entry.losses < self.rules.max_losses:
                owned.lane.enter(owned.entry)
            else:
                self.dead += 1

    def _wake(self, now: float) -> None:
        for due, entry in self.delayed:
            if due <= now:
                self.lanes[entry.request.lane].enter(entry)
        self.delayed = [(due, entry) for due, entry in self.delayed if due > now]
