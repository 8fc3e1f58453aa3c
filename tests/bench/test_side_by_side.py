"""The benchmark's pages, its check of rows, its ratios, and the README's table."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest
from bench.common import RESULTS
from bench.pages import PERF, VALGRIND, Tree, compute_difference
from bench.side_by_side.large_pages import LARGEST, LINKS, NAVIGATION, SMALLEST, LargePages
from bench.side_by_side.machine import UseMeter
from bench.side_by_side.result import compute_medians, compute_ratio, format_readme_table
from bench.side_by_side.rounds import Run, find_problem
from bench.side_by_side.scenarios import LARGE, PLAIN, SCENARIOS, SCRAPY, UTTU, find_contestants
from bench.side_by_side.site import Row
from selectolax.lexbor import LexborHTMLParser

from uttu.testing.site import Site
from uttu.testing.site.pages import price, title

ROOT = Path(__file__).parents[2]
SITE = Site(pages=300)


@pytest.fixture(scope="module")
def bodies() -> list[bytes]:
    pages = LargePages(SITE)
    return [pages.render(number) for number in range(SITE.pages)]


def links(body: bytes) -> list[str]:
    return [node.attrs["href"] or "" for node in LexborHTMLParser(body).css("a")]


def test_large_pages_are_the_same_in_every_run(bodies: list[bytes]) -> None:
    assert LargePages(SITE).render(123) == bodies[123]
    assert len(set(bodies)) == SITE.pages


def test_the_sizes_of_large_pages(bodies: list[bytes]) -> None:
    sizes = [len(body) for body in bodies]
    assert min(sizes) > SMALLEST * 0.95
    assert max(sizes) < LARGEST * 1.05  # characters are counted, and some have two bytes
    assert 150_000 < statistics.mean(sizes) < 200_000


def test_most_links_of_large_pages_are_the_same_navigation(bodies: list[bytes]) -> None:
    first, other = links(bodies[0]), links(bodies[200])
    assert len(first) == len(other) == LINKS == 200
    assert NAVIGATION <= len(set(first) & set(other)) < LINKS


def test_every_large_page_can_be_reached(bodies: list[bytes]) -> None:
    seen, left = {"/p/0"}, ["/p/0"]
    while left:
        fresh = set(links(bodies[int(left.pop().removeprefix("/p/"))])) - seen
        seen |= fresh
        left += fresh
    assert seen == {f"/p/{number}" for number in range(SITE.pages)}


def test_a_large_page_has_one_title_and_one_price(bodies: list[bytes]) -> None:
    tree = LexborHTMLParser(bodies[77])
    assert [node.text() for node in tree.css("title")] == [title(77)]
    assert [node.text() for node in tree.css("span.price")] == [price(SITE, 77)]


def test_everyone_takes_part_in_the_plain_scenario_and_three_in_the_others(tmp_path: Path) -> None:
    assert len(find_contestants(PLAIN, tmp_path)) == 9
    (tmp_path / "colly").touch()
    assert len(find_contestants(PLAIN, tmp_path)) == 10
    assert [each.name for each in find_contestants(LARGE, tmp_path)] == ["bare loop, no framework", UTTU.name, SCRAPY]


ROWS = [Row("http://a/1", "One", "1.00"), Row("http://a/2", "Two", "2.00")]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (ROWS, ""),
        (ROWS[::-1], ""),
        (ROWS[:1], "1 rows are missing or wrong, for example for http://a/2"),
        ([ROWS[0], ROWS[1]._replace(price="9.00")], "2 rows are missing or wrong, for example for http://a/2"),
        ([*ROWS, ROWS[0]], "1 rows too many: pages were visited twice"),
    ],
)
def test_rows_must_be_exactly_the_expected_ones(tmp_path: Path, rows: list[Row], problem: str) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text("".join(json.dumps(row._asdict()) + "\n" for row in rows))
    assert find_problem(file, set(ROWS)) == problem


@pytest.mark.parametrize("text", [None, "{", '{"url": "http://a/1"}'])
def test_rows_that_cannot_be_read_are_a_problem(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "out.jsonl").write_text(text)
    assert find_problem(tmp_path / "out.jsonl", set(ROWS)).startswith("cannot read its rows: ")


def test_ratios_are_paired_within_rounds() -> None:
    # The machine is half as fast in round 2, for both.
    rates = [(UTTU.name, 1, 40.0), (SCRAPY, 1, 2.0), (UTTU.name, 2, 10.0), (UTTU.name, 2, 30.0), (SCRAPY, 2, 1.0)]
    runs = [Run(name=name, round=number, pages_per_second=rate) for name, number, rate in rates]
    runs.append(Run(name=UTTU.name, round=3, failure="exit code 1: no output"))
    assert compute_ratio(runs, UTTU.name, SCRAPY) == 20.0
    assert compute_ratio(runs, UTTU.name, "nobody") is None
    first, second = compute_medians(runs)
    assert (first.name, first.pages_per_second, first.rounds, first.ratio) == (UTTU.name, 30.0, 3, 20.0)
    assert (second.name, second.ratio) == (SCRAPY, 1.0)


def test_the_use_of_the_machine_is_measured() -> None:
    meter = UseMeter()
    while (use := meter.read()).busy <= 0.02:
        sum(range(100_000))
    assert 0 <= use.stolen <= 100
    assert use.cores >= 1


def test_the_table_of_the_readme_is_that_of_the_results() -> None:
    """If it is not, replace it by what ``python -m bench.side_by_side --readme`` prints."""
    table = format_readme_table(RESULTS)
    assert table.count("\n") == 2 + len(SCENARIOS)
    assert table in (ROOT / "README.md").read_text(encoding="utf-8")


def test_instructions_are_read_from_perf_and_valgrind() -> None:
    assert PERF.count("# started on Wed\n\n123456,,instructions:u,1000,100.00,,\n") == 123456
    assert PERF.count("<not supported>,,instructions:u,0,100.00,,\n") == 0
    assert VALGRIND.count("==1== Collected : 300\n==2== Collected : 40\n") == 340


def test_differences_are_paired_within_rounds() -> None:
    assert compute_difference([100.0, 200.0, 100.0], [110.0, 220.0, 300.0]) == pytest.approx(0.1)


def test_a_source_tree_is_found_by_its_package(tmp_path: Path) -> None:
    assert Tree(ROOT).package == "uttu"
    with pytest.raises(SystemExit, match="is not a source tree"):
        _ = Tree(tmp_path).package
