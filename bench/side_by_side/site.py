"""The site that everyone crawls: files on disk, served by nginx.

nginx, because a server written in Python would be the bottleneck. It runs as a single process and a child of the
benchmark, with its own configuration and, for TLS, a self-signed certificate made at the start. All of it is in a
temporary folder that is removed at the end.

nginx logs the protocol of each response. The result says so which protocol a contestant really used.
"""

from __future__ import annotations

import resource
import shutil
import socket
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from bench.side_by_side.large_pages import LargePages
from bench.side_by_side.scenarios import Scenario
from tests.harness.servers.base import Server
from tests.harness.servers.errors import ServerMissing
from tests.harness.servers.ports import Port
from tests.harness.servers.process import ServerProcess

from uttu.testing.site import Site
from uttu.testing.site.hostile.certificates import Authority
from uttu.testing.site.model import Layout
from uttu.testing.site.pages import Pages, price, title

_OTHER_FILES: Final = 1_000  # open files besides the cached pages: connections, logs
_FILES: Final = Path("site", "p")

_SETTINGS: Final = """\
daemon off;
master_process off;
pid {folder}/pid;
error_log stderr error;
events {{ worker_connections 1024; }}
http {{
    log_format protocol "$server_protocol $ssl_protocol";
    access_log {folder}/protocols protocol buffer=64k flush=100ms;
    default_type "text/html; charset=utf-8";
    ssl_protocols TLSv1.2 TLSv1.3;
    sendfile on;
    tcp_nopush on;
    keepalive_timeout 300;
    keepalive_requests 100000000;
    open_file_cache max={cached} inactive=1h;
    open_file_cache_valid 1h;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen {address}:{port} {protocol} backlog=1024;
        {certificate}
        root {folder}/site;
    }}
}}
"""


class Row(NamedTuple):
    """The row that a crawl has to write for a page."""

    url: str
    title: str
    price: str


class StaticSite(Server):
    """``pages`` pages of a scenario; all can be reached from the one at ``start``.

    ``programs`` is a folder to look for nginx in, if it is not installed.

    :raises ServerMissing: nginx was not found.
    """

    def __init__(self, scenario: Scenario, pages: int, programs: Path) -> None:
        super().__init__()
        self.scenario = scenario
        self.mean_bytes = 0  # of a page; known when the site is running
        self._port = Port()
        # Only a site with a certificate has https:// URLs. The file is written when the folder exists.
        self._layout = Layout.at(Site(pages=pages, certificate="tls" if scenario.tls else ""), self._port.number)
        self._address = self._layout.site.addresses[0]
        nginx = shutil.which("nginx") or shutil.which("nginx", path=f"{programs}:/usr/sbin:/usr/local/sbin")
        if nginx is None:
            raise ServerMissing("nginx is not installed; `make bench` downloads it on Debian, elsewhere install it")
        self.program = nginx

    def _begin(self, running: ExitStack) -> None:
        running.callback(self._port.release)
        self._process = ServerProcess(f"nginx at port {self._port.number}", self._command)
        running.callback(self._process.close)
        self._write_pages(self._process.folder / _FILES)
        self._process.start(self._answers)

    @property
    def start(self) -> str:
        """The URL of the first page."""
        return self._layout.page_url(0)

    def rows(self) -> set[Row]:
        """The rows that a crawl must write, one for each page."""
        layout = self._layout
        return {
            Row(layout.page_url(number), title(number), price(layout.site, number))
            for number in range(layout.site.pages)
        }

    def count_protocols(self, expected: int) -> Counter[str]:
        """Responses by protocol since the start, such as ``HTTP/2.0 TLSv1.3``. Waits until ``expected`` are logged."""
        file = self.process.folder / "protocols"
        found: Counter[str] = Counter()

        def are_logged() -> bool:
            found.clear()
            found.update(line.removesuffix(" -") for line in file.read_text().splitlines())
            return found.total() >= expected

        self.process.wait_until(are_logged, f"log {expected} responses")
        return found

    def _write_pages(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        origin = self.start.removesuffix("/p/0") if self.scenario.mixed_links else ""
        small, large = Pages(self._layout), LargePages(self._layout.site, origin)
        pages, written = self._layout.site.pages, 0
        for number in range(pages):
            body = large.render(number) if self.scenario.large else small.render(0, number)
            assert body is not None
            written += (folder / str(number)).write_bytes(body)
        self.mean_bytes = written // pages

    def _command(self, folder: Path) -> list[str]:
        pages = self._layout.site.pages
        _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        file = folder / f"{self._address}.pem"
        if self.scenario.tls:
            Authority(folder).context("self-signed", self._address, ())
        settings = _SETTINGS.format(
            folder=folder,
            cached=max(min(pages, limit - _OTHER_FILES), 1) if limit > 0 else pages,
            address=self._address,
            port=self._port.number,
            protocol=("ssl" if self.scenario.tls else "") + (" http2" if self.scenario.http2 else ""),
            certificate=f"ssl_certificate {file}; ssl_certificate_key {file};" if self.scenario.tls else "",
        )
        (folder / "nginx.conf").write_text(settings)
        # nginx raises its limit of open files only for workers of a master process, and here is none.
        run = 'ulimit -n "$(ulimit -Hn)"; exec "$0" -p "$1" -c "$1/nginx.conf" -e stderr'
        return ["/bin/sh", "-c", run, self.program, str(folder)]

    def _answers(self) -> bool:
        try:
            socket.create_connection((self._address, self._port.number), 1.0).close()
        except OSError:
            return False
        return True
