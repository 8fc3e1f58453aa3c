"""``uttu fetch``: one page, and what is said about it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import Uttu
from uttu.testing.site import SiteProcess


def test_the_body_goes_to_stdout_and_the_rest_to_stderr(uttu: Uttu, site: SiteProcess) -> None:
    told = uttu("fetch", site.url + "p/0")
    assert told.code == 0
    assert told.out.startswith("<!doctype html>")
    assert len(told.out) == 6000
    assert told.err.startswith(f"200 OK {site.url}p/0\n")
    assert "text/html" in told.err


def test_redirects_are_followed_and_shown(uttu: Uttu, site: SiteProcess) -> None:
    told = uttu("fetch", site.url + "odd/redirect/2")
    assert told.code == 0
    assert [line for line in told.err.splitlines() if "redirects to" in line] == [
        f"    redirects to {site.url}odd/redirect/1",
        f"    redirects to {site.url}odd/redirect/0",
    ]


def test_redirects_without_end(uttu: Uttu, site: SiteProcess) -> None:
    told = uttu("fetch", site.url + "odd/redirect/self", "-s", "max_redirects=3")
    assert told.code == 1
    assert told.err.count("redirects to") == 4
    assert "stopped after max_redirects=3" in told.err


def test_redirects_to_nowhere(uttu: Uttu, site: SiteProcess) -> None:
    assert uttu("fetch", site.url + "odd/redirect/bad").code == 1
    told = uttu("fetch", site.url + "odd/redirect/to?url=http://192.168.7.7/")
    assert told.code == 1
    assert "would not follow: a private address" in told.err


def test_a_status_that_is_not_good(uttu: Uttu, site: SiteProcess) -> None:
    told = uttu("fetch", site.url + "odd/status/404")
    assert told.code == 1
    assert "Status 404" in told.out
    assert told.err.startswith("404 Not Found ")


def test_no_answer(uttu: Uttu, site: SiteProcess) -> None:
    told = uttu("fetch", site.url + "odd/close")
    assert told.code == 1
    assert told.err.startswith(f"uttu: {site.url}odd/close: ")
    assert told.out == ""


def test_headers_and_file(uttu: Uttu, site: SiteProcess) -> None:
    told = uttu("fetch", site.url + "p/0", "--headers", "-o", "page.html")
    assert told.code == 0
    assert told.out == ""
    assert "    content-type: text/html; charset=utf-8\n" in told.err
    assert len(Path("page.html").read_bytes()) == 6000
    assert uttu("fetch", site.url + "p/0", "-o", "no/such/folder").code == 1


def test_bytes_stay_as_they_are(site: SiteProcess, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "uttu", "fetch", site.url + "odd/type/pdf"]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, check=True)
    assert done.stdout.startswith(b"%PDF")


def test_as_json(uttu: Uttu, site: SiteProcess) -> None:
    data = json.loads(uttu("fetch", site.url + "odd/redirect/1", "--json").out)
    assert data["url"] == site.url + "odd/redirect/0"
    assert data["via"] == [site.url + "odd/redirect/1"]
    assert data["ok"]
    assert "<h1>" in data["text"]


def test_settings_count(uttu: Uttu, site: SiteProcess) -> None:
    told = uttu("fetch", site.url + "odd/echo", "-s", "user_agent=Me/1")
    assert ["User-Agent", "Me/1"] in json.loads(told.out)["headers"]
    Path("uttu.toml").write_text('user_agent = "File/1"')
    assert ["User-Agent", "File/1"] in json.loads(uttu("fetch", site.url + "odd/echo").out)["headers"]
    assert uttu("fetch", site.url, "-s", "max_body=100").code == 1
    assert uttu("fetch", site.url, "-s", "nope=1").code == 2
    assert uttu("fetch", site.url, "-s", "nope").code == 2


def test_a_curl_command_as_one_word_or_several(uttu: Uttu, site: SiteProcess) -> None:
    url = site.url + "odd/echo"
    for words in (
        [f"curl '{url}' -H 'X-Mine: a b' --data-raw 'c=d'"],
        ["curl", url, "-H", "X-Mine: a b", "--data-raw", "c=d"],
        ["--", "curl", url, "-H", "X-Mine: a b", "--data-raw", "c=d"],
        ["--headers", "curl", "-s", url, "-H", "X-Mine: a b", "-d", "c=d"],
    ):
        told = uttu("fetch", *words)
        assert told.code == 0, told.err
        echo = json.loads(told.out)
        assert (echo["method"], echo["body"]) == ("POST", "c=d")
        assert ["X-Mine", "a b"] in echo["headers"]


def test_a_scheme_is_not_needed(uttu: Uttu, site: SiteProcess) -> None:
    assert uttu("fetch", site.url.removeprefix("http://")).code == 0


def test_wrong_usage(uttu: Uttu) -> None:
    for words in (
        (),
        ("a", "b"),
        ("ftp://example.org/",),
        ("not a url",),
        ("curl",),
        ("curl --form a=b http://x.example/",),
    ):
        told = uttu("fetch", *words)
        assert told.code == 2, words
        assert told.out == ""


def test_the_end_of_the_process_is_clean(site: SiteProcess, tmp_path: Path) -> None:
    """The HTTP library's thread must not be at work while Python ends: that aborts the process now and then."""
    command = [sys.executable, "-m", "uttu", "fetch", site.url]
    for _ in range(5):
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
