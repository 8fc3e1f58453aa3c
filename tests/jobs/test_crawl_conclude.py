"""A job that is to say how its crawl ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft import assembly
from weft.engine.states import State
from weft.frontier.base import Rules
from weft.jobs.slices.order import End, Order, Word
from weft.jobs.slices.reins import Reins
from weft.jobs.slices.turns import Mark, Turn
from weft.jobs.slices.work import Work
from weft.launch import FOLDER

SPIDER = """
from weft import Spider

spider = Spider("pages", start="http://127.0.0.1:1/")

@spider.page
def page(page): ...
"""


@pytest.mark.parametrize("again", [False, True])
async def test_a_crawl_that_is_started_again_at_that_moment(
    again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spider.py").write_text(SPIDER)
    depot = await assembly.open_depot("", FOLDER)
    store = await depot.create("pages", Rules())
    await store.ledger.note(state=State.FINISHED, **Mark(1).note("a job"))
    await store.frontier.close()
    turn = Work._turn

    async def then_started_again(self: Work) -> Turn:
        found = await turn(self)
        if again and found is Turn.CONCLUDE:
            await (await depot.create("pages", Rules())).frontier.close()
        return found

    monkeypatch.setattr(Work, "_turn", then_started_again)
    order = Order(kind="join", job="a job", seconds=1.0, began=0.0, file="spider.py")
    word = await Work(order, Reins(1.0), lambda word: None, lambda text: None).run()
    await depot.close()
    if again:
        assert word == Word(end=End.STALE)
    else:
        assert word.end is End.OVER
        assert word.summary is not None
        assert word.summary["state"] == "finished"
