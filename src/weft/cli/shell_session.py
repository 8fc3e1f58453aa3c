"""The names of an interactive shell, and the shell itself.

The fetcher is asynchronous, what people type is not, and some shells run a loop of their own. So
the fetcher lives on a loop in a thread, and ``fetch`` waits for it from whatever stands outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import traceback
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from weft import assembly, launch
from weft.cli import one_response
from weft.cli.one_request import fetch_following, url_of
from weft.config import Settings
from weft.model import Request
from weft.spider import Page, Spider

T = TypeVar("T")

_RELATIVE = ("/", "./", "../", "?")

_BANNER = """
  page          the page: page.css("h1::text").get(), page.xpath("//h1"), page.links(), page.json(), page.text
  response      its response: response.status, response.headers, response.body
  request       its request
  fetch(url)    fetches another one, also by /path; page, response and request are then of that one
  Spider, Page, Request
"""


class Session:
    """A fetcher and the names around it, until the block is left."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="weft-shell", daemon=True)
        self.names: dict[str, Any] = {
            "page": None, "response": None, "request": None, "fetch": self.fetch,
            "Spider": Spider, "Page": Page, "Request": Request,
        }  # fmt: skip

    def __enter__(self) -> Self:
        self._thread.start()
        self._fetcher = self._wait(self._connect())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait(self._fetcher.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def fetch(self, target: str | Request) -> Page:
        """Fetch a URL or a request; ``page``, ``response`` and ``request`` are of it from now on. A URL may be relative
        to the page before: ``/path``, ``../path``, ``?query``.

        :raises ValueError: it is no URL.
        :raises FetchError: no response could be had.
        """
        request = target if isinstance(target, Request) else Request(url=self._url(target))
        response = self._wait(fetch_following(self._fetcher, request, self._settings, one_response.say_hop))
        one_response.say_status(response)
        page = Page(response)
        self.names.update(page=page, response=response, request=response.request)
        return page

    def _url(self, target: str) -> str:
        """Only what can't be a host is relative: ``shop/2`` may well be one."""
        page = self.names["page"]
        if isinstance(page, Page) and target.startswith(_RELATIVE):
            target = page.urljoin(target) or target
        return url_of(target)

    def run(self, code: str) -> bool:
        """Run ``code`` with the names, as ``python -c`` does. False: it raised, and the traceback is shown."""
        try:
            exec(compile(code, "<-c>", "exec"), self.names)
        except Exception as error:
            # Our own frame is of no interest to who wrote the code.
            own = error.__traceback__
            traceback.print_exception(error.with_traceback(own.tb_next if own else None))
            return False
        return True

    def interact(self, *, plain: bool) -> None:
        """Open IPython, or else Python's own shell, and return when it is left."""
        if not plain:
            with contextlib.suppress(ImportError):
                self._ipython()
                return
        self._python()

    def _ipython(self) -> None:
        from IPython import start_ipython
        from traitlets.config import Config

        config = Config()
        config.TerminalInteractiveShell.banner1 = _BANNER
        config.TerminalIPythonApp.display_banner = True
        config.InteractiveShell.confirm_exit = False
        start_ipython(argv=[], user_ns=self.names, config=config)

    def _python(self) -> None:
        import code

        with contextlib.suppress(ImportError):
            import readline
            import rlcompleter

            readline.set_completer(rlcompleter.Completer(self.names).complete)
            readline.parse_and_bind("tab: complete")
        code.interact(banner=_BANNER, local=self.names, exitmsg="")

    async def _connect(self) -> Any:
        return assembly.fetcher_for(self._settings, launch.FOLDER)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        waiting = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return waiting.result()
        except KeyboardInterrupt:
            waiting.cancel()
            raise
