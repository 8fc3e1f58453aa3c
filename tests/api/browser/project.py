"""A project with a shop to crawl, and its dashboard as a process of its own, which can be killed.

Nothing is sampled: crawls are started by the dashboard, in the background, as processes that belong to the folder.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
from pathlib import Path
from typing import Self

import psutil

from tests.api.running import PASSWORD, add_users
from tests.harness.servers.ports import Port
from uttu.testing.site import SiteProcess
from uttu.testing.waiting import wait_until

# "sites" are the roots of the hosts, separated by spaces. Sold-out products raise an error in the handler.
SPIDER = '''"""The products of a shop, with their prices."""

from uttu import Page, Request, Spider

spider = Spider("shop", args={"sites": "", "errors": True}, delay=0.1, private=True, retries=0)


@spider.start
def start():
    for site in spider.args["sites"].split():
        yield Request(url=site + "shop/", handler="listing")
    if spider.args["errors"]:
        for number in range(3):
            yield f"{site}odd/flaky/{number}?fails=1&status=503"
        yield site + "odd/status/404"
        yield site + "odd/slow?seconds=3"
        yield site + "private/"
        yield site + "odd/429/busy?times=3&after=20"


@spider.page
def listing(page: Page):
    yield page.follow_all("article.product a", to=product)
    yield page.follow_all(".categories a, li.next a", to=listing)


@spider.page
def product(page: Page):
    stock = int("".join(filter(str.isdigit, page.css(".stock::text").get())))
    yield {"name": page.css("h1::text").get(), "price": page.css(".price::text").get(), "stock": stock, "url": page.url}


@spider.page
def page(page: Page):
    yield {"name": page.css("h1::text").get(), "url": page.url}
'''


class Project:
    """A folder with a spider and settings. A context manager: at its end, all processes of the folder are killed.

    :param redis: the URL of Redis, for messages and jobs.
    :param store: a second store for the dashboard to watch.
    """

    def __init__(self, folder: Path, site: SiteProcess, redis: str = "", store: str = "") -> None:
        self.folder = folder
        self.site = site
        (folder / "shop.py").write_text(SPIDER)
        stores = ", ".join(f'"{url}"' for url in filter(None, (store, "sqlite:.")))
        lines = [f'bus = "{redis}"', "[jobs]", f'broker = "{redis}"', f'backend = "{redis}"'] if redis else []
        (folder / "uttu.toml").write_text("\n".join([*lines, "[dashboard]", f"stores = [{stores}]", ""]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(self.processes(), 5)

    def processes(self) -> list[psutil.Process]:
        """The processes that work in this folder, except this one."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != os.getpid() and process.cwd() == str(self.folder.resolve()):
                    found.append(process)
        return found

    def uttu(self, *words: str) -> str:
        """Run a command in the folder; returns its output."""
        command = [sys.executable, "-m", "uttu", *words]
        return subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True).stdout


class DashboardProcess:
    """``uttu dashboard`` over a project, on a port that stays the same. A context manager.

    :param users: add a user for each role first, whose name is the role.
    """

    def __init__(self, project: Project, *, users: bool = False) -> None:
        self._project = project
        self._port = Port()
        self._process: subprocess.Popen[bytes] | None = None
        if users:
            add_users(project.folder)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port.number}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._port.release()

    def start(self) -> None:
        command = [sys.executable, "-m", "uttu", "dashboard", "--port", str(self._port.number)]
        with open(self._project.folder / "dashboard.log", "ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self._project.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(self._answers, "the dashboard answers", 30, self.log)

    def kill(self) -> None:
        """kill -9."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        return (self._project.folder / "dashboard.log").read_text()[-3000:]

    def _answers(self) -> bool:
        assert self._process
        assert self._process.poll() is None, self.log()
        connection = http.client.HTTPConnection("127.0.0.1", self._port.number, timeout=5)
        try:
            connection.request("GET", "/healthz")
            return bool(connection.getresponse().status)
        except OSError:
            return False
        finally:
            connection.close()


__all__ = ["PASSWORD", "SPIDER", "DashboardProcess", "Project"]
