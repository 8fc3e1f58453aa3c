"""Pages that took a worker process down: who is to blame, and what becomes of them."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.engine.workers import worker_on
from uttu.blackbox import HandledPage
from uttu.engine.worker_processes import Suspects
from uttu.frontier.base import Rules
from uttu.frontier.sqlite import Database, SqliteFrontier
from uttu.frontier.sqlite.inspector import SqliteInspector
from uttu.model import Done, Lease, Outcome, Pace, Request
from uttu.testing.contracts.store import count_dead_kinds

PAGE = HandledPage(lease=1, fingerprint=7, url="http://example.org/", handler="")


def test_who_is_to_blame() -> None:
    assert Suspects().judge(PAGE, 0) is not None, "an exit code is the handler's own doing"
    assert Suspects().judge(PAGE, -signal.SIGSEGV) is not None
    suspects = Suspects()
    assert suspects.judge(PAGE, -signal.SIGKILL) is None, "anybody may have sent that"
    assert Suspects(suspects.fingerprints).judge(PAGE, -signal.SIGKILL) is not None, "but not twice"


async def test_a_condemned_page_is_dead_as_soon_as_it_is_leased(tmp_path: Path) -> None:
    """Its former lease was lost before it could be settled: another worker may have had the page in between."""
    database = Database.open(tmp_path / "crawl.db")
    frontier = SqliteFrontier(database, Rules(pace=Pace(0, 0)))
    await frontier.put([Request(url=f"http://example.org/{n}") for n in range(3)])
    (lease,) = await frontier.lease(1, "scout")
    await frontier.close()
    database = Database.open(tmp_path / "crawl.db")
    frontier = SqliteFrontier(database, Rules(pace=Pace(0, 0)))
    visited: list[str] = []

    async def visit(lease: Lease) -> Outcome:
        visited.append(lease.request.url)
        return Done(lease=lease)

    async def is_over() -> bool:
        return (await frontier.counts()).finished

    worker = worker_on(frontier, visit, is_over)
    worker.condemn({lease.fingerprint: "took the worker down: it blocked"})
    await worker.run()
    assert len(visited) == 2
    assert lease.request.url not in visited
    assert await count_dead_kinds(SqliteInspector(database)) == {"lost": 1}
    await frontier.close()
