"""The hostile suite itself: its kinds, what it measures, and that it finds what it is for."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tests.harness.nemesis.hostile import Case, Result, Trial, all_cases, report, run, trials
from tests.harness.nemesis.hostile.cases import GROUPS, settings_of
from tests.harness.nemesis.hostile.process_tree import ProcessTree
from tests.harness.nemesis.hostile.run import longest_gap
from uttu.settings import Settings
from uttu.testing.site import Record
from uttu.testing.site.hostile import KINDS, HostileProcess, Kind, matching
from uttu.testing.site.hostile.model import page
from uttu.testing.site.hostile.server import serve
from uttu.testing.site.message import Answer, Incoming
from uttu.testing.waiting import wait_until


def record(time: float, host: str = "127.77.0.1") -> Record:
    return Record(0, time, host, "GET", "/", 1)


def a_result(*names: str, **fields: object) -> Result:
    plain = Result(
        cases=names,
        workers=1,
        gap=0.1,
        megabytes=70,
        seconds=1,
        code=0,
        endings=dict.fromkeys(names, "done"),
        left=0,
        findings=(),
    )
    return msgspec.structs.replace(plain, **fields)


class TestKinds:
    def test_each_has_a_name_and_says_what_it_does(self) -> None:
        cases = all_cases()
        assert len({case.name for case in cases}) == len(cases)
        assert all(case.about for case in cases)
        assert {case.group for case in cases} == set(GROUPS)

    def test_how_they_must_end_is_a_pattern(self) -> None:
        for case in all_cases():
            assert re.match(r"done|dead", case.ends), case.name
            re.compile(case.ends)

    def test_all_are_tried(self) -> None:
        cases = all_cases()
        assert {case.name for trial in trials(cases) for case in trial.cases} == {case.name for case in cases}

    def test_those_with_other_settings_have_another_crawl(self) -> None:
        for trial in trials(all_cases()):
            assert len({msgspec.json.encode(case.settings) for case in trial.cases}) == 1

    def test_settings_that_do_not_exist_are_left_out(self) -> None:
        made = Case(name="a/b", about="c", handler="d", settings={"retries": 7, "made_up": 1})
        found = settings_of(Trial(cases=(made,), settings={"concurrency": 2}))
        assert (found["retries"], found["concurrency"]) == (7, 2)
        assert "made_up" not in found

    def test_over_tls_they_are_the_same(self) -> None:
        plain = {kind.name: kind for kind in KINDS}
        over = plain["codings/gzip-bomb"].over_tls()
        assert over == plain["tls/codings-gzip-bomb"]
        assert over.reply is plain["codings/gzip-bomb"].reply

    @pytest.mark.parametrize("group", ["content", "documents", "sitemaps"])
    def test_their_pages_are_within_the_limit_of_a_body(self, group: str) -> None:
        """Otherwise they would be given up before they do any harm."""
        for kind in matching(KINDS, f"^{group}/"):
            made = kind.answer(Incoming(0, "GET", kind.path, b""))
            assert isinstance(made, Answer)
            assert (len(made.body) <= Settings().max_body) is (kind.name != "content/too-large"), kind.name


class TestHosts:
    async def test_each_has_its_own_address(self, tmp_path: Path) -> None:
        kinds = matching(KINDS, "^http1/(closes|garbage)$")
        async with serve(kinds, tmp_path) as urls:
            assert list(urls) == ["http1/closes", "http1/garbage"]
            assert await ask(urls["http1/closes"]) == b""
            assert len(await ask(urls["http1/garbage"])) == 4096

    async def test_robots_txt_is_only_there_if_the_kind_is_about_it(self, tmp_path: Path) -> None:
        kinds = matching(KINDS, "^(content/empty|robots/delay-inf)$")
        async with serve(kinds, tmp_path) as urls:
            assert b" 404 " in await ask(urls["content/empty"], "/robots.txt")
            assert b"Crawl-delay: inf" in await ask(urls["robots/delay-inf"], "/robots.txt")
            assert b"ordinary page" in await ask(urls["robots/delay-inf"])

    def test_in_a_process(self) -> None:
        with HostileProcess(matching(KINDS, "^(content/empty|tls/expired)$")) as hosts:
            assert hosts.urls["content/empty"].startswith("http://127.79.0.1:")
            assert hosts.urls["tls/expired"].startswith("https://127.79.0.2:")
            assert b"BEGIN CERTIFICATE" in hosts.authority.read_bytes()

    def test_a_kind_that_does_not_exist(self) -> None:
        with pytest.raises(RuntimeError, match="no kinds made/up"), HostileProcess([Kind(name="made/up", about="")]):
            pass


async def ask(url: str, path: str = "/") -> bytes:
    """All that a host sends, until it hangs up or is silent."""
    host, _, port = url.partition("://")[2].partition("/")[0].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        return b""
    finally:
        writer.close()


class TestMeasuring:
    def test_the_gap_is_between_two_requests_of_the_good_host(self) -> None:
        times = [record(at) for at in (1.0, 1.1, 1.9, 2.0)] + [record(1.5, "127.77.0.2")]
        assert longest_gap(times, "127.77.0.1", 1.05, 2.1) == pytest.approx(0.8)

    def test_it_counts_until_the_end(self) -> None:
        assert longest_gap([record(1.0)], "127.77.0.1", 1.05, 9.0) == pytest.approx(8.0)
        assert longest_gap([], "127.77.0.1", 1.0, 9.0) == pytest.approx(8.0)

    def test_time_without_a_processor_does_not_count(self) -> None:
        times = [record(at) for at in (1.0, 4.0, 5.0)]
        waits = {(1.0, 4.0): 2.5}
        gap = longest_gap(times, "127.77.0.1", 1.0, 5.0, lambda since, until: waits.get((since, until), 0.0))
        assert gap == pytest.approx(1.0)

    def test_processes_that_share_a_processor_wait_for_it(self) -> None:
        """Two busy processes on one processor: each waits for about half of the time."""
        busy = "import os, time; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass"
        pair = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(2)]
        try:
            family = ProcessTree(pair[0].pid)
            family.look()
            began = time.monotonic()

            def has_waited() -> bool:
                family.look()
                return family.waited(began, time.monotonic()) > 0.5

            wait_until(has_waited, "it waits for half a second", 30)
            assert family.waited(began, began) <= 0.1
        finally:
            for process in pair:
                process.kill()
                process.wait()

    def test_a_page_that_holds_the_loop_is_found(self) -> None:
        """A page that its handler sleeps over for two seconds, which no watchdog has to end."""
        slow = Kind(name="content/empty", about="", reply=page(lambda: b""))
        case = Case(name=slow.name, about="", handler="sleeps_two", kind=slow)
        result = run(Trial(cases=(case,), patience=30))
        assert result.gap > 1.5
        assert any("without a page of the good host" in each for each in result.findings)
        assert result.endings == {"content/empty": "done"}
        assert result.code == 0

    def test_a_clean_crawl(self) -> None:
        case = next(case for case in all_cases() if case.name == "content/empty")
        result = run(Trial(cases=(case,), gap_seconds=20))
        assert result.findings == ()
        assert (result.code, result.left, result.endings) == (0, 0, {"content/empty": "done"})
        assert 20 < result.megabytes < 400

    def test_another_ending_than_the_kind_must_have_is_found(self) -> None:
        case = next(case for case in all_cases() if case.name == "content/empty")
        result = run(Trial(cases=(msgspec.structs.replace(case, ends="dead: timeout"),), gap_seconds=20))
        assert result.findings == ("content/empty ended as 'done', not 'dead: timeout'",)


class TestReport:
    def test_results_are_kept(self, tmp_path: Path) -> None:
        results = [a_result("content/text", gap=0.25), a_result("http1/never", "http1/closes", findings=("bad",))]
        report.save(tmp_path / "r.jsonl", results)
        assert report.load(tmp_path / "r.jsonl") == results

    def test_the_table(self) -> None:
        together = a_result(
            "http1/never",
            "http1/closes",
            gap=0.04,
            endings={"http1/never": "dead: timeout: http://127.79.0.1:9/: slow", "http1/closes": "dead: network: x"},
        )
        alone = a_result("content/text", gap=1.25, megabytes=1500, findings=("1.2 s without a page",))
        before = a_result("content/text", gap=30, megabytes=2000)
        text = report.table(all_cases(), [alone, together], [before])
        assert "3 kinds in 2 crawls, 1 beyond a bar" in text
        assert "| content | 1 | 1.25 s | 1,500 MB | 1 | 30.00 s, 2,000 MB |" in text
        assert (
            "| text | 15 MB of text | 1.25 s | 1,500 MB | done — **1.2 s without a page** | 30.00 s, 2,000 MB |" in text
        )
        assert "| dead: timeout | never | 0.04 s | 70 MB |" in text
        assert "| dead: network | closes | 0.04 s | 70 MB |" in text

    def test_it_is_written_between_marks(self, tmp_path: Path) -> None:
        file = tmp_path / "a.md"
        file.write_text(f"# A\n{report.BEGIN}\nold\n{report.END}\nB\n")
        report.write(file, "new")
        assert file.read_text() == f"# A\n{report.BEGIN}\nnew\n{report.END}\nB\n"
        file.write_text("no marks")
        with pytest.raises(ValueError, match="has no marks"):
            report.write(file, "new")
