"""Counters of one worker, and the report it writes to the ledger every second, which ``uttu status`` shows."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from uttu.model import Request, Response
from uttu.model.crawl import LogLine, WorkerReport
from uttu.model.history import LATENCY_BOUNDS
from uttu.policy.cookies import looks_like_login

# The most lanes whose cookies LoginWatch remembers.
_MOST_LANES = 20_000
# The most lanes whose latency is kept; a new lane replaces the oldest one. The slowest are reported.
_MOST_HOSTS = 2000
# The most URLs of given-back pages that are kept.
_MOST_GIVEN_BACK = 100


class WorkerStats:
    """Counters of one worker.

    ``seconds`` and ``latency`` are the sum and the histogram of all fetch times. For the slowest hosts there is an
    exponential moving average per lane, with a weight of 0.2.
    """

    def __init__(self) -> None:
        self.fetched = 0
        self.pages = 0
        self.items = 0
        self.retries = 0
        self.refused = 0
        self.bytes = 0
        self.dead: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self.failed = 0
        self.giving: set[str] = set()
        self.empty: Counter[str] = Counter()
        self.given_back: list[str] = []
        self.logins: list[str] = []
        self.seconds = 0.0
        self.latency = [0] * (len(LATENCY_BOUNDS) + 1)
        self._latency: dict[str, float] = {}

    def record_fetch(self, lane: str, status: int, size: int, elapsed: float) -> None:
        self.fetched += 1
        self.bytes += size
        self.statuses[status] += 1
        self.seconds += elapsed
        self.latency[bisect_left(LATENCY_BOUNDS, elapsed)] += 1
        known = self._latency.get(lane)
        if known is None and len(self._latency) >= _MOST_HOSTS:
            del self._latency[next(iter(self._latency))]
        self._latency[lane] = elapsed if known is None else known + 0.2 * (elapsed - known)

    def gave(self, handler: str, something: bool) -> None:
        """Record whether a handler yielded something for a page. Callers may stop once it is in :attr:`giving`."""
        if something:
            self.giving.add(handler)
        else:
            self.empty[handler] += 1

    def record_given_back(self, url: str) -> None:
        if url not in self.given_back and len(self.given_back) < _MOST_GIVEN_BACK:
            self.given_back.append(url)

    def slowest(self, count: int = 5) -> list[tuple[str, float]]:
        return sorted(self._latency.items(), key=lambda pair: -pair[1])[:count]

    def report(
        self,
        *,
        pid: int,
        started: float,
        in_flight: int,
        flying: list[str],
        held: int,
        concurrency: int,
        host: str = "",
        log: Sequence[LogLine] = (),
    ) -> WorkerReport:
        return WorkerReport(
            pid=pid,
            host=host,
            started=started,
            fetched=self.fetched,
            pages=self.pages,
            items=self.items,
            retries=self.retries,
            refused=self.refused,
            bytes=self.bytes,
            in_flight=in_flight,
            held=held,
            concurrency=concurrency,
            dead=dict(self.dead),
            statuses={str(status): count for status, count in self.statuses.items()},
            slowest=self.slowest(),
            flying=flying,
            given_back=self.given_back,
            logins=self.logins,
            giving=sorted(self.giving),
            empty=dict(self.empty),
            failed=self.failed,
            seconds=self.seconds,
            latency=tuple(self.latency),
            log=list(log),
        )


class LoginWatch:
    """Records the first lane with a response that looks like the start of a session, in ``WorkerStats.logins``."""

    def __init__(self, stats: WorkerStats) -> None:
        self._stats = stats
        self._with_cookies: set[str] = set()

    def look(self, lane: str, request: Request, response: Response) -> None:
        if self._stats.logins:
            return
        if response.headers.get("set-cookie") is not None:
            if looks_like_login(request):
                self._stats.logins.append(lane)
            elif len(self._with_cookies) < _MOST_LANES:
                self._with_cookies.add(lane)
        elif request.body and lane in self._with_cookies:
            # Many sites set the session cookie on an earlier page; then the login is a later request with a body.
            self._stats.logins.append(lane)
