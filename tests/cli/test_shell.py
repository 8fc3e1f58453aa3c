"""``uttu shell``: a page under the fingers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Uttu
from uttu.testing.site import SiteProcess


def test_code_instead_of_a_shell(uttu: Uttu, site: SiteProcess) -> None:
    code = "print(page.css('h1::text').get(), response.status, request.url == page.url, Spider, Page, Request)"
    told = uttu("shell", site.url + "shop/", "-c", code)
    assert told.code == 0, told.err
    assert told.out.startswith("All products 200 True <class ")


def test_fetching_another_page(uttu: Uttu, site: SiteProcess) -> None:
    code = f"p = fetch('{site.url}odd/redirect/1'); print(p is page, page.url, response is page.response)"
    told = uttu("shell", site.url + "shop/", "-c", code)
    assert told.out == f"True {site.url}odd/redirect/0 True\n"
    assert "redirects to" in told.err


def test_without_a_page(uttu: Uttu, site: SiteProcess) -> None:
    assert uttu("shell", "-c", f"print(page, fetch('{site.url}').status)").out == "None 200\n"


def test_a_curl_command(uttu: Uttu, site: SiteProcess) -> None:
    for words in ([f"curl {site.url}odd/echo -H 'X-Mine: 1'"], ["curl", site.url + "odd/echo", "-H", "X-Mine: 1"]):
        told = uttu("shell", "-c", "print(['X-Mine', '1'] in page.json()['headers'])", *words)
        assert told.out == "True\n", told.err


def test_code_behind_a_curl_command_is_not_lost(uttu: Uttu, site: SiteProcess) -> None:
    told = uttu("shell", "curl", site.url, "-c", "print(1)")
    assert told.code == 2
    assert "put -c CODE before it" in told.err


@pytest.mark.parametrize(
    ("link", "path"), [("/p/1", "p/1"), ("../p/2", "p/2"), ("./?page=2", "shop/?page=2"), ("?page=2", "shop/?page=2")]
)
def test_a_link_relative_to_the_page(uttu: Uttu, site: SiteProcess, link: str, path: str) -> None:
    told = uttu("shell", site.url + "shop/", "-c", f"print(fetch({link!r}).url)")
    assert told.out == f"{site.url}{path}\n", told.err


def test_without_a_page_nothing_is_relative(uttu: Uttu) -> None:
    told = uttu("shell", "-c", "fetch('/p/1')")
    assert told.code == 1
    assert "is not a web URL" in told.err


def test_code_that_raises(uttu: Uttu, site: SiteProcess) -> None:
    told = uttu("shell", site.url, "-c", "def f(): 1/0\nf()")
    assert told.code == 1
    traceback = told.err.partition("Traceback")[2]
    assert "ZeroDivisionError" in traceback
    assert "uttu/cli" not in traceback
    assert uttu("shell", site.url, "-c", "fetch('ftp://x')").code == 1


def test_a_page_that_can_not_be_had(uttu: Uttu, site: SiteProcess) -> None:
    told = uttu("shell", site.url + "odd/close", "-c", "print(1)")
    assert told.code == 1
    assert told.out == ""


@pytest.mark.parametrize("plain", [True, False])
def test_interactively(site: SiteProcess, tmp_path: Path, plain: bool) -> None:
    if not plain:
        pytest.importorskip("IPython")
    done = subprocess.run(
        [sys.executable, "-m", "uttu", "shell", site.url + "shop/", *(["--plain"] if plain else [])],
        input=f"print('one', page.css('h1::text').get())\n_ = fetch('{site.url}p/0')\nprint('two', page.url)\n",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"IPYTHONDIR": str(tmp_path)},
        timeout=60,
        check=True,
    )
    assert "one All products" in done.stdout
    assert f"two {site.url}p/0" in done.stdout
    assert 'page.css("h1::text").get()' in done.stdout + done.stderr
