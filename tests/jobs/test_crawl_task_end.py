"""How a job's crawl ends: who may say so, and that its outputs are complete by then."""

from __future__ import annotations

from pathlib import Path

import pytest

from uttu.frontier.base import Rules
from uttu.frontier.catalog import CrawlCatalog
from uttu.jobs.crawl_task.protocol import SliceAction, SliceEnd, SliceEvent, SliceRequest
from uttu.jobs.crawl_task.runner import SliceControl, SliceRunner
from uttu.model.crawl import CrawlState
from uttu.model.facts import SliceMark
from uttu.model.lease import Done
from uttu.model.request import Request
from uttu.runtime.registry import open_frontier
from uttu.settings import DATA_FOLDER

SPIDER = """
from uttu import Spider

spider = Spider("pages", start="http://127.0.0.1:1/")

@spider.page
def page(page): ...
"""


@pytest.mark.parametrize("again", [False, True])
async def test_crawl_restarts_while_a_slice_concludes(
    again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spider.py").write_text(SPIDER)
    catalog = await open_frontier("", DATA_FOLDER)
    store = await catalog.create("pages", Rules())
    await store.ledger.note(state=CrawlState.FINISHED, slices={"a job": SliceMark(1)})
    await store.frontier.close()
    decide = SliceRunner._decide

    async def then_started_again(self: SliceRunner) -> SliceAction:
        found: SliceAction = await decide(self)
        if again and found is SliceAction.CONCLUDE:
            await (await catalog.create("pages", Rules())).frontier.close()
        return found

    monkeypatch.setattr(SliceRunner, "_decide", then_started_again)
    request = SliceRequest(kind="join", job="a job", seconds=1.0, began=0.0, file="spider.py")
    event = await SliceRunner(request, SliceControl(1.0), lambda event: None, lambda text: None).run()
    await catalog.close()
    if again:
        assert event == SliceEvent(end=SliceEnd.STALE)
    else:
        assert event.end is SliceEnd.OVER
        assert event.summary is not None
        assert event.summary["state"] == "finished"


async def leave_unattended(catalog: CrawlCatalog) -> None:
    """A crawl whose last page was done while nobody led it: its item is in the store, and in no output yet."""
    store = await catalog.create("pages", Rules())
    await store.frontier.put([Request(url="http://127.0.0.1:1/")])
    (lease,) = await store.frontier.lease(1, "worker")
    await store.frontier.settle([Done(lease=lease, items=(b'{"n":1}',))])
    marks = {"a job": SliceMark(1)}
    await store.ledger.note(state=CrawlState.FINISHED, unattended=True, seeded=True, slices=marks)
    await store.frontier.close()


async def test_join_leaves_the_end_to_the_slice_with_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spider.py").write_text(SPIDER)
    catalog = await open_frontier("", DATA_FOLDER)
    await leave_unattended(catalog)

    async def run(request: SliceRequest) -> SliceEvent:
        return await SliceRunner(request, SliceControl(10.0), lambda event: None, lambda text: None).run()

    part = await run(SliceRequest(kind="join", job="a job", seconds=10.0, began=0.0, file="spider.py"))
    assert part == SliceEvent(end=SliceEnd.STALE)
    whole = await run(
        SliceRequest(job="a job", number=2, seconds=10.0, began=0.0, file="spider.py", outputs=("out.jsonl",))
    )
    await catalog.close()
    assert whole.end is SliceEnd.OVER
    assert Path("out.jsonl").read_text() == '{"n":1}\n'
