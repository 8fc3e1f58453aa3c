"""One seed: a site, a server, a fleet, its nemesis; and what was seen of it all, checked."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.harness.nemesis import census, checks, journal
from tests.harness.nemesis.census import CRAWL
from tests.harness.nemesis.checks import Evidence
from tests.harness.nemesis.events import Nemesis
from tests.harness.nemesis.fleet import UTTU, Fleet
from tests.harness.nemesis.journal import page_of
from tests.harness.nemesis.schedule import Plan
from tests.harness.servers import RedisServer
from uttu.frontier.base import Rules
from uttu.frontier.redis.catalog import RedisCatalog
from uttu.model.crawl import WorkerReport
from uttu.testing.site import SiteProcess
from uttu.testing.site.model import Layout

# Many times what a run takes: a crawl that hangs is a failure, too.
LIMIT_SECONDS: Final = 150.0
_LOOK_SECONDS: Final = 0.05


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a run; clean if nothing was found."""

    plan: Plan
    findings: list[str]
    seconds: float
    fetches: int = 0
    refetched: int = 0
    lost: int = 0
    refused: int = 0
    late: int = 0


async def run(plan: Plan, program: Sequence[str] = UTTU, limit: float = LIMIT_SECONDS) -> Result:
    """Run a plan to its end. ``program`` is the command that stands for ``uttu``."""
    server = RedisServer(appendonly=True, appendfsync="always", settings=journal.SETTINGS)
    with SiteProcess(plan.site) as site, server, tempfile.TemporaryDirectory(prefix="uttu-nemesis-") as folder:
        return await _Run(plan, site, server, Path(folder), program).result(limit)


class _Run:
    def __init__(
        self, plan: Plan, site: SiteProcess, server: RedisServer, folder: Path, program: Sequence[str]
    ) -> None:
        self._plan = plan
        self._site = site
        self._server = server
        self._folder = folder
        settings = (
            f"delay={plan.delay}",
            "per_host=1",
            f"robots={plan.robots}",
            f"lease_seconds={plan.lease_seconds}",
            f"timeout={plan.lease_seconds / 2}",
        )
        environment = {"UTTU_FRONTIER": server.url, "NEMESIS_START": site.url + "p/0"}
        self._fleet = Fleet(
            folder, program, settings, environment, lambda since: self._nemesis.is_server_to_blame(since)
        )
        self._nemesis = Nemesis(plan, self._fleet, server)

    async def result(self, limit: float) -> Result:
        began = time.monotonic()
        try:
            async with asyncio.timeout(limit):
                await self._crawl()
        except TimeoutError:
            return Result(plan=self._plan, findings=[*self._fleet.faults, self._hanging(limit)], seconds=limit)
        finally:
            await self._fleet.close()
        return await self._checked(time.monotonic() - began)

    async def _crawl(self) -> None:
        async with asyncio.TaskGroup() as group:
            supervising = group.create_task(self._fleet.supervise())
            await self._until_begun()
            for _ in range(self._plan.workers):
                self._fleet.join()
            await self._nemesis.run()
            await supervising
            await self._fleet.rest()

    async def _until_begun(self) -> None:
        """Workers can only join a crawl that is there."""
        while not self._fleet.is_over.is_set():
            found = census.read(self._server)
            if found and found.seen:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _checked(self, seconds: float) -> Result:
        self._nemesis.look("at the end")
        refusals, state = await self._told()
        findings = list(self._fleet.faults)
        if state != "finished":
            findings.append(f"the crawl ended as {state!r}")
        evidence = Evidence(
            delay=self._plan.delay,
            pages=self._pages(),
            rows=self._rows(),
            records=self._site.records(),
            leases=journal.read(self._server.process.folder),
            books=self._nemesis.books,
            freezes=self._nemesis.freezes,
            cuts=self._nemesis.cuts,
            refusals=refusals,
        )
        return Result(
            plan=self._plan,
            findings=findings + checks.findings(evidence),
            seconds=seconds,
            fetches=len(evidence.records),
            refetched=checks.refetched(evidence),
            lost=len(journal.lost(evidence.leases)),
            refused=sum(refusals.values()),
            late=checks.late(evidence),
        )

    def _pages(self) -> frozenset[str]:
        port = int(self._site.url.rstrip("/").rpartition(":")[2])
        layout = Layout.at(self._site.site, port)
        return frozenset(page_of(layout.page_url(number)) for number in range(self._site.site.pages))

    def _rows(self) -> list[str]:
        file = self._folder / "out.jsonl"
        lines = file.read_bytes().splitlines() if file.exists() else []
        return [page_of(msgspec.json.decode(line)["url"]) for line in lines]

    async def _told(self) -> tuple[dict[int, int], str]:
        """The refusals of the processes that ended in order, by their last reports; and the crawl's state."""
        ended = {process.pid for process in self._fleet.all if process.code == 0}
        catalog = await RedisCatalog.connect(self._server.url)
        try:
            store = await catalog.open(CRAWL, Rules())
            reports = [
                msgspec.json.decode(kept, type=WorkerReport) for _, kept in (await store.ledger.reports()).values()
            ]
            facts = await store.ledger.facts()
        finally:
            await catalog.close()
        return {report.pid: report.refused for report in reports if report.pid in ended}, facts.state or ""

    def _hanging(self, limit: float) -> str:
        said = "\n".join(f"{process}: {process.said()[-500:]}" for process in self._fleet.running)
        parts = [str(census.ledger(self._server, part)) for part in ("facts", "claims", "workers")]
        stands = "\n".join([str(self._nemesis.look("hanging")), *parts, said])
        return f"not finished after {limit:g} s, {len(self._site.records())} fetches\n{stands}"
