"""The life of a crawl: limits, signals, resuming, starting again, arguments, outputs, the cache."""

from __future__ import annotations

import json
import signal
import sqlite3

import pyarrow.parquet
import pytest

from tests.crawl.conftest import SPIDER, Project, wait_for
from uttu.testing.site import Site, SiteProcess, fetches, gaps
from uttu.testing.site.pages import targets

CRAWL = ("crawl", "spider.py", "-o", "out.jsonl")


def test_a_limit_ends_a_crawl_and_resume_goes_on(project: Project) -> None:
    with SiteProcess(Site(pages=500)) as site:
        start = site.url + "p/0"
        first = project.run(*CRAWL, "--limit", "50", START=start)
        assert first.returncode == 0, first.stderr
        assert "ended at its limit of 50 pages" in first.stderr
        assert len(project.rows()) == 50
        assert len(site.records()) == 50
        again = project.run(*CRAWL, "--limit", "60", START=start)
        assert "starting a new one (--resume continues it)" in again.stderr
        assert len(project.rows()) == 60
        more = project.run(*CRAWL, "--resume", START=start)
        assert "resuming crawl pages: 60 done" in more.stderr
        assert len({row["url"] for row in project.rows()}) == len(project.rows()) == 500


def test_a_limit_is_exact_over_processes(project: Project) -> None:
    with SiteProcess(Site(pages=2000)) as site:
        done = project.run(*CRAWL, "--limit", "777", "--workers", "3", START=site.url + "p/0")
        assert done.returncode == 0, done.stderr
        assert len(project.rows()) == 777
        assert len(site.records()) == 777


@pytest.mark.parametrize(
    ("limit", "words", "least"),
    [
        ("max_bytes=60000", "60,000 bytes", 10),
        ("max_seconds=1", "1 seconds", 1),
    ],
)
def test_other_limits(project: Project, limit: str, words: str, least: int) -> None:
    with SiteProcess(Site(pages=100_000, latency=0.01)) as site:
        done = project.run(*CRAWL, "-s", limit, START=site.url + "p/0")
        assert done.returncode == 0, done.stderr
        assert f"ended at its limit of {words}" in done.stderr
        assert least <= len(project.rows()) == len(site.records()) < 100_000


@pytest.mark.parametrize("workers", ["1", "3"])
def test_a_limit_of_items_is_exact(project: Project, workers: str) -> None:
    project.write("spider.py", SPIDER.replace('yield {"url"', 'for number in range(100): yield {"n": number, "url"'))
    with SiteProcess(Site(pages=100_000)) as site:
        limited = *CRAWL, "--workers", workers, "-s"
        done = project.run(*limited, "max_items=25", START=site.url + "p/0")
        assert done.returncode == 0, done.stderr
        assert "ended at its limit of 25 items" in done.stderr
        assert len(project.rows()) == 25
        done = project.run(*limited, "max_items=3333", "--resume", START=site.url + "p/0")
        assert done.returncode == 0, done.stderr
        rows = project.rows()
        assert len(rows) == len({(row["url"], row["n"]) for row in rows}) == 3333
        # Pages are stored whole but for the two at which a limit was reached.
        whole = [url for url in {row["url"] for row in rows} if sum(row["url"] == url for row in rows) == 100]
        assert len(whole) == 33


def test_the_last_page_is_cut_at_the_limit_of_items(project: Project) -> None:
    project.write("spider.py", SPIDER.replace('yield {"url"', 'for number in range(100): yield {"n": number, "url"'))
    with SiteProcess(Site(pages=1)) as site:
        done = project.run(*CRAWL, "-s", "max_items=25", "-s", "max_depth=1", START=site.url + "p/0")
        assert done.returncode == 0, done.stderr
        assert "ended at its limit of 25 items" in done.stderr
        assert [row["n"] for row in project.rows()] == list(range(25))


def test_a_limit_of_depth(project: Project) -> None:
    """It ends no crawl: what is near enough is fetched to the last page."""
    described = Site(pages=100_000)
    with SiteProcess(described) as site:
        done = project.run(*CRAWL, "-s", "max_depth=1", START=site.url + "p/0")
        assert done.returncode == 0, done.stderr
        assert "finished" in done.stderr
        near = {0, *targets(described, 0)}
        assert sorted(row["url"] for row in project.rows()) == sorted(f"{site.url}p/{number}" for number in near)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_signal_drains(project: Project, number: signal.Signals, code: int, workers: str) -> None:
    with SiteProcess(Site(pages=1200, latency=0.05)) as site:
        process = project.start(*CRAWL, "--workers", workers, START=site.url + "p/0")
        wait_for(site, 200)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        assert process.returncode == code, err
        assert "the same command resumes it" in err
        assert project.leased() == set(), "all was settled or given back"
        assert len(project.rows()) == len(site.records()), "what was fetched was kept"
        last = project.run(*CRAWL, "--workers", workers, START=site.url + "p/0")
        assert last.returncode == 0, last.stderr
        assert set(fetches(site.records()).values()) == {1}
        assert len(project.rows()) == 1200


def test_a_second_signal_stops_at_once(project: Project) -> None:
    with SiteProcess(Site(pages=100)) as site:
        process = project.start(*CRAWL, "-s", "read_timeout=25", START=f"{site.url}odd/hang {site.url}p/0")
        wait_for(site, 101)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "press Ctrl-C again to stop at once" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)
        assert process.returncode == 130
        assert project.leased() == set()


HANGING = SPIDER.replace("def page", "async def page").replace(
    "yield {",
    """if page.url.endswith("/p/7"):
        import asyncio
        await asyncio.sleep(10_000)
    yield {""",
)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_handler_that_hangs_does_not_keep_a_crawl_from_its_limit(project: Project, workers: str) -> None:
    project.write("spider.py", HANGING)
    with SiteProcess(Site(pages=20)) as site:
        limited = ("--max-time", "2", "-s", "timeout=0.5", "--workers", workers)
        done = project.run(*CRAWL, *limited, START=site.url + "p/0")
        assert done.returncode == 0, done.stderr
        assert "ended at its limit of 2 seconds. 19 pages, 19 items" in done.stderr
        assert f"still in flight at the end, and put back into the queue: {site.url}p/7" in done.stderr
        assert project.leased() == set()
        project.write("spider.py", SPIDER)
        assert project.run(*CRAWL, "--resume", START=site.url + "p/0").returncode == 0
    assert len({row["url"] for row in project.rows()}) == len(project.rows()) == 20


def test_a_crawl_that_is_interrupted_says_what_it_waits_for(project: Project) -> None:
    project.write("spider.py", HANGING)
    with SiteProcess(Site(pages=20)) as site:
        process = project.start(*CRAWL, START=site.url + "p/0")
        wait_for(site, 20)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        while f"stopping, waits for {site.url}p/7" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 143
        assert f"put back into the queue: {site.url}p/7" in err


def test_fresh_starts_again(project: Project) -> None:
    with SiteProcess(Site(pages=2000, latency=0.02)) as site:
        process = project.start(*CRAWL, START=site.url + "p/0")
        wait_for(site, 200)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        done = project.run(*CRAWL, "--fresh", "--limit", "30", START=site.url + "p/0")
        assert done.returncode == 0, done.stderr
        assert "resuming" not in done.stderr
        assert len(project.rows()) == 30


def test_a_finished_crawl_starts_anew(project: Project) -> None:
    with SiteProcess(Site(pages=20)) as site:
        for _ in range(2):
            done = project.run(*CRAWL, START=site.url + "p/0")
            assert done.returncode == 0, done.stderr
            assert len(project.rows()) == 20
        assert set(fetches(site.records()).values()) == {2}


def test_a_finished_crawl_that_is_resumed_is_kept(project: Project) -> None:
    with SiteProcess(Site(pages=20)) as site:
        start = site.url + "p/0"
        assert project.run(*CRAWL, START=start).returncode == 0
        done = project.run(*CRAWL, "-o", "new.jsonl", "--resume", START=start)
        assert done.returncode == 0, done.stderr
        assert "crawl pages has finished: there is nothing to resume" in done.stderr
        assert set(fetches(site.records()).values()) == {1}
    assert len(project.rows()) == len(project.rows("new.jsonl")) == 20


def test_to_start_again_and_to_go_on_is_wrong_usage(project: Project) -> None:
    both = project.run(*CRAWL, "--fresh", "--resume", START="http://127.77.0.9:9/")
    assert both.returncode == 2, both.stderr
    assert not (project.folder / ".uttu").exists()


def test_outputs_of_every_kind_at_once(project: Project) -> None:
    with SiteProcess(Site(pages=50)) as site:
        outputs = [word for name in ("a.jsonl", "b.csv", "c.parquet", "d.db", "e.json", "-") for word in ("-o", name)]
        done = project.run("crawl", "spider.py", *outputs, START=site.url + "p/0")
        assert done.returncode == 0, done.stderr
    expected = sorted(row["url"] for row in project.rows("a.jsonl"))
    assert len(expected) == 50
    assert sorted(json.loads(line)["url"] for line in done.stdout.splitlines()) == expected
    assert sorted(line.split(",")[0] for line in (project.folder / "b.csv").read_text().splitlines()[1:]) == expected
    assert sorted(pyarrow.parquet.read_table(project.folder / "c.parquet")["url"].to_pylist()) == expected
    with sqlite3.connect(project.folder / "d.db") as db:
        assert sorted(url for (url,) in db.execute("SELECT url FROM items")) == expected
    db.close()
    assert sorted(row["url"] for row in json.loads((project.folder / "e.json").read_text())) == expected


def test_arguments_make_it_another_crawl(project: Project) -> None:
    project.write(
        "spider.py",
        SPIDER.replace("private=True", 'private=True, args={"tag": "none"}').replace(
            '"title"', '"tag": spider.args["tag"], "title"'
        ),
    )
    with SiteProcess(Site(pages=3)) as site:
        project.run("crawl", "spider.py", "-o", "a.jsonl", "-a", "tag=x", START=site.url + "p/0")
        project.run("crawl", "spider.py", "-o", "b.jsonl", START=site.url + "p/0")
        unknown = project.run("crawl", "spider.py", "-a", "colour=red", START=site.url + "p/0")
    assert {row["tag"] for row in project.rows("a.jsonl")} == {"x"}
    assert {row["tag"] for row in project.rows("b.jsonl")} == {"none"}
    assert len(list((project.folder / ".uttu" / "crawls").glob("*.db"))) == 2
    assert unknown.returncode == 2
    assert "takes no argument colour; it takes: tag" in unknown.stderr


def test_the_cache_replays(project: Project) -> None:
    with SiteProcess(Site(pages=30)) as site:
        start = site.url + "p/0"
        assert project.run(*CRAWL, "--cache", START=start).returncode == 0
        assert len(site.records()) == 30
        assert project.run(*CRAWL, "--cache", START=start).returncode == 0
        assert len(site.records()) == 30, "all came from the cache"
    offline = project.run(*CRAWL, "--cache", START=start)
    assert offline.returncode == 0, offline.stderr
    assert len(project.rows()) == 30


def test_pages_from_the_cache_wait_for_no_delay(project: Project) -> None:
    """With an hour between two pages, not even two would come in the time of the crawl."""
    with SiteProcess(Site(pages=30)) as site:
        start = site.url + "p/0"
        assert project.run(*CRAWL, "--cache", START=start).returncode == 0
    slow = ("-s", "delay=3600", "-s", "per_host=1", "-s", "max_seconds=20")
    again = project.run(*CRAWL, "--cache", *slow, START=start)
    assert again.returncode == 0, again.stderr
    assert "pages: finished. 30 pages" in again.stderr
    assert len(project.rows()) == 30
    assert "from the cache" in project.run("why", start, START=start).stdout


def test_fail_on(project: Project) -> None:
    with SiteProcess(Site(pages=10)) as site:
        start = f"{site.url}p/0 {site.url}odd/status/404"
        broken = project.run("crawl", "spider.py", "--fail-on", "error_rate>0.05", "--fail-on", "items<5", START=start)
        assert broken.returncode == 5
        assert "Condition met: error_rate>0.05 (--fail-on)" in broken.stderr
        assert "items<5" not in broken.stderr
        fine = project.run("crawl", "spider.py", "--fail-on", "error_rate>50%", START=start)
        assert fine.returncode == 0


def test_a_summary_as_json(project: Project) -> None:
    with SiteProcess(Site(pages=10)) as site:
        done = project.run("crawl", "spider.py", "--json", START=f"{site.url}p/0 {site.url}odd/status/404")
        summary = json.loads(done.stdout)
        assert summary["state"] == "finished"
        assert (summary["crawl"], summary["outputs"]) == ("pages", [])
        assert summary["seconds"] > 0
        assert (summary["done"], summary["items"], summary["dead"], summary["dead_kinds"]) == (10, 10, 1, {"http": 1})


TALKATIVE = (
    SPIDER.replace("    yield {", "    print('from a handler')\n    os.system('echo from a program')\n    yield {", 1)
    + """
print("from the file")

@spider.use
async def talk(request, next):
    print("from a middleware")
    return await next(request)
"""
)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("wanted", [("-o", "-"), ("--json",)])
def test_what_a_spider_prints_stays_out_of_the_items(project: Project, wanted: tuple[str, ...], workers: str) -> None:
    project.write("spider.py", TALKATIVE)
    with SiteProcess(Site(pages=5)) as site:
        done = project.run("crawl", "spider.py", *wanted, "--workers", workers, START=site.url + "p/0")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if "-" in wanted:
        assert sorted(line["url"] for line in lines) == sorted(f"{site.url}p/{number}" for number in range(5))
    else:
        assert [line["items"] for line in lines] == [5]
    for place in ("a handler", "a program", "a middleware"):
        assert done.stderr.count(f"from {place}\n") == 5
    assert "from the file\n" in done.stderr


def test_what_a_spider_prints_is_left_alone_where_nothing_else_is(project: Project) -> None:
    project.write("spider.py", TALKATIVE)
    with SiteProcess(Site(pages=2)) as site:
        done = project.run(*CRAWL, START=site.url + "p/0")
    assert done.stdout.count("from a handler\n") == 2


def test_sitemaps_lead_to_everything(project: Project) -> None:
    project.write(
        "spider.py", SPIDER.replace("start=os", "sitemap=os").replace("yield page.follow_all", "page.follow_all")
    )
    with SiteProcess(Site(pages=40, products=12)) as site:
        done = project.run(*CRAWL, START=site.url)
        assert done.returncode == 0, done.stderr
        urls = {row["url"] for row in project.rows()}
        assert {f"{site.url}p/{n}" for n in range(40)} <= urls
        assert len([url for url in urls if "/shop/product/" in url]) == 12


def sequence(pages: dict[int, list[int]], order: str) -> list[int]:
    """The sequence in which pages are fetched one by one from page 0 on; their priority is their last digit."""
    queue, fetched = [0], []
    while queue:
        match order:
            case "fifo":
                number = queue[0]
            case "lifo":
                number = queue[-1]
            case _:
                number = max(queue, key=lambda each: each % 10)  # the first of the highest
        queue.remove(number)
        fetched.append(number)
        queue += [each for each in dict.fromkeys(pages[number]) if each not in queue and each not in fetched]
    return fetched


@pytest.mark.parametrize("order", ["fifo", "lifo", "priority"])
def test_orders(project: Project, order: str) -> None:
    follow = "[Request(url=each.url, priority=int(each.url[-1])) for each in page.follow_all('a')]"
    spider = SPIDER.replace('page.follow_all("a")', follow).replace("import Page", "import Page, Request")
    project.write("spider.py", spider)
    described = Site(pages=40, links=3)
    with SiteProcess(described) as site:
        done = project.run(*CRAWL, "-s", f"order={order}", "-s", "per_host=1", START=site.url + "p/0")
        assert done.returncode == 0, done.stderr
        fetched = [int(record.path.rpartition("/")[2]) for record in site.records()]
    assert fetched == sequence({number: targets(described, number) for number in range(40)}, order)
    assert [int(row["url"].rpartition("/")[2]) for row in project.rows()] == fetched


def test_a_new_delay_holds_for_a_resumed_crawl(project: Project) -> None:
    with SiteProcess(Site(pages=2000)) as site:
        process = project.start(*CRAWL, START=site.url + "p/0")
        wait_for(site, 200)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        before = len(site.records())
        slow = ("-s", "delay=0.2", "-s", "per_host=1", "-s", "max_seconds=1.5")
        assert project.run(*CRAWL, *slow, START=site.url + "p/0").returncode == 0
        assert min(gaps(site.records()[before:])["127.77.0.1"]) >= 0.2


def test_a_crawl_that_can_not_begin_keeps_the_former_one(project: Project) -> None:
    with SiteProcess(Site(pages=10)) as site:
        start = site.url + "p/0"
        assert project.run(*CRAWL, START=start).returncode == 0
        twice = project.run(*CRAWL, "-o", "out.jsonl", START=start)
        assert twice.returncode == 2, twice.stderr
        (project.folder / "no.csv").mkdir()
        unwritable = project.run("crawl", "spider.py", "-o", "no.csv", START=start)
        assert unwritable.returncode == 1, unwritable.stderr
        kept = project.run("export", "pages", "-o", "kept.jsonl")
        assert kept.returncode == 0, kept.stderr
        assert len(project.rows("kept.jsonl")) == 10


@pytest.mark.parametrize("command", ["crawl", "worker"])
def test_a_name_that_leads_elsewhere_is_wrong_usage(project: Project, command: str) -> None:
    project.write("mine.db", "not a crawl")
    done = project.run(command, "spider.py", "--crawl", "../../mine", START="http://127.77.0.9:9/")
    assert done.returncode == 2, done.stderr
    assert "Invalid crawl name '../../mine': use letters, digits" in done.stderr
    assert (project.folder / "mine.db").read_text() == "not a crawl"
    assert not (project.folder / ".uttu").exists()


def test_a_worker_does_not_wake_a_crawl_that_ended(project: Project) -> None:
    with SiteProcess(Site(pages=300)) as site:
        assert project.run(*CRAWL, "--limit", "20", START=site.url + "p/0").returncode == 0
        late = project.run("worker", "spider.py", START=site.url + "p/0")
        assert late.returncode == 1
        assert "is not running (limited). Start it with: uttu crawl" in late.stderr
        assert len(site.records()) == 20


def test_nothing_but_the_crawl_is_left_behind(project: Project) -> None:
    with SiteProcess(Site(pages=30)) as site:
        assert project.run(*CRAWL, "--workers", "2", START=site.url + "p/0").returncode == 0
    left = sorted(str(path.relative_to(project.folder / ".uttu")) for path in (project.folder / ".uttu").rglob("*"))
    assert left == [
        "crawls",
        "crawls/pages.db",
        "crawls/pages.db.lock",
        "crawls/pages.db.supervisor",
        "crawls/pages.db.workers",
    ]


def test_no_page_at_all(project: Project) -> None:
    done = project.run(*CRAWL, "-s", "retries=0", START="http://127.77.0.9:9/")
    assert done.returncode == 1
    assert "0 pages, 0 items, 1 dead" in done.stderr
    assert "no page could be fetched. Last error: http://127.77.0.9:9/: cannot connect to 127.77.0.9:9" in done.stderr
    conditions = "--fail-on", "dead>0"
    assert project.run(*CRAWL, "-s", "retries=0", *conditions, START="http://127.77.0.9:9/").returncode == 5


@pytest.mark.parametrize(
    ("paths", "flags", "code"),
    [
        (["odd/status/404"], (), 1),
        (["odd/status/404", "odd/status/500"], ("--workers", "2"), 1),
        (["odd/status/404", "odd/status/410", "odd/status/403"], ("--limit", "2"), 1),
        (["odd/redirect/to?url=/odd/status/404"], (), 1),
        (["odd/redirect/loop"], (), 1),
        (["private/1"], ("-s", "robots=true", "-s", "delay=0.01"), 1),
        (["odd/status/404", "odd/redirect/0"], (), 0),
        (["odd/redirect/to?url=/odd/redirect/0"], (), 0),
        (["odd/redirect/to?url=http://elsewhere.example/"], ("-s", "domains=127.77.0.1"), 0),
    ],
)
def test_the_exit_code_when_pages_are_dead(
    project: Project, paths: list[str], flags: tuple[str, ...], code: int
) -> None:
    with SiteProcess(Site(pages=5)) as site:
        start = " ".join(site.url + path for path in paths)
        done = project.run(*CRAWL, "-s", "retries=0", *flags, START=start)
        assert done.returncode == code, done.stderr
        assert ("no page could be fetched" in done.stderr) is (code == 1)
        summary = project.run(*CRAWL, "-s", "retries=0", "--fresh", "--json", *flags, START=start)
        assert summary.returncode == code, summary.stderr


def test_a_crawl_that_finished_well_has_nothing_to_go_on_with(project: Project) -> None:
    with SiteProcess(Site(pages=3)) as site:
        start = f"{site.url}p/0 {site.url}odd/status/404"
        assert project.run(*CRAWL, START=start).returncode == 0
        assert project.run(*CRAWL, "--resume", START=start).returncode == 0


def test_nothing_to_start_from(project: Project) -> None:
    done = project.run(*CRAWL, START="")
    assert done.returncode == 0
    assert "finished. 0 pages" in done.stderr
    assert "there was nothing to start from: give the spider start=" in done.stderr


def test_a_start_that_was_interrupted_is_not_finished(project: Project) -> None:
    """With nothing in the queue for the moment, there are still pages to start with."""
    slow = """
@spider.start
async def start():
    import asyncio
    for number in range(6):
        yield f"{os.environ['START']}p/{number}"
        await asyncio.sleep(0.7)
"""
    project.write(
        "spider.py", SPIDER.replace('start=os.environ["START"].split(), ', "").replace("yield page", "page") + slow
    )
    with SiteProcess(Site(pages=10)) as site:
        process = project.start(*CRAWL, START=site.url)
        wait_for(site, 2)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 143, err
        last = project.run(*CRAWL, START=site.url)
        assert "resuming" in last.stderr
        assert len(project.rows()) == 6


def test_a_start_function_that_pauses_holds_nothing_up(project: Project) -> None:
    pausing = """
@spider.start
async def start():
    import asyncio
    yield f"{os.environ['FIRST']}p/0"
    yield f"{os.environ['FIRST']}p/1"
    await asyncio.sleep(3600)
"""
    project.write("spider.py", SPIDER.replace("yield page.follow_all", "page.follow_all") + pausing)
    with SiteProcess(Site(pages=10)) as site:
        done = project.run(*CRAWL, "--limit", "2", START="", FIRST=site.url)
        assert done.returncode == 0, done.stderr
        assert "ended at its limit of 2 pages" in done.stderr
        assert len(project.rows()) == 2


@pytest.mark.parametrize("urls", [1, 2500])
def test_a_start_function_that_raises(project: Project, urls: int) -> None:
    """Before the crawl has begun, and amid it."""
    raising = f"""
@spider.start
def start():
    for number in range({urls}):
        yield f"{{os.environ['FIRST']}}p/{{number}}"
    if "MENDED" not in os.environ:
        raise ValueError("no such list")
"""
    project.write("spider.py", SPIDER.replace("yield page.follow_all", "page.follow_all") + raising)
    with SiteProcess(Site(pages=3000)) as site:
        failed = project.run(*CRAWL, START="", FIRST=site.url)
        assert failed.returncode == 1, failed.stderr
        message = failed.stderr[failed.stderr.index("uttu: @spider.start of spider.py raised:") :]
        assert [line.split(",")[-1].strip() for line in message.splitlines()] == [
            "uttu: @spider.start of spider.py raised:",
            "in start",
            'raise ValueError("no such list")',
            "ValueError: no such list",
        ]
        (standing,) = json.loads(project.run("status", "--json").stdout)
        assert standing["state"] == "stopped"
        assert standing["reason"] == "@spider.start raised ValueError: no such list"
        counts = standing["counts"]
        # One that raises before the crawl has begun is as if it had given nothing.
        assert counts["pending"] + counts["done"] == (0 if urls == 1 else urls)
        last = project.run(*CRAWL, START="", FIRST=site.url, MENDED="yes")
        assert last.returncode == 0, last.stderr
        assert len(project.rows()) == urls
        assert set(fetches(site.records()).values()) == {1}


def test_a_start_function_that_raises_leaves_the_former_crawl_alone(project: Project) -> None:
    with SiteProcess(Site(pages=10)) as site:
        assert project.run(*CRAWL, START=site.url + "p/0").returncode == 0
        project.write("spider.py", SPIDER + "\n@spider.start\ndef start():\n    raise ValueError\n")
        assert project.run(*CRAWL, START=site.url + "p/0").returncode == 1
        (standing,) = json.loads(project.run("status", "--json").stdout)
        assert (standing["state"], standing["counts"]["items"]) == ("finished", 10)


def test_a_bad_proxy_leaves_the_former_crawl_alone(project: Project) -> None:
    with SiteProcess(Site(pages=10)) as site:
        assert project.run(*CRAWL, START=site.url + "p/0").returncode == 0
        assert project.run(*CRAWL, "-s", "proxy=foo://x", START=site.url + "p/0").returncode == 3
        assert project.run("export", "pages", "-o", "kept.jsonl").returncode == 0
        assert len(project.rows("kept.jsonl")) == 10
