"""``uttu demo``: crawl a local site, kill the crawl with -9, run the same command again, and check the result.

Nothing is simulated. The site is a separate process that answers over HTTP and keeps a log. The crawl is the command
``uttu crawl`` in a temporary folder, and all its processes are killed at once. The claims at the end are checked
against the output file and the site's log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.syntax import Syntax

from uttu.cli.output import Screen, format_count
from uttu.errors import FAILED, UttuError
from uttu.model.lease import RequestState
from uttu.model.url import fingerprint
from uttu.operations.crawls import BrokenState, CrawlHandle, connect_frontier, list_crawls, open_store
from uttu.testing.site import Site, SiteProcess, fetches, gaps
from uttu.testing.site.model import Layout

_LOOK_SECONDS = 0.1
_MAX_SECONDS = 60.0  # for the crawl to reach the kill
# Only the last requests in the site's log can be in flight: a page is settled soon after its response.
_LAST_REQUESTS = 500


class KilledCrawl(msgspec.Struct, frozen=True):
    """The state of a crawl when it was killed. ``in_flight``: host and path of pages that were not settled yet."""

    processes: int
    done: int
    leased: int
    in_flight: frozenset[tuple[str, str]]


def kill_crawl_at(child: subprocess.Popen[bytes], folder: Path, pages: int, site: SiteProcess) -> KilledCrawl:
    """Wait until the crawl of ``child`` in ``folder`` has done ``pages`` pages, then kill it and its workers with -9.

    :raises UttuError: the crawl ended by itself, or took more than ``_MAX_SECONDS``.
    """
    try:
        return asyncio.run(_kill_at(child, folder, pages, site))
    except BaseException:
        child.kill()
        raise
    finally:
        child.wait()


async def _kill_at(child: subprocess.Popen[bytes], folder: Path, pages: int, site: SiteProcess) -> KilledCrawl:
    async with connect_frontier("", folder) as catalog:
        while not (
            names := [each.name for each in await list_crawls(catalog) if each.state is not BrokenState.UNREADABLE]
        ):
            # The file of a crawl exists for a moment before its tables do.
            if child.poll() is not None:
                raise UttuError("The demo's crawl did not start; its message is above")
            await asyncio.sleep(_LOOK_SECONDS)
        async with open_store(catalog, names[0]) as store:
            return await _kill(child, CrawlHandle(catalog, names[0], store), pages, site)


async def _kill(child: subprocess.Popen[bytes], crawl: CrawlHandle, pages: int, site: SiteProcess) -> KilledCrawl:
    began = time.monotonic()
    while (await crawl.store.frontier.counts()).done < pages:
        if child.poll() is not None or time.monotonic() - began > _MAX_SECONDS:
            raise UttuError("The demo's crawl ended before it could be killed")
        await asyncio.sleep(_LOOK_SECONDS)
    reports = (await crawl.status()).workers.values()
    processes = {child.pid, *(report.pid for _, report in reports)}
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    child.wait()
    counts = (await crawl.status()).counts
    return KilledCrawl(len(processes), counts.done, counts.leased, await _in_flight(crawl, site))


async def _in_flight(crawl: CrawlHandle, site: SiteProcess) -> frozenset[tuple[str, str]]:
    """The last requests in the site's log whose pages are still leased."""
    found = set()
    for record in site.records()[-_LAST_REQUESTS:]:
        url = f"{site.site.scheme}://{record.host}:{urlsplit(site.url).port}{record.path}"
        if (await crawl.store.inspector.trace(fingerprint(url))).state is RequestState.LEASED:
            found.add((record.host, record.path))
    return frozenset(found)


class DemoResult(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that the claims are based on."""

    rows: int
    pages: int
    missing: int
    double: int
    killed_at: int
    in_flight: int
    refetched: int
    needlessly: int
    forbidden: int
    shortest_gap: float
    delay: float
    sample: list[dict[str, str]]

    @property
    def good(self) -> bool:
        return all(good for _, good in self.claims())

    def claims(self) -> list[tuple[str, bool]]:
        """The claims as sentences, and whether each is true."""
        return [
            (
                f"exactly one row for every page: {self.rows:,} rows, {self.pages:,} pages",
                not self.missing and not self.double and self.rows == self.pages,
            ),
            (
                "only pages that were in flight at the kill were fetched twice: "
                f"{self.refetched:,} of {self.in_flight:,}",
                not self.needlessly,
            ),
            ("nothing fetched that robots.txt forbids", not self.forbidden),
            (
                f"no host got requests more often than every {self.delay * 1000:.0f} ms, over all processes: "
                f"at least {self.shortest_gap * 1000:.1f} ms apart",
                self.shortest_gap >= self.delay,
            ),
        ]


def check_demo(output: Path, site: SiteProcess, killed: KilledCrawl, delay: float) -> DemoResult:
    """Compare the output and the site's log with the pages of the site."""
    rows = [msgspec.json.decode(line, type=dict[str, str]) for line in output.read_bytes().splitlines()]
    urls = Counter(row["url"] for row in rows)
    layout = Layout(site.site, tuple(url.rstrip("/") for url in site.urls))
    expected = {layout.page_url(page) for page in range(site.site.pages)}
    expected |= {f"{layout.origins[0]}/shop/product/{sku}" for sku in range(1, site.site.products + 1)}
    records = site.records()
    # The broken page is retried on purpose.
    asked = fetches(record for record in records if not record.path.startswith("/odd/"))
    again = {page for page, count in asked.items() if count > 1}
    return DemoResult(
        rows=len(rows),
        pages=len(expected),
        missing=len(expected - urls.keys()),
        double=sum(count > 1 for count in urls.values()),
        killed_at=killed.done,
        in_flight=killed.leased,
        refetched=len(again),
        needlessly=len(again - killed.in_flight) + sum(count > 2 for count in asked.values()),
        forbidden=sum(path.startswith("/private/") for _, path in asked),
        shortest_gap=min(gap for found in gaps(records).values() for gap in found),
        delay=delay,
        sample=[*rows[:3], *[row for row in rows if "/shop/" in row["url"]][:2]],
    )


_SPIDER = Path(__file__).with_name("templates") / "demo_spider.py"
_OUTPUT = "items.jsonl"
_DELAY = 0.03  # seconds, as in the spider
_PER_HOST = 200
_PRODUCTS = 60
# The share of the site that is crawled before the kill.
_KILL_SHARE = 0.35


class Demonstration:
    """One run of the demo. ``quiet``: print only the numbers at the end, as JSON."""

    def __init__(self, pages: int, workers: int, *, quiet: bool) -> None:
        self._pages = pages
        self._workers = workers
        self._quiet = quiet
        self._console = Console(highlight=False, quiet=quiet)

    def run(self) -> int:
        """Run the demo. Returns the exit code: 0 if all claims are true."""
        with _serve_site(self._pages) as site, tempfile.TemporaryDirectory(prefix="uttu-demo-") as folder:
            shutil.copy(_SPIDER, folder)
            self._introduce(site)
            killed = self._crawl_and_kill(site, Path(folder))
            self._crawl_on(site, Path(folder))
            checked = check_demo(Path(folder, _OUTPUT), site, killed, _DELAY)
            if self._quiet:
                print(msgspec.json.encode(checked).decode())
            else:
                self._conclude(checked)
                self._ask_why(site, Path(folder))
                self._take_leave()
        return 0 if checked.good else FAILED

    def _introduce(self, site: SiteProcess) -> None:
        self._head("The spider", "this is the whole spider")
        # Skip the first line, a comment for the type checker.
        code = "".join(_SPIDER.read_text().splitlines(keepends=True)[1:])
        if self._console.is_terminal:
            code_in_colours = Syntax(code, "python", theme="ansi_dark", background_color="default")
            self._console.print(Padding(code_in_colours, (0, 0, 0, 2)))
        else:
            self._console.print(textwrap.indent(code, "  "), markup=False, soft_wrap=True)
        hosts = format_count(len(site.urls), "host")
        self._head("The site", f"{self._pages:,} pages and a shop on {hosts} of this machine, {site.url} and so on")

    def _crawl_and_kill(self, site: SiteProcess, folder: Path) -> KilledCrawl:
        self._head("The crawl", "and when a third is done, kill -9")
        child = self._start(self._command(site), folder)
        killed = kill_crawl_at(child, folder, round(self._pages * _KILL_SHARE), site)
        if sys.stderr.isatty() and not self._quiet:
            # The live view hid the cursor and was killed before it could show it again.
            print("\x1b[?25h", file=sys.stderr)
        self._line(
            f"kill -9 of {format_count(killed.processes, 'process', 'processes')}: no process had time to clean up.",
            "bold red",
        )
        self._run(["status"], folder)
        return killed

    def _crawl_on(self, site: SiteProcess, folder: Path) -> None:
        self._head("The same command again", "it continues where it stopped")
        if code := _wait(self._start(self._command(site), folder)):
            raise UttuError(f"The demo's crawl failed with exit code {code}; its message is above")

    def _conclude(self, checked: DemoResult) -> None:
        self._head("The result", f"counted in {_OUTPUT} and in the site's own log")
        rows = [(each["title"], each["price"], each["url"]) for each in checked.sample]
        Screen().table(("title", "price", "url"), rows, indent=2)
        self._line("")
        for text, good in checked.claims():
            mark = "[bold green]yes[/]" if good else "[bold red]NO [/]"
            self._console.print(f"  {mark}  {text}", soft_wrap=True)

    def _ask_why(self, site: SiteProcess, folder: Path) -> None:
        self._head("What happened to …", "uttu why explains every URL")
        for path in ("private/", "odd/status/500", "odd/redirect/to?url=/p/0"):
            self._run(["why", site.url + path], folder)

    def _take_leave(self) -> None:
        self._head("Your turn", "")
        for command, what in (
            ("uttu new NAME https://example.org/", "writes a spider to start from"),
            ("uttu shell https://example.org/", "tries selectors on a page"),
            ("uttu crawl NAME.py -o items.jsonl", "runs it"),
        ):
            self._console.print(f"  [bold]{command:38}[/] [dim]{what}[/]", soft_wrap=True)
        self._line("")

    def _command(self, site: SiteProcess) -> list[str]:
        workers = ["--workers", str(self._workers)] if self._workers > 1 else []
        return ["crawl", _SPIDER.name, "-a", f"site={site.url}", "-o", _OUTPUT, *workers]

    def _start(self, words: list[str], folder: Path) -> subprocess.Popen[bytes]:
        self._console.print(f"  [bold]$ uttu {shlex.join(words)}[/]", soft_wrap=True)
        nowhere = subprocess.DEVNULL if self._quiet else None
        # -P: don't import modules from the temporary folder. The user's settings must not affect the demo.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("UTTU_")}
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "uttu", *words], cwd=folder, env=environment, stdout=nowhere, stderr=nowhere
        )

    def _run(self, words: list[str], folder: Path) -> None:
        if not self._quiet:
            _wait(self._start(words, folder))

    def _head(self, title: str, rest: str) -> None:
        self._console.print(f"\n[bold cyan]{title}[/]" + (f"[dim]: {rest}[/]" if rest else ""), soft_wrap=True)

    def _line(self, text: str, style: str = "") -> None:
        self._console.print(f"  {text}" if text else "", style=style or None, soft_wrap=True)


def _wait(child: subprocess.Popen[bytes]) -> int:
    try:
        return child.wait()
    except BaseException:
        # Ctrl-C reached the child, too. Wait for it before its folder is removed.
        child.terminate()
        child.wait()
        raise


@contextlib.contextmanager
def _serve_site(pages: int) -> Iterator[SiteProcess]:
    """A site on many loopback addresses, or on 127.0.0.1 alone if the system has no others."""
    hosts = max(2, min(200, pages // _PER_HOST))
    with contextlib.ExitStack() as stack:
        try:
            site = stack.enter_context(SiteProcess(Site(hosts=hosts, pages=pages, products=_PRODUCTS)))
        except RuntimeError:
            site = stack.enter_context(SiteProcess(Site(base="127.0.0.1", pages=pages, products=_PRODUCTS)))
        yield site
