"""Find the spiders of a project, and start crawls of them in the background.

A spider file is a program, so it is loaded in a separate process, with a time limit: ``python -m
uttu.operations.spiders FILE`` prints what the spider declares as JSON. Results are kept until the file changes.

A crawl in the background is a process like that of ``uttu crawl``, in a new session: it goes on when the program
that started it ends or is killed. Its output goes to ``.uttu/logs/CRAWL.log``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from uttu.errors import ConfigError, SpiderError, UttuError
from uttu.model.crawl import check_crawl_name
from uttu.runtime.spec import derive_crawl_name
from uttu.settings import DATA_FOLDER, ENVIRONMENT_PREFIX, SECRET_SETTINGS, load_settings
from uttu.spider import Spider
from uttu.spider.loader import load_spiders

_MOST_FILES: Final = 200
_DEEPEST: Final = 3
_SKIPPED: Final = frozenset({"__pycache__", "build", "dist", "node_modules", "site-packages", "venv"})
# Only files with these words are loaded.
_SPIDER_WORDS: Final = (b"uttu", b"Spider(")
_LARGEST_FILE: Final = 1_000_000
_LOAD_SECONDS: Final = 20.0
_AT_ONCE: Final = 2
# A crawl that ends within this time with an error could not begin.
_BEGIN_SECONDS: Final = 2.0
_LARGEST_LOG: Final = 10_000_000
_SHOWN_LINES: Final = 8


class ArgumentKind(StrEnum):
    """The type of a spider's argument, by its default."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    JSON = "json"


class SpiderArgument(msgspec.Struct, frozen=True):
    """An argument that a spider declares with ``args=``. ``default`` is text, as on the command line."""

    name: str
    kind: ArgumentKind
    default: str


class SpiderInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A spider in a file of the project.

    ``error`` says why the file can't be loaded; then ``name`` is empty.
    """

    file: str
    """The path, relative to the project's folder."""
    name: str = ""
    description: str = ""
    start: tuple[str, ...] = ()
    arguments: list[SpiderArgument] = []
    settings: dict[str, Any] = {}
    error: str = ""


async def find_spiders(folder: Path = Path()) -> list[SpiderInfo]:
    """All spiders in the Python files of a folder, three levels deep, by file."""
    files = await asyncio.to_thread(lambda: list(_list_files(folder)))
    limit = asyncio.Semaphore(_AT_ONCE)

    async def describe(file: Path) -> list[SpiderInfo]:
        async with limit:
            return await describe_file(file, folder)

    found = await asyncio.gather(*[describe(file) for file in files])
    return [spider for each in found for spider in each]


def _list_files(folder: Path) -> Iterator[Path]:
    """Files that may hold a spider, the top folder first."""
    left = _MOST_FILES
    for place, folders, names in os.walk(folder):
        depth = len(Path(place).relative_to(folder).parts)
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in _SKIPPED and depth < _DEEPEST - 1
        )
        for name in sorted(names):
            file = Path(place) / name
            if not name.endswith(".py") or name.startswith("."):
                continue
            with contextlib.suppress(OSError):
                if file.is_symlink() or file.stat().st_size > _LARGEST_FILE:
                    continue
                content = file.read_bytes()
                if all(word in content for word in _SPIDER_WORDS):
                    yield file
                    left -= 1
            if not left:
                return


# By path: the time of the file's last change, and its spiders.
_described: dict[Path, tuple[int, list[SpiderInfo]]] = {}


async def describe_file(file: Path, folder: Path = Path()) -> list[SpiderInfo]:
    """The spiders of one file; a file that can't be loaded is one entry with the error."""
    path = file.resolve()
    try:
        changed = path.stat().st_mtime_ns
    except OSError as error:
        return [SpiderInfo(file=_relative(file, folder), error=error.strerror or str(error))]
    known = _described.get(path)
    if known is None or known[0] != changed:
        spiders = await _load_elsewhere(path, folder)
        if len(_described) >= 2 * _MOST_FILES:
            _described.clear()
        known = _described[path] = (changed, spiders)
    return [msgspec.structs.replace(each, file=_relative(file, folder)) for each in known[1]]


def _relative(file: Path, folder: Path) -> str:
    with contextlib.suppress(ValueError):
        return str(file.resolve().relative_to(folder.resolve()))
    return str(file)


async def _load_elsewhere(file: Path, folder: Path) -> list[SpiderInfo]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "uttu.operations.spiders",
        str(file),
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_LOAD_SECONDS):
            out, err = await process.communicate()
    except TimeoutError:
        return [SpiderInfo(file=file.name, error=f"Loading it takes longer than {_LOAD_SECONDS:g} seconds")]
    finally:
        # The file may have started other processes; end them with it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, 9)
        if process.returncode is None:
            await process.wait()
    try:
        # The file itself may print before.
        return msgspec.json.decode(out.rpartition(b"\0")[2], type=list[SpiderInfo])
    except msgspec.DecodeError:
        last = err.decode(errors="replace").strip().rpartition("\n")[2]
        return [SpiderInfo(file=file.name, error=last or f"Loading it ended with exit code {process.returncode}")]


def describe_spider(spider: Spider, file: str) -> SpiderInfo:
    """What a spider declares."""
    return SpiderInfo(
        file=file,
        name=spider.name,
        description=_describe(spider),
        start=tuple(str(url) for url in (*spider.start_urls, *spider.sitemap_urls))[:20],
        arguments=[_describe_argument(name, value) for name, value in spider.args.items()],
        settings={name: _to_plain(value) for name, value in spider.settings.items() if name not in SECRET_SETTINGS},
    )


def _describe(spider: Spider) -> str:
    module = sys.modules.get("uttu_spider")
    return (getattr(module, "__doc__", None) or "").strip().partition("\n\n")[0][:500]


def _describe_argument(name: str, default: Any) -> SpiderArgument:
    kinds = {bool: ArgumentKind.BOOLEAN, int: ArgumentKind.INTEGER, float: ArgumentKind.NUMBER}
    if type(default) in kinds:
        return SpiderArgument(name, kinds[type(default)], str(default).lower())
    if isinstance(default, list | tuple | dict):
        return SpiderArgument(name, ArgumentKind.JSON, msgspec.json.encode(default).decode())
    return SpiderArgument(name, ArgumentKind.TEXT, "" if default is None else str(default))


def _to_plain(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return str(value)


class StartRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl to start: the options of ``uttu crawl``. Values of arguments and settings are text."""

    file: str
    spider: str = ""
    arguments: dict[str, str] = {}
    settings: dict[str, str] = {}
    outputs: tuple[str, ...] = ()
    workers: int = 1
    crawl: str = ""
    fresh: bool = False
    resume: bool = False
    overwrite: bool = False


class StartedCrawl(msgspec.Struct, frozen=True):
    """A crawl that was started: its name, its process, and the file with its output."""

    crawl: str
    pid: int
    log: str


async def start_crawl(request: StartRequest, folder: Path = Path()) -> StartedCrawl:
    """Start a crawl in the background.

    :raises SpiderError: the file has no such spider, or can't be loaded.
    :raises ConfigError: a setting or an argument is wrong.
    :raises UttuError: the crawl ended at once; the message has its last lines.
    """
    name = await _check_request(request, folder)
    log = folder / DATA_FOLDER / "logs" / f"{name}.log"
    with _open_log(log) as output:
        began = output.tell()
        process = _spawn(request, name, folder, output)
    # Waits for the process however long it runs, so that it does not become a zombie. The crawl does not need it.
    ended = threading.Thread(target=process.wait, name=f"crawl {name}", daemon=True)
    ended.start()
    await asyncio.to_thread(ended.join, _BEGIN_SECONDS)
    if process.returncode:
        raise UttuError(_read_end(log, began) or f"The crawl ended at once, with exit code {process.returncode}")
    return StartedCrawl(name, process.pid, _relative(log, folder))


def _spawn(request: StartRequest, name: str, folder: Path, output: BinaryIO) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        _command(request, name),
        cwd=folder,
        env=os.environ | {ENVIRONMENT_PREFIX + key.upper(): value for key, value in _secrets(request)},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


async def _check_request(request: StartRequest, folder: Path) -> str:
    """Check what can be checked before the process starts; returns the name of the crawl."""
    spiders = await describe_file(folder / request.file, folder)
    found = [each for each in spiders if each.name and request.spider in ("", each.name)]
    if len(found) != 1:
        errors = [each.error for each in spiders if each.error]
        names = ", ".join(each.name for each in spiders if each.name) or "none"
        raise SpiderError(errors[0] if errors else f"{request.file} has the spiders: {names}. Choose one")
    load_settings({}, request.settings, folder=folder)
    spider = Spider(found[0].name)
    _check_arguments(found[0], request.arguments)
    name = request.crawl or derive_crawl_name(spider, request.arguments)
    check_crawl_name(name)
    return name


def _check_arguments(spider: SpiderInfo, given: Mapping[str, str]) -> None:
    known = {each.name for each in spider.arguments}
    if known and (unknown := given.keys() - known):
        raise ConfigError(
            f"Spider {spider.name!r} takes no argument {', '.join(sorted(unknown))}; it takes: "
            f"{', '.join(sorted(known))}"
        )


def _command(request: StartRequest, name: str) -> list[str]:
    command = [sys.executable, "-P", "-m", "uttu", "crawl", request.file, "--crawl", name]
    for key, value in request.arguments.items():
        command += ["-a", f"{key}={value}"]
    for key, value in request.settings.items():
        command += [] if key in SECRET_SETTINGS else ["-s", f"{key}={value}"]
    for output in request.outputs:
        command += ["-o", output]
    command += ["--spider", request.spider] if request.spider else []
    command += ["--workers", str(request.workers)]
    for flag in ("fresh", "resume", "overwrite"):
        command += [f"--{flag}"] if getattr(request, flag) else []
    return command


def _secrets(request: StartRequest) -> Iterator[tuple[str, str]]:
    """Settings that must not appear in the list of processes."""
    return ((key, value) for key, value in request.settings.items() if key in SECRET_SETTINGS)


def _open_log(log: Path) -> BinaryIO:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            if log.stat().st_size > _LARGEST_LOG:
                log.replace(log.with_suffix(".log.1"))
        return open(log, "ab")
    except OSError as error:
        raise UttuError(f"{log} can't be written: {error.strerror}") from error


def _read_end(log: Path, began: int) -> str:
    with open(log, "rb") as file:
        file.seek(began)
        text = file.read(100_000).decode(errors="replace")
    return "\n".join(text.strip().splitlines()[-_SHOWN_LINES:]).removeprefix("uttu: ")


def main(file: str) -> None:
    """Print what the spiders of a file declare, as JSON after a NUL."""
    try:
        spiders = [describe_spider(spider, file) for spider in load_spiders(Path(file))]
    except SpiderError as error:
        spiders = [SpiderInfo(file=file, error=str(error))]
    sys.stdout.flush()
    sys.stdout.buffer.write(b"\0" + msgspec.json.encode(spiders))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1])
