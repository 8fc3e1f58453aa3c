"""Handlers that misbehave, in real processes: the page is dead or done, and the others are done."""

from __future__ import annotations

import pytest

from tests.crawl.conftest import Project
from tests.crawl.handlers import PAGES, check_others, crawl, dead, write
from uttu.testing.site import Site, SiteProcess

# What a handler leaves behind in its process. Its page is done, like all others.
LEFT_BEHIND = {
    "stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
    "masked signals": "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
    "no streams": "sys.stdout = sys.stderr = None",
    "odd streams": "sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = object()",
    "threads of the loop": "for _ in range(40): asyncio.get_running_loop().run_in_executor(None, time.sleep, 70)",
    "a process": """
import multiprocessing
def wait():
    os.closerange(0, 3)
    time.sleep(70)
multiprocessing.get_context("fork").Process(target=wait).start()
""",
    "a deaf task": """
async def never():
    while True:
        try:
            await asyncio.sleep(70)
        except BaseException:
            pass
asyncio.get_running_loop().task = asyncio.ensure_future(never())
""",
    "a task that exits": """
async def leave(): sys.exit(0)
asyncio.ensure_future(leave())
""",
    "a callback that interrupts": """
def interrupt(): raise KeyboardInterrupt
asyncio.get_running_loop().call_later(0.05, interrupt)
time.sleep(0.1)
""",
    "an exception handler that exits": """
def leave(loop, context): sys.exit(1)
asyncio.get_running_loop().set_exception_handler(leave)
asyncio.get_running_loop().call_soon(lambda: 1 / 0)
""",
}


@pytest.mark.parametrize("body", LEFT_BEHIND.values(), ids=LEFT_BEHIND)
def test_what_a_handler_leaves_behind(project: Project, body: str) -> None:
    write(project, body)
    with SiteProcess(Site(pages=PAGES)) as site:
        done, seconds = crawl(project, site)
        assert done.returncode == 0, done.stderr
        assert seconds < 25
    assert len(project.rows()) == PAGES


def test_a_loop_that_is_stopped_later_goes_on(project: Project) -> None:
    write(project, "asyncio.get_running_loop().call_later(0.1, asyncio.get_running_loop().stop)\ntime.sleep(0.2)")
    with SiteProcess(Site(pages=PAGES)) as site:
        done, _ = crawl(project, site)
        assert done.returncode == 0, done.stderr
        assert "stops the event loop" in done.stderr
    assert len(project.rows()) == PAGES


ODD = {
    "cancels itself": ("async", "asyncio.current_task().cancel()\nawait asyncio.sleep(0)", "CancelledError"),
    "cancels itself later": (
        "async",
        "asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)\nawait asyncio.sleep(5)",
        "CancelledError",
    ),
    "GeneratorExit": ("", "raise GeneratorExit", "GeneratorExit"),
    "GeneratorExit, async": ("async", "raise GeneratorExit", "GeneratorExit"),
    "KeyboardInterrupt": ("", "raise KeyboardInterrupt", "KeyboardInterrupt"),
    "KeyboardInterrupt, async": ("async", "raise KeyboardInterrupt", "KeyboardInterrupt"),
    "SystemExit": ("", "sys.exit(3)", "SystemExit: 3"),
    "a BaseException": ("async", 'raise Own("no")', "Own: no"),
    "hangs": ("async", "await asyncio.get_running_loop().create_future()", "handler_timeout=2 s"),
    "hangs and swallows": (
        "async",
        "while True:\n    try:\n        await asyncio.sleep(1000)\n    except BaseException:\n        pass",
        "handler_timeout=2 s",
    ),
    "never ends": ("", "while True: yield None", "handler_timeout=2 s"),
    "items without end": ("", "while True: yield {'a': 1}", "more items than max_items_per_page=5000"),
    "items without end, async": ("async", "while True: yield {'a': 1}", "more items than max_items_per_page=5000"),
    "requests without end": (
        "",
        "n = 0\nwhile True:\n    n += 1\n    yield page.follow(url=f'/x/{n}')",
        "more requests than max_links_per_page=5000",
    ),
    "a list of ten million": ("", "yield [{'a': 1}] * 10_000_000", "more items than max_items_per_page=5000"),
    "a large item": ("", "yield {'a': 'x' * 30_000_000}", "max_item_size=16777216"),
    "large items": ("", "for _ in range(100): yield {'a': 'x' * 1_000_000}", "max_items_size_per_page=67108864"),
    "a handler with a surrogate": ("", "yield page.follow(url='/x', to='\\udc80')", "can't be stored"),
    "a depth beyond all bounds": ("", "yield page.follow(url='/x', depth=10**40)", "out of range"),
    "an item with a surrogate": ("", "yield {'a': '\\udc80'}", "can't be written as JSON"),
}


@pytest.mark.parametrize(("kind", "body", "reason"), ODD.values(), ids=ODD)
def test_a_page_that_ends_oddly_is_dead(project: Project, kind: str, body: str, reason: str) -> None:
    write(project, body, kind)
    with SiteProcess(Site(pages=PAGES)) as site:
        bounds = ("max_items_per_page=5000", "max_links_per_page=5000", "handler_timeout=2")
        done, seconds = crawl(project, site, *(word for each in bounds for word in ("-s", each)))
        assert done.returncode == 0, done.stderr
        assert seconds < 20
        check_others(project, site)
    assert reason in dead(project)


def test_a_fork_that_goes_on(project: Project) -> None:
    write(project, "if os.fork() == 0: time.sleep(0.5)")
    with SiteProcess(Site(pages=PAGES)) as site:
        done, seconds = crawl(project, site)
        assert done.returncode == 0, done.stderr
        assert seconds < 10
    assert sorted(row["url"] for row in project.rows()) == sorted(f"{site.url}p/{n}" for n in range(PAGES))
