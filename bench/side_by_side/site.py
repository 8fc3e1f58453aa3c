"""The site that all crawl: files of the test site's ordinary pages, served by nginx.

nginx, because a server in Python would be what is measured. It runs as a single process, with a file of
settings of its own, as a child of the benchmark: it is no service, and gone when the benchmark is.
"""

from __future__ import annotations

import resource
import shutil
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from tests.harness.servers.base import Server
from tests.harness.servers.errors import ServerMissing
from tests.harness.servers.ports import Port
from tests.harness.servers.process import ServerProcess

from uttu.testing.site import Site
from uttu.testing.site.model import Layout
from uttu.testing.site.pages import Pages, price, title

_OTHER_FILES: Final = 1_000  # connections and the like, beside the pages that are kept open

_SETTINGS: Final = """\
daemon off;
master_process off;
pid {folder}/pid;
error_log stderr error;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    default_type "text/html; charset=utf-8";
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
        listen {address}:{port} backlog=1024;
        root {folder}/site;
    }}
}}
"""


class Row(NamedTuple):
    """What a crawl has to write about a page."""

    url: str
    title: str
    price: str


class StaticSite(Server):
    """``pages`` pages of 6 KB and 32 links each, all to be reached from the first one, at ``start``.

    ``programs`` is a folder where nginx may be, if it is not installed.

    :raises ServerMissing: nginx is not installed.
    """

    def __init__(self, pages: int, programs: Path) -> None:
        super().__init__()
        self._port = Port()
        self._layout = Layout.at(Site(pages=pages), self._port.number)
        self._nginx = shutil.which("nginx") or shutil.which("nginx", path=f"{programs}:/usr/sbin:/usr/local/sbin")
        if self._nginx is None:
            raise ServerMissing("nginx is not installed; `make bench` gets it on Debian; elsewhere install it")

    def _begin(self, running: ExitStack) -> None:
        running.callback(self._port.release)
        self._process = ServerProcess(f"nginx at port {self._port.number}", self._command)
        running.callback(self._process.close)
        self._write_pages(self._process.folder / "site" / "p")
        self._process.start(self._answers)

    @property
    def program(self) -> str:
        assert self._nginx is not None
        return self._nginx

    @property
    def start(self) -> str:
        """The URL of the first page."""
        return self._layout.page_url(0)

    def rows(self) -> set[Row]:
        """What a crawl must find: one row a page."""
        layout = self._layout
        return {
            Row(layout.page_url(number), title(number), price(layout.site, number))
            for number in range(layout.site.pages)
        }

    def _write_pages(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        render = Pages(self._layout).render
        for number in range(self._layout.site.pages):
            body = render(0, number)
            assert body is not None
            (folder / str(number)).write_bytes(body)

    def _command(self, folder: Path) -> list[str]:
        site = self._layout.site
        _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        settings = _SETTINGS.format(
            folder=folder,
            cached=max(min(site.pages, limit - _OTHER_FILES), 1) if limit > 0 else site.pages,
            address=site.addresses[0],
            port=self._port.number,
        )
        (folder / "nginx.conf").write_text(settings)
        # It sets the limit of open files itself only for workers of a master process, which it has not.
        run = 'ulimit -n "$(ulimit -Hn)"; exec "$0" -p "$1" -c "$1/nginx.conf" -e stderr'
        return ["/bin/sh", "-c", run, self.program, str(folder)]

    def _answers(self) -> bool:
        try:
            socket.create_connection((self._layout.site.addresses[0], self._port.number), 1.0).close()
        except OSError:
            return False
        return True
