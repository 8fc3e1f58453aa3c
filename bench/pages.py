"""The cost of a page by kind of page, of this source tree or of two source trees in turns.

    python -m bench.pages [KIND …] [--before PATH] [--after PATH] [--rounds 7] [--valgrind]

``--before`` and ``--after`` are folders with a ``src`` folder in them, such as worktrees; ``--after`` is this one by
default. Both run with the interpreter and the libraries of this environment.

Kinds, all of them unless some are named. Small pages have 6 KB and 32 links, large ones 60 to 300 KB and 200 links:

    small   title, price and all links of small pages
    async   the same with an asynchronous handler
    css     small pages, with a nested query in each of 30 list items
    tls     as small, over TLS with HTTP/1.1
    http2   as small, over TLS with HTTP/2
    large   large pages, with three nested queries in each of 30 cards
    xpath   the same by XPath
    links   as large, with 160 links more as authors write them: absolute, with fragments, to other sites, to no page
    start   a whole crawl of one page

A crawl is ``uttu crawl`` with one process, SQLite and a JSON Lines file; nginx serves the pages. It is run on a short
and on a long site. The cost of a page is the difference divided by the number of pages more, so the start does not
count. The trees run in turns and change places after each round. The tables have the medians of the rounds, and the
medians of the differences within each round.

Where ``perf stat`` can count instructions, they are counted too. Most virtual machines have no counters; there
``--valgrind`` counts instructions instead of measuring time, on few pages and in one round. Instructions do not depend
on what else the machine does.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from bench.common import table
from bench.side_by_side.measure import measure
from bench.side_by_side.scenarios import HTTP2, LARGE, PLAIN, TLS, Scenario
from bench.side_by_side.site import StaticSite

_ROOT: Final = Path(__file__).parents[1]
_LIMIT: Final = 1_800.0  # seconds, after which a crawl is killed

_SPIDER: Final = """\
import os
from {package} import Spider

spider = Spider("bench", start=os.environ["START_URL"], private=True, robots=False, delay=0, per_host=0, verify=False)

@spider.page
{handler}
"""
_SMALL: Final = """\
def page(page):
    yield {"url": page.url, "title": page.css("title::text").get(), "price": page.css("span.price::text").get()}
    yield page.follow_all("a")
"""
_CSS: Final = """\
def page(page):
    yield {"url": page.url, "links": [row.css("a::attr(href)").get() for row in page.css("li")[:30]]}
    yield page.follow_all("a")
"""
_LARGE: Final = """\
def page(page):
    cards = [
        (card.css("h3 a::text").get(), card.css("span.amount::text").get(), card.css("li.tag::text").getall())
        for card in page.css("div.card")[:30]
    ]
    yield {"url": page.url, "cards": cards}
    yield page.follow_all("a")
"""
_XPATH: Final = """\
def page(page):
    cards = [
        (
            card.xpath(".//h3/a/text()").get(),
            card.xpath(".//span[@class='amount']/text()").get(),
            card.xpath(".//li[@class='tag']/text()").getall(),
        )
        for card in page.xpath("//div[@class='card']")[:30]
    ]
    yield {"url": page.url, "cards": cards}
    yield page.follow_all(page.xpath("//a"))
"""


class Kind(NamedTuple):
    """``timed`` and ``counted`` are the pages of the short and the long site, for time and for valgrind."""

    scenario: Scenario
    handler: str
    timed: tuple[int, int]
    counted: tuple[int, int]


_FEW: Final = ((500, 8_000), (100, 400))
KINDS: Final = {
    "small": Kind(PLAIN, _SMALL, *_FEW),
    "async": Kind(PLAIN, f"async {_SMALL}", *_FEW),
    "css": Kind(PLAIN, _CSS, *_FEW),
    "tls": Kind(TLS, _SMALL, *_FEW),
    "http2": Kind(HTTP2, _SMALL, *_FEW),
    "large": Kind(LARGE, _LARGE, (50, 850), (20, 60)),
    "xpath": Kind(LARGE, _XPATH, (50, 450), (20, 60)),
    "links": Kind(LARGE._replace(mixed_links=True), _LARGE, (50, 850), (20, 60)),
    "start": Kind(PLAIN, _SMALL, (0, 1), (0, 1)),
}


class Cost(NamedTuple):
    """Of a crawl or of a page: seconds on the clock, CPU seconds, and instructions, 0 if they were not counted."""

    wall: float = 0.0
    cpu: float = 0.0
    instructions: float = 0.0


class Tree(NamedTuple):
    """A source tree: a folder whose ``src`` has the package."""

    path: Path

    @property
    def package(self) -> str:
        """The name of the package; it has not always been the same."""
        found = [each.parent.name for each in (self.path / "src").glob("*/__main__.py")]
        if len(found) != 1:
            raise SystemExit(f"{self.path} is not a source tree: it needs exactly one package with __main__.py in src/")
        return found[0]


class Counter(NamedTuple):
    """A program that counts the instructions of a command. ``report`` finds the counts in its output."""

    command: tuple[str, ...]
    report: re.Pattern[str]

    def count(self, output: str) -> int:
        """Over all processes of the command; 0 if the output has no count."""
        return sum(int(each) for each in self.report.findall(output))


PERF: Final = Counter(
    ("perf", "stat", "-x,", "-e", "instructions:u", "-o", "count.txt"), re.compile(r"^(\d+),,instructions:u", re.M)
)
VALGRIND: Final = Counter(
    ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--log-file=count.txt"),
    re.compile(r"Collected : (\d+)"),
)


class Bench:
    """Runs the crawls. The sites stay up until the block ends."""

    def __init__(self, running: ExitStack, programs: Path, counter: Counter | None) -> None:
        self._running = running
        self._programs = programs
        self._counter = counter
        self._sites: dict[tuple[Scenario, int], StaticSite] = {}
        # Bytecode is written here, so that the source trees are only read.
        self._bytecode = running.enter_context(tempfile.TemporaryDirectory())

    def page_cost(self, tree: Tree, kind: Kind, pages: tuple[int, int]) -> Cost:
        """The cost of a page: a long crawl less a short one."""
        short, long = pages
        begin = self._crawl(tree, kind, short, self._counter) if short else Cost()
        end = self._crawl(tree, kind, long, self._counter)
        return Cost(*((most - least) / (long - short) for most, least in zip(end, begin, strict=True)))

    def warm_up(self, tree: Tree, kind: Kind, pages: tuple[int, int]) -> None:
        """Compile the tree's bytecode, and let nginx open its files."""
        for each in filter(None, pages):
            self._crawl(tree, kind, each, None)

    def _crawl(self, tree: Tree, kind: Kind, pages: int, counter: Counter | None) -> Cost:
        site = self._site(kind.scenario, pages)
        environment = {
            "START_URL": site.start,
            "PYTHONPATH": str(tree.path / "src"),
            "PYTHONPYCACHEPREFIX": self._bytecode,
            "PYTHONHASHSEED": "0",
        }
        options = ["-o", "out.jsonl", "-s", f"http2={str(kind.scenario.http2).lower()}"]
        crawl = [sys.executable, "-m", tree.package, "crawl", "spider.py", *options]
        with tempfile.TemporaryDirectory(prefix="uttu-bench-") as name:
            folder = Path(name)
            (folder / "spider.py").write_text(_SPIDER.format(package=tree.package, handler=kind.handler))
            prefix = counter.command if counter else ()
            usage = measure([*prefix, *crawl], folder, environment, _LIMIT)
            rows = (folder / "out.jsonl").read_bytes().count(b"\n") if usage.status == 0 else 0
            if rows != pages:
                raise SystemExit(f"{rows} rows instead of {pages}, {tree.path}:\n{(folder / 'log.txt').read_text()}")
            counted = counter.count((folder / "count.txt").read_text()) if counter else 0
        return Cost(usage.seconds, usage.cpu, counted)

    def _site(self, scenario: Scenario, pages: int) -> StaticSite:
        if (scenario, pages) not in self._sites:
            site = StaticSite(scenario, pages, self._programs)
            self._sites[scenario, pages] = self._running.enter_context(site)
        return self._sites[scenario, pages]


def perf_works() -> bool:
    """Whether ``perf stat`` can count instructions here."""
    with tempfile.TemporaryDirectory() as name:
        try:
            measure([*PERF.command, "true"], Path(name), {}, 60.0)
            return PERF.count(Path(name, "count.txt").read_text()) > 0
        except OSError:
            return False


def compare(names: Sequence[str], trees: Sequence[Tree], rounds: int, bench: Bench, *, few: bool) -> None:
    """Measure the kinds in interleaved rounds, and print a table after each kind."""
    for name in names:
        kind = KINDS[name]
        pages = kind.counted if few else kind.timed
        for tree in trees:
            bench.warm_up(tree, kind, pages)
        costs: defaultdict[Tree, list[Cost]] = defaultdict(list)
        for number in range(rounds):
            for tree in trees if number % 2 == 0 else trees[::-1]:
                costs[tree].append(bench.page_cost(tree, kind, pages))
        show(name, [costs[tree] for tree in trees], few=few)


def show(name: str, costs: Sequence[Sequence[Cost]], *, few: bool) -> None:
    """Print the medians of each tree, and of the differences between two trees."""
    units = {"wall µs": ("wall", 1e6), "CPU µs": ("cpu", 1e6), "1000 instructions": ("instructions", 1e-3)}
    rows: list[list[str | float]] = []
    for unit, (field, factor) in units.items():
        each = [[getattr(cost, field) * factor for cost in found] for found in costs]
        if not any(each[0]) or (few and field != "instructions"):
            continue
        row: list[str | float] = [unit, *(statistics.median(found) for found in each)]
        if len(each) == 2:
            row.append(f"{compute_difference(*each) * 100:+.1f} %")
        rows.append(row)
    heads = ["a page", "before", "after", "difference"] if len(costs) == 2 else ["a page", "this tree"]
    table(f"{name}, {len(costs[0])} rounds", heads, rows)


def compute_difference(before: Sequence[float], after: Sequence[float]) -> float:
    """The median of the relative differences within each round."""
    return statistics.median(new / old - 1 for old, new in zip(before, after, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--before", type=Path, metavar="PATH", help="the source tree to compare with")
    parser.add_argument("--after", type=Path, default=_ROOT, metavar="PATH", help="this one by default")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--valgrind", action="store_true", help="count instructions with valgrind, in one round")
    parser.add_argument("--peers", type=Path, default=Path(".venv-bench/bin"), help="where nginx is, if not installed")
    options = parser.parse_args()
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"unknown kind: {', '.join(sorted(unknown))}; known are {', '.join(KINDS)}")
    trees = [Tree(path.resolve()) for path in (options.before, options.after) if path]
    counter = VALGRIND if options.valgrind else PERF if perf_works() else None
    if counter is None:
        print("perf stat can't count instructions here; --valgrind can", flush=True)
    with ExitStack() as running:
        bench = Bench(running, options.peers.absolute(), counter)
        rounds = 1 if options.valgrind else options.rounds
        compare(options.kinds or list(KINDS), trees, rounds, bench, few=options.valgrind)


if __name__ == "__main__":
    main()
