"""Handlers that misbehave, in real processes: the page is dead, the others are done, and signals always work."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.crawl.conftest import Project, wait_for
from uttu.testing.site import Site, SiteProcess
from uttu.testing.waiting import wait_until

PAGES = 12
BAD = "/p/7"
# "async" or "" before the handler's def, and what it does on the bad page.
SPIDER = """
import asyncio, ctypes, os, re, signal, sys, time
from uttu import Page, Request, Spider

spider = Spider("pages", start=[os.environ["START"] + "p/%d" % n for n in range({pages})], private=True, robots=False,
                delay=0, per_host=0)

class Own(BaseException):
    pass

@spider.page
{kind}def page(page: Page):
    if page.url.endswith("{bad}"):
        open("reached", "a").write("x")
{body}
    yield {{"url": page.url}}
"""
BLOCKED = {
    "loop": "while True: pass",
    "sleep": "time.sleep(70)",
    "regular expression": 're.match(r"(a+)+$", "a" * 40 + "b")',
}
IN_C = "sum(range(10**12))"
SWALLOWS = """
def swallow():
    try:
        while True: pass
    except BaseException:
        return
while True:
    swallow()
"""


def write(project: Project, body: str, kind: str = "") -> None:
    lines = "\n".join("        " + line for line in body.strip().splitlines())
    project.write("spider.py", SPIDER.format(pages=PAGES, kind=kind and "async ", bad=BAD, body=lines))


def crawl(
    project: Project, site: SiteProcess, *more: str, workers: str = "1"
) -> tuple[subprocess.CompletedProcess[str], float]:
    began = time.monotonic()
    done = project.run("crawl", "spider.py", "-o", "out.jsonl", "--workers", workers, *more, START=site.url)
    return done, time.monotonic() - began


def dead(project: Project) -> str:
    return project.run("status", "pages", "--dead").stdout


def check_others(project: Project, site: SiteProcess) -> None:
    expected = sorted(f"{site.url}p/{n}" for n in range(PAGES) if f"/p/{n}" != BAD)
    assert sorted(row["url"] for row in project.rows()) == expected


@pytest.mark.parametrize("kind", ["", "async"])
@pytest.mark.parametrize("body", BLOCKED.values(), ids=BLOCKED)
def test_a_handler_that_blocks_is_interrupted(project: Project, body: str, kind: str) -> None:
    write(project, body, kind)
    with SiteProcess(Site(pages=PAGES)) as site:
        done, seconds = crawl(project, site, "-s", "max_block=2")
        assert done.returncode == 0, done.stderr
        assert seconds < 40
        check_others(project, site)
    assert re.search(r"blocked the worker for \d+ s at spider.py:15 in page", dead(project))


def test_a_task_that_a_handler_started_and_that_blocks(project: Project) -> None:
    write(project, "async def forever():\n    while True: pass\nawait asyncio.create_task(forever())", "async")
    with SiteProcess(Site(pages=PAGES)) as site:
        done, _ = crawl(project, site, "-s", "max_block=1")
        assert done.returncode == 0, done.stderr
        check_others(project, site)
    assert "spider.py:16 in forever" in dead(project)


def test_a_blocked_worker_is_said_to_be(project: Project) -> None:
    write(project, "time.sleep(6)")
    with SiteProcess(Site(pages=PAGES)) as site:
        done, _ = crawl(project, site)
        assert f"{site.url}p/7 has blocked the worker for 5 s at spider.py:15 in page" in done.stderr
        assert done.returncode == 0
        assert len(project.rows()) == PAGES, "a warning only"


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("body", [IN_C, SWALLOWS], ids=["in C", "swallows"])
def test_a_handler_that_cannot_be_interrupted(project: Project, body: str, workers: str) -> None:
    write(project, body)
    with SiteProcess(Site(pages=PAGES)) as site:
        done, seconds = crawl(project, site, "-s", "max_block=1", workers=workers)
        assert done.returncode == 0, done.stderr
        assert seconds < 60
        check_others(project, site)
    assert f"{BAD}  took the worker down" in dead(project) or body is SWALLOWS
    assert "the worker" in dead(project)


DEATHS = {
    "os._exit(0)": "os._exit(0)",
    "os._exit(3)": "os._exit(3)",
    "segmentation fault": "ctypes.string_at(0)",
    "abort": "os.abort()",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
}


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("body", DEATHS.values(), ids=DEATHS)
def test_a_handler_that_takes_its_process_down(project: Project, body: str, workers: str) -> None:
    write(project, body)
    with SiteProcess(Site(pages=PAGES)) as site:
        done, _ = crawl(project, site, workers=workers)
        assert done.returncode == 0, done.stderr
        assert f"{site.url}p/7. The page is dead" in done.stderr
        check_others(project, site)
    assert "took the worker down: its process" in dead(project)
    times = len((project.folder / "reached").read_text())
    assert times <= 2


# What it does, and the reason that its page is dead.
HARMS = {
    "stops the loop": ("asyncio.get_running_loop().stop()", "must not stop the event loop"),
    "cancels all": ("for task in asyncio.all_tasks(): task.cancel()", "its handler cancelled tasks of the crawl"),
    "closes all files": ("os.closerange(0, 1024)", "its handler closed the files of the process"),
    "closes all other files": ("os.closerange(3, 1024)", "its handler closed the files of the process"),
    "limits files": (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1024, resource.RLIM_INFINITY))",
        "forbade files to grow",
    ),
}


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(("body", "reason"), HARMS.values(), ids=HARMS)
def test_a_handler_that_harms_its_process(project: Project, body: str, reason: str, workers: str) -> None:
    """The process fails after the handler has returned."""
    write(project, body)
    with SiteProcess(Site(pages=PAGES)) as site:
        done, seconds = crawl(project, site, workers=workers)
        assert done.returncode == 0, done.stderr
        assert seconds < 30
        check_others(project, site)
    assert reason in dead(project)
    # Once in each worker, until one of them fails; the worker that is started then finds the handler out.
    assert len((project.folder / "reached").read_text()) <= int(workers) + 1


DEAF = """
for number in signal.valid_signals():
    try:
        signal.signal(number, signal.SIG_IGN)
    except OSError:
        pass
while True: pass
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_handler_that_ignores_all_signals(project: Project, workers: str) -> None:
    write(project, DEAF)
    with SiteProcess(Site(pages=PAGES)) as site:
        done, seconds = crawl(project, site, "-s", "max_block=1", workers=workers)
        assert done.returncode == 0, done.stderr
        assert seconds < 60
        check_others(project, site)
    assert f"{BAD}  took the worker down: it blocked the worker" in dead(project)
    assert len((project.folder / "reached").read_text()) == 1


STARTS = """
import asyncio, os
from uttu import Spider

spider = Spider("pages", private=True, robots=False, delay=0, per_host=0)

@spider.start
async def start():
    for n in range({pages}):
        yield os.environ["START"] + "p/%d" % n
    while not os.path.exists("reached"):
        await asyncio.sleep(0)

@spider.page
async def page(page):
    if page.url.endswith("{bad}"):
        open("reached", "a").write("x")
        await asyncio.sleep(0.1)
        {body}
    yield {{"url": page.url}}
"""


def test_a_handler_that_blocks_when_the_start_function_ends(project: Project) -> None:
    """Both have a watchdog, and the end of one must not hide the heartbeat of the other."""
    project.write("spider.py", STARTS.format(pages=PAGES, bad=BAD, body=IN_C))
    with SiteProcess(Site(pages=PAGES)) as site:
        done, seconds = crawl(project, site, "-s", "max_block=1")
        assert done.returncode == 0, done.stderr
        assert seconds < 60
        check_others(project, site)
    assert f"{BAD}  took the worker down" in dead(project)


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


# The same, but its process does not survive it, and nobody knows which page it was.
LATER = {
    "exits in a thread": "import threading; threading.Timer(0.2, os._exit, (0,)).start()",
    "cancels all": """
async def cancel():
    await asyncio.sleep(0.2)
    for task in asyncio.all_tasks(): task.cancel()
asyncio.get_running_loop().task = asyncio.ensure_future(cancel())
""",
    "blocks in C": "import itertools; asyncio.get_running_loop().call_later(0.2, any, itertools.repeat(False))",
}


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("body", LATER.values(), ids=LATER)
def test_a_process_that_fails_after_its_handler(project: Project, body: str, workers: str) -> None:
    write(project, f"if not os.path.exists('once'):\n    open('once', 'w')\n{_indented(body)}")
    with SiteProcess(Site(pages=PAGES, latency=0.1)) as site:
        done, seconds = crawl(project, site, "-s", "max_block=1", "-s", "per_host=1", workers=workers)
        assert done.returncode == 0, done.stderr
        assert seconds < 60
    assert len({row["url"] for row in project.rows()}) == PAGES


def _indented(body: str) -> str:
    return "\n".join("    " + line for line in body.strip().splitlines())


def test_the_text_of_an_error_that_blocks(project: Project) -> None:
    write(project, "class Bad(Exception):\n    def __str__(self):\n        while True: pass\nraise Bad")
    with SiteProcess(Site(pages=PAGES)) as site:
        done, _ = crawl(project, site, "-s", "max_block=1")
        assert done.returncode == 0, done.stderr
        check_others(project, site)
    assert "Bad, whose text blocked the worker" in dead(project)


def test_a_generator_that_blocks_when_it_is_closed(project: Project) -> None:
    write(project, "try:\n    yield object()\nfinally:\n    time.sleep(70)")
    with SiteProcess(Site(pages=PAGES)) as site:
        done, _ = crawl(project, site, "-s", "max_block=1")
        assert done.returncode == 0, done.stderr
        check_others(project, site)
    assert "blocked the worker" in dead(project)


def test_a_loop_that_is_stopped_later_goes_on(project: Project) -> None:
    write(project, "asyncio.get_running_loop().call_later(0.1, asyncio.get_running_loop().stop)\ntime.sleep(0.2)")
    with SiteProcess(Site(pages=PAGES)) as site:
        done, _ = crawl(project, site)
        assert done.returncode == 0, done.stderr
        assert "stops the event loop" in done.stderr
    assert len(project.rows()) == PAGES


def test_a_process_that_dies_after_an_await(project: Project) -> None:
    write(project, "await asyncio.sleep(0.3)\nos._exit(0)", "async")
    with SiteProcess(Site(pages=PAGES)) as site:
        done, _ = crawl(project, site)
        assert done.returncode == 0, done.stderr
        check_others(project, site)
    assert "took the worker down" in dead(project)


def test_a_process_that_ends_outside_of_a_handler(project: Project) -> None:
    """There is no page to blame: the crawl is not started again, and says so."""
    write(project, "pass")
    spider = (project.folder / "spider.py").read_text()
    project.write("spider.py", spider + "\nos._exit(0)\n")
    with SiteProcess(Site(pages=PAGES)) as site:
        done, _ = crawl(project, site)
        assert done.returncode == 1
        assert "ended with exit code 0, and no handler was running" in done.stderr


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


def reached(project: Project) -> bool:
    return (project.folder / "reached").exists()


STUCK = {
    "loop": ("", "while True: pass"),
    "sleep": ("", "time.sleep(70)"),
    "regular expression": ("", 're.match(r"(a+)+$", "a" * 40 + "b")'),
    "in C": ("", IN_C),
    "swallows": ("", SWALLOWS),
    "hangs": ("async", "await asyncio.sleep(10**6)"),
    "hangs and swallows": (
        "async",
        "while True:\n    try:\n        await asyncio.sleep(10**6)\n    except BaseException:\n        pass",
    ),
}


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(("kind", "body"), STUCK.values(), ids=STUCK)
def test_a_second_signal_ends_a_crawl_whatever_runs(project: Project, kind: str, body: str, workers: str) -> None:
    write(project, body, kind)
    with SiteProcess(Site(pages=PAGES)) as site:
        process = project.start("crawl", "spider.py", "--workers", workers, START=site.url)
        wait_until(lambda: reached(project), "the handler runs")
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)  # as a person would
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130, err
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(("kind", "body"), STUCK.values(), ids=STUCK)
def test_sigterm_ends_a_crawl_within_its_grace(project: Project, kind: str, body: str, workers: str) -> None:
    write(project, body, kind)
    with SiteProcess(Site(pages=PAGES)) as site:
        process = project.start("crawl", "spider.py", "--workers", workers, START=site.url)
        wait_until(lambda: reached(project), "the handler runs")
        wait_for(site, PAGES // 2)
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        _, err = process.communicate(timeout=60)
        assert process.returncode == 143, err
        assert time.monotonic() - began < 15
        write(project, "pass")
        assert project.run("crawl", "spider.py", "-o", "out.jsonl", START=site.url).returncode == 0
        assert len(project.rows()) == PAGES, "the page was given back"


def test_one_interrupt_is_enough_where_it_can_be_interrupted(project: Project) -> None:
    write(project, "while True: pass")
    with SiteProcess(Site(pages=PAGES)) as site:
        process = project.start("crawl", "spider.py", START=site.url)
        wait_until(lambda: reached(project), "the handler runs")
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130, err
        assert time.monotonic() - began < 6


def test_stopping_the_process_that_was_started_stops_the_one_that_works(project: Project) -> None:
    write(project, "time.sleep(3)")
    with SiteProcess(Site(pages=PAGES)) as site:
        process = project.start("crawl", "spider.py", "-o", "out.jsonl", START=site.url)
        wait_until(lambda: reached(project), "the handler runs")
        (child,) = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: child.status() == psutil.STATUS_STOPPED, "the child stands still", 10)
        process.send_signal(signal.SIGCONT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert len(project.rows()) == PAGES


def test_killing_the_process_that_was_started_kills_the_one_that_works(project: Project) -> None:
    write(project, IN_C)
    with SiteProcess(Site(pages=PAGES)) as site:
        process = project.start("crawl", "spider.py", START=site.url)
        wait_until(lambda: reached(project), "the handler runs")
        (child,) = psutil.Process(process.pid).children()
        process.kill()
        process.communicate(timeout=10)
        project.wait_for_end([child.pid], 10)


@pytest.mark.parametrize("page", ["is not to blame", "is to blame"])
def test_a_restart_goes_on_with_the_crawl_and_does_not_start_again(project: Project, page: str) -> None:
    """Also with --fresh, which is for the first start only."""
    die = "os._exit(1)" if page == "is to blame" else "time.sleep(2)"
    write(project, die)
    with SiteProcess(Site(pages=PAGES)) as site:
        process = project.start("crawl", "spider.py", "--fresh", "-o", "out.jsonl", START=site.url)
        wait_until(lambda: reached(project), "the handler runs")
        if page == "is not to blame":
            psutil.Process(process.pid).children()[0].kill()
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert "resuming crawl pages" in err
        assert len(project.rows()) == PAGES - (page == "is to blame")


@pytest.mark.parametrize("to", ["the group", "the guardian", "the child"])
def test_a_signal_counts_once_whoever_gets_it(project: Project, to: str) -> None:
    """A terminal sends Ctrl-C to both processes. That is one request to end, not two: pages in flight are finished."""
    write(project, "await asyncio.sleep(2)", "async")
    with SiteProcess(Site(pages=PAGES)) as site:
        process = subprocess.Popen(
            [sys.executable, "-m", "uttu", "crawl", "spider.py", "-o", "out.jsonl"],
            cwd=project.folder,
            text=True,
            env=os.environ | {"START": site.url},
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        project.started.append(process)
        wait_until(lambda: reached(project), "the handler runs")
        if to == "the group":
            os.killpg(process.pid, signal.SIGINT)
        elif to == "the child":
            psutil.Process(process.pid).children()[0].send_signal(signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert f"{site.url}p/7" in {row["url"] for row in project.rows()}, err
        assert process.returncode in (0, 130), err
