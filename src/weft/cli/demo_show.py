"""The demo, act by act: the spider, the crawl and its end by kill -9, the same command again, what came out.

Everything shown is real: the site answers over HTTP from a process of its own and keeps a log, the
crawl is the command ``weft crawl`` in a temporary folder, and what is claimed at the end is counted
in the output file and in the site's log.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.syntax import Syntax

from weft.cli.demo_checks import Checked, check
from weft.cli.demo_kill import Killed, kill_at
from weft.cli.exits import FAILED
from weft.cli.tables import Screen
from weft.cli.words import number
from weft.errors import WeftError
from weft.testing.site import Site, SiteProcess

_SPIDER = Path(__file__).with_name("templates") / "demo_spider.py"
_OUTPUT = "items.jsonl"
_DELAY = 0.03
_PER_HOST = 200
_PRODUCTS = 60
# So much of the site is crawled before the kill.
_SHARE = 0.35


class Show:
    """One performance. ``quiet``: nothing but the numbers at the end, as JSON."""

    def __init__(self, pages: int, workers: int, *, quiet: bool) -> None:
        self._pages = pages
        self._workers = workers
        self._quiet = quiet
        self._console = Console(highlight=False, quiet=quiet)

    def run(self) -> int:
        """Returns the exit code: 0 if everything was as promised."""
        with _site(self._pages) as site, tempfile.TemporaryDirectory(prefix="weft-demo-") as folder:
            shutil.copy(_SPIDER, folder)
            self._introduce(site)
            killed = self._crawl_and_kill(site, Path(folder))
            self._crawl_on(site, Path(folder))
            checked = check(Path(folder, _OUTPUT), site, killed, _DELAY)
            if self._quiet:
                print(msgspec.json.encode(checked).decode())
            else:
                self._conclude(checked)
                self._ask_why(site, Path(folder))
                self._take_leave()
        return 0 if checked.good else FAILED

    def _introduce(self, site: SiteProcess) -> None:
        self._head("The spider", "this is all the code there is")
        # The first line is for the type checker.
        code = "".join(_SPIDER.read_text().splitlines(keepends=True)[1:])
        if self._console.is_terminal:
            code_in_colours = Syntax(code, "python", theme="ansi_dark", background_color="default")
            self._console.print(Padding(code_in_colours, (0, 0, 0, 2)))
        else:
            self._console.print(textwrap.indent(code, "  "), markup=False, soft_wrap=True)
        hosts = number(len(site.urls), "host")
        self._head("The site", f"{self._pages:,} pages and a shop on {hosts} of this machine, {site.url} and so on")

    def _crawl_and_kill(self, site: SiteProcess, folder: Path) -> Killed:
        self._head("The crawl", "and when a third is done, kill -9")
        child = self._start(self._command(site), folder)
        killed = kill_at(child, folder, round(self._pages * _SHARE), site)
        if sys.stderr.isatty() and not self._quiet:
            # The live view hid the cursor, and had no chance to bring it back.
            print("\x1b[?25h", file=sys.stderr)
        self._line(
            f"kill -9 of {number(killed.processes, 'process', 'processes')}: nobody had time to clean up.", "bold red"
        )
        self._run(["status"], folder)
        return killed

    def _crawl_on(self, site: SiteProcess, folder: Path) -> None:
        self._head("The same command again", "it goes on where it was")
        if code := _wait(self._start(self._command(site), folder)):
            raise WeftError(f"the demo's crawl failed with exit code {code}; its message is above")

    def _conclude(self, checked: Checked) -> None:
        self._head("What came out", f"counted in {_OUTPUT} and in the site's own log")
        rows = [(each["title"], each["price"], each["url"]) for each in checked.sample]
        Screen().table(("title", "price", "url"), rows, indent=2)
        self._line("")
        for text, good in checked.claims():
            mark = "[bold green]yes[/]" if good else "[bold red]NO [/]"
            self._console.print(f"  {mark}  {text}", soft_wrap=True)

    def _ask_why(self, site: SiteProcess, folder: Path) -> None:
        self._head("What became of …", "every URL can be asked for")
        for path in ("private/", "odd/status/500", "odd/redirect/to?url=/p/0"):
            self._run(["why", site.url + path], folder)

    def _take_leave(self) -> None:
        self._head("Your turn", "")
        for command, what in (
            ("weft new NAME https://example.org/", "writes a spider to begin with"),
            ("weft shell https://example.org/", "tries selectors on a page"),
            ("weft crawl NAME.py -o items.jsonl", "runs it"),
        ):
            self._console.print(f"  [bold]{command:38}[/] [dim]{what}[/]", soft_wrap=True)
        self._line("")

    def _command(self, site: SiteProcess) -> list[str]:
        workers = ["--workers", str(self._workers)] if self._workers > 1 else []
        return ["crawl", _SPIDER.name, "-a", f"site={site.url}", "-o", _OUTPUT, *workers]

    def _start(self, words: list[str], folder: Path) -> subprocess.Popen[bytes]:
        self._console.print(f"  [bold]$ weft {shlex.join(words)}[/]", soft_wrap=True)
        nowhere = subprocess.DEVNULL if self._quiet else None
        # -P: the folder's own files are not taken for modules. The user's settings are not for this.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "weft", *words], cwd=folder, env=environment, stdout=nowhere, stderr=nowhere
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
        # Ctrl-C reached it, too; its folder must not go before it has.
        child.terminate()
        child.wait()
        raise


@contextlib.contextmanager
def _site(pages: int) -> Iterator[SiteProcess]:
    """A site on many addresses of this machine or, where a system has one only, on that."""
    hosts = max(2, min(200, pages // _PER_HOST))
    with contextlib.ExitStack() as stack:
        try:
            site = stack.enter_context(SiteProcess(Site(hosts=hosts, pages=pages, products=_PRODUCTS)))
        except RuntimeError:
            site = stack.enter_context(SiteProcess(Site(base="127.0.0.1", pages=pages, products=_PRODUCTS)))
        yield site
