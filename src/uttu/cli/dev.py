"""``uttu new``, ``shell``, ``fetch`` and ``demo``: write a spider and try it.

The fetcher is asynchronous, but a shell is not, and some shells run their own event loop. So the fetcher of the shell
runs on a loop in a separate thread, and the ``fetch`` function of the shell waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import threading
import traceback
from collections.abc import Coroutine, Sequence
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self, TypeVar

import typer

from uttu.cli.options import MAX_PROCESSES, AsJson, PageTarget, SettingFlags, parse_pairs, parse_url_argument
from uttu.cli.output import format_duration, format_size, print_json, say
from uttu.errors import SinkError
from uttu.model import Request, Response
from uttu.model.url import host_of
from uttu.operations.fetch import (
    FetchedPage,
    create_fetcher,
    fetch_page,
    fetch_with_redirects,
    parse_target,
    parse_web_url,
)
from uttu.settings import Settings
from uttu.spider import Page, Spider


def say_hop(response: Response, target: str) -> None:
    say(f"{response.status} {response.url}\n    redirects to {target}")


def say_status(response: Response) -> None:
    try:
        phrase = f" {HTTPStatus(response.status).phrase}"
    except ValueError:
        phrase = ""
    parts = [
        response.headers.get("content-type", "no content type"),
        format_size(len(response.body)),
        format_duration(response.elapsed),
    ]
    if response.version:
        parts.append(response.version)
    if response.cached:
        parts.append("from the cache")
    say(f"{response.status}{phrase} {response.url}\n    {', '.join(parts)}")


def say_headers(response: Response) -> None:
    for name, value in response.headers.pairs():
        say(f"    {name}: {value}")


def print_body(response: Response) -> None:
    """Write the body to standard output: unchanged to a file or pipe, as text to a terminal."""
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(response.body)
        sys.stdout.buffer.flush()
    elif b"\0" in response.body[:1024]:
        say("The body is not text, so it is not shown. Pipe it to a program, or save it with -o FILE")
    else:
        text = Page(response).text
        print(text, end="" if text.endswith("\n") or not text else "\n")


def save_body(response: Response, file: Path) -> None:
    """Write the body to ``file``.

    :raises SinkError: the file cannot be written.
    """
    try:
        file.write_bytes(response.body)
    except OSError as error:
        raise SinkError(f"Cannot write {file}: {error.strerror or error}") from error
    say(f"    Saved the body to {file}")


def parse_request_argument(words: Sequence[str]) -> Request:
    """The request for a URL, or for a curl command in one word or several.

    :raises typer.BadParameter: it is neither.
    """
    try:
        return parse_target(words)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


T = TypeVar("T")

_RELATIVE = ("/", "./", "../", "?")

_BANNER = """
  page          the page: page.css("h1::text").get(), page.xpath("//h1"), page.links(), page.json(), page.text
  response      its response: response.status, response.headers, response.body
  request       its request
  fetch(url)    fetches another one, also by /path; page, response and request are then of that one
  Spider, Page, Request
"""


class ShellSession:
    """A fetcher with its own loop, and the names of the shell. A context manager."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="uttu-shell", daemon=True)
        self.names: dict[str, Any] = {
            "page": None,
            "response": None,
            "request": None,
            "fetch": self.fetch,
            "Spider": Spider,
            "Page": Page,
            "Request": Request,
        }

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
        """Fetch a URL or a request, and set ``page``, ``response`` and ``request`` to the result.

        A URL may be relative to the previous page: ``/path``, ``../path``, ``?query``.

        :raises ValueError: ``target`` is not a URL.
        :raises FetchError: the fetch gave no complete response.
        """
        request = target if isinstance(target, Request) else Request(url=self._url(target))
        response = self._wait(fetch_with_redirects(self._fetcher, request, self._settings, say_hop))
        say_status(response)
        page = Page(response)
        self.names.update(page=page, response=response, request=response.request)
        return page

    def _url(self, target: str) -> str:
        """The absolute URL. Only a target that cannot be a host is relative: ``shop/2`` may be a host."""
        page = self.names["page"]
        if isinstance(page, Page) and target.startswith(_RELATIVE):
            target = page.urljoin(target) or target
        return parse_web_url(target)

    def run(self, code: str) -> bool:
        """Run ``code`` with the names, as ``python -c`` does. Returns False if it raised; the traceback is printed."""
        try:
            exec(compile(code, "<-c>", "exec"), self.names)
        except Exception as error:
            # Leave out the frame of this method.
            own = error.__traceback__
            traceback.print_exception(error.with_traceback(own.tb_next if own else None))
            return False
        return True

    def interact(self, *, plain: bool) -> None:
        """Open IPython or, if it is not installed, Python's own shell. Returns when the user leaves it."""
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
        return create_fetcher(self._settings)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        waiting = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return waiting.result()
        except KeyboardInterrupt:
            waiting.cancel()
            raise


_TEMPLATE = Path(__file__).with_name("templates") / "spider.py.txt"
_match_name = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*").fullmatch


def new(
    name: Annotated[
        str, typer.Argument(help="The name of the spider and of its file.", metavar="NAME", show_default=False)
    ],
    url: Annotated[str, typer.Argument(help="The start URL.", metavar="URL")] = "https://example.org/",
) -> None:
    """Write NAME.py, a small working spider to start with."""
    import string

    from uttu.cli.output import say
    from uttu.errors import FAILED

    name = name.removesuffix(".py")
    _check_spider_name(name)
    start = parse_url_argument(url)
    file = Path(f"{name}.py")
    domain = host_of(start).removeprefix("www.")
    text = string.Template(_TEMPLATE.read_text()).substitute(name=name, start=start, domain=domain)
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise typer.BadParameter(f"{file} exists already. Choose another name, or move the file away") from None
    except OSError as error:
        say(f"uttu: Cannot write {file}: {error.strerror}")
        raise typer.Exit(FAILED) from error
    print(
        f"{file} is a spider that starts at {start}. Try it with:\n\n    uttu crawl {file} -o {name}.jsonl --limit 20\n"
    )


def _check_spider_name(name: str) -> None:
    """:raises typer.BadParameter: the name is invalid, or the file would hide a Python module."""
    import sys
    import sysconfig
    from importlib.machinery import PathFinder

    if not _match_name(name):
        raise typer.BadParameter(
            f"{name!r} can't be a spider's name: it is made of letters, digits, '-', '_' and '.', and names a file here"
        )
    # The spider's folder is first on sys.path, so a json.py in it would replace the standard module.
    module = name.partition(".")[0]
    installed = PathFinder.find_spec(module, [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    if installed is not None or module in sys.stdlib_module_names or module == "uttu":
        raise typer.BadParameter(f"{name}.py would hide the Python module {module!r}; choose another name")


def shell(
    target: PageTarget = [],  # noqa: B006
    settings: SettingFlags = [],  # noqa: B006
    code: Annotated[str, typer.Option("-c", help="Run this code and exit.", metavar="CODE", show_default=False)] = "",
    plain: Annotated[
        bool, typer.Option("--plain", help="Use Python's own shell, even if IPython is installed.")
    ] = False,
) -> None:
    """Fetch a page and open an interactive Python with it: page.css("h1::text").get() and so on."""
    from uttu.errors import FAILED
    from uttu.settings import load_settings

    if target[:1] == ["curl"] and not code and "-c" in target:
        # In curl, -c is the cookie jar. A command copied from a browser has none, so the user means our -c.
        raise typer.BadParameter("Everything after the word curl belongs to the curl command: put -c CODE before it")
    request = parse_request_argument(target) if target else None
    with ShellSession(load_settings({}, parse_pairs(settings, "-s"))) as session:
        if request is not None:
            session.fetch(request)
        if not code:
            session.interact(plain=plain)
        elif not session.run(code):
            raise typer.Exit(FAILED)


def fetch(
    target: PageTarget,
    settings: SettingFlags = [],  # noqa: B006
    headers: Annotated[bool, typer.Option("--headers", help="Show the response's headers, too.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write the body to this file.", metavar="FILE", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch one page with the crawler's own fetcher. Its body goes to standard output.

    Redirects are followed, robots.txt is ignored. Exits with 1 if the status is not 2xx.
    """
    import asyncio

    from uttu.errors import FAILED
    from uttu.settings import load_settings

    request = parse_request_argument(target)
    chosen = load_settings({}, parse_pairs(settings, "-s"))
    response = asyncio.run(fetch_page(request, chosen, say_hop))
    say_status(response)
    if headers:
        say_headers(response)
    if output is not None:
        save_body(response, output)
    if as_json:
        print_json(FetchedPage.of(response))
    elif output is None:
        print_body(response)
    if not response.ok:
        raise typer.Exit(FAILED)


def demo(
    pages: Annotated[int, typer.Option(help="Number of pages of the site.", min=100)] = 2000,
    workers: Annotated[int, typer.Option(help="Number of worker processes.", min=1, max=MAX_PROCESSES)] = 2,
    as_json: AsJson = False,
) -> None:
    """Watch a crawl of a site on this machine that is killed half-way and resumed. Takes about 15 seconds."""
    from uttu.cli.demonstration import Demonstration

    raise typer.Exit(Demonstration(pages, workers, quiet=as_json).run())
