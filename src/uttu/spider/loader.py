"""Load a spider from its Python file, and warn about handlers that return nothing.

The file runs as the module ``uttu_spider``, with its folder at the front of ``sys.path``. Errors in it become
:class:`SpiderError` with the lines of the file that caused them.
"""

from __future__ import annotations

import contextlib
import dis
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from uttu.errors import SpiderError
from uttu.spider.spider import SITEMAP, Spider

is_loading: ContextVar[bool] = ContextVar("is_loading", default=False)
"""Whether a spider file is being loaded. A program in the same file must not start a crawl then."""


def load_spider(path: Path, name: str = "") -> Spider:
    """The spider in the file ``path``.

    The file's folder is put on ``sys.path``, so a spider may be split over several modules.

    :param name: which spider to take if the file has several.
    :raises SpiderError: the file does not exist or raises an error, it has no spider, or several and ``name`` is empty.
    """
    spider = _choose_spider(load_spiders(path), path, name)
    spider.file = path
    return spider


def load_spiders(path: Path) -> list[Spider]:
    """All spiders in the file ``path``; see :func:`load_spider`.

    :raises SpiderError: the file does not exist or raises an error.
    """
    if not path.is_file():
        raise SpiderError(f"There is no spider file {path}{_suggest_file(path)}")
    spec = importlib.util.spec_from_file_location("uttu_spider", path.resolve())
    if spec is None or spec.loader is None:
        raise SpiderError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look up their module here
    sys.path.insert(0, str(path.resolve().parent))
    token = is_loading.set(True)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise SpiderError(f"{path} has a syntax error in line {error.lineno}: {error.msg}") from error
    except SpiderError:
        raise
    except (Exception, SystemExit) as error:
        raise SpiderError(f"Cannot load {path}:\n{_format_error(error, path)}") from error
    finally:
        is_loading.reset(token)
    spiders = {id(value): value for value in vars(module).values() if isinstance(value, Spider)}
    if not spiders:
        _refuse_class(vars(module).values(), path)
    return list(spiders.values())


def _suggest_file(path: Path) -> str:
    """A suggestion for a file that does not exist; empty without one."""
    if path.is_dir():
        return ": that is a folder"
    for meant in (path.with_name(path.name + ".py"), path.parent / "spiders" / f"{path.stem}.py"):
        if meant.is_file():
            return f"; did you mean {meant}?"
    with contextlib.suppress(OSError):
        names = [each.name for each in path.parent.iterdir() if each.suffix == ".py"]
        import difflib  # slow to import, and seldom needed

        if close := difflib.get_close_matches(f"{path.stem}.py", names, n=1):
            return f"; did you mean {path.parent / close[0]}?"
    return ""


def _refuse_class(values: Iterable[Any], path: Path) -> None:
    """:raises SpiderError: the file defines a spider as a class, as Scrapy does, and not as an object."""
    for value in values:
        if isinstance(value, type) and value is not Spider:
            scrapy = any(each.__module__.partition(".")[0] == "scrapy" for each in value.__mro__)
            if issubclass(value, Spider) or (scrapy and hasattr(value, "start_urls")):
                raise SpiderError(
                    f"{path} has the class {value.__name__}, but no spider. A spider is an object: write "
                    "spider = Spider('name', start='https://example.org/'), and @spider.page above each handler"
                )


def find_warnings(spider: Spider) -> list[str]:
    """Warnings about code that is valid but probably a mistake: handlers that return nothing."""
    return [
        f"The handler {name!r} neither yields nor returns anything, so its pages give no items and no requests: is a "
        "yield missing?"
        for name, handler in spider.handlers.items()
        if name != SITEMAP and _returns_nothing(handler)
    ]


def _returns_nothing(handler: Any) -> bool:
    """Whether the function has no yield and no return with a value. A function with no code at all is intended."""
    function = inspect.unwrap(handler)
    code = getattr(function, "__code__", None)
    # A wrapped function may return anything.
    if code is None or function is not handler or code.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR):
        return False
    previous = None
    instructions = list(dis.get_instructions(code))
    if is_bare(handler):
        return False
    for instruction in instructions:
        if instruction.opname == "RETURN_CONST" and instruction.argval is not None:
            return False
        if instruction.opname == "RETURN_VALUE":
            nothing = previous is not None and previous.opname == "LOAD_CONST" and previous.argval is None
            if not nothing:
                return False
        previous = instruction
    return True


def is_bare(handler: Any) -> bool:
    """Whether a function has no code that could return something: ``def ignore(page): pass``."""
    code = getattr(handler, "__code__", None)
    return code is not None and not any(
        instruction.opname.startswith(("CALL", "BUILD", "YIELD")) for instruction in dis.get_instructions(code)
    )


def _choose_spider(spiders: list[Spider], path: Path, name: str) -> Spider:
    names = ", ".join(sorted(spider.name for spider in spiders))
    if name:
        spiders = [spider for spider in spiders if spider.name == name]
        if not spiders:
            raise SpiderError(f"{path} has no spider {name!r}; it has: {names or 'none'}")
    if not spiders:
        raise SpiderError(f"{path} has no spider. Write one: spider = Spider('name', start='https://example.org/')")
    if len(spiders) > 1:
        raise SpiderError(f"{path} has {len(spiders)} spiders ({names}). Choose one with --spider NAME")
    if not spiders[0].default_handler:
        raise SpiderError(f"Spider {spiders[0].name!r} in {path} has no handler. Put @spider.page above a function")
    return spiders[0]


def _format_error(error: BaseException, path: Path) -> str:
    """The traceback, beginning at the first line of the file itself."""
    frames = traceback.extract_tb(error.__traceback__)
    first_own = next((index for index, frame in enumerate(frames) if Path(frame.filename) == path.resolve()), 0)
    return "".join(traceback.format_list(frames[first_own:]) + traceback.format_exception_only(error)).rstrip()
