"""Loading the spider out of a file."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path

from weft.errors import SpiderError
from weft.spider.spider import Spider


def load_spider(path: Path, name: str = "") -> Spider:
    """The one spider that the file holds; ``name`` chooses where it holds several.

    The file's folder is importable while it runs, so a spider may be split over modules.

    :raises SpiderError: no file, an error in it, no spider, or several to choose from.
    """
    if not path.is_file():
        raise SpiderError(f"there is no spider file {path}")
    spec = importlib.util.spec_from_file_location("weft_spider", path.resolve())
    if spec is None or spec.loader is None:
        raise SpiderError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickling look their module up
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise SpiderError(f"{path} has a syntax error in line {error.lineno}: {error.msg}") from error
    except SpiderError:
        raise
    except (Exception, SystemExit) as error:
        raise SpiderError(f"{path} can't be loaded:\n{_where(error, path)}") from error
    spiders = {id(value): value for value in vars(module).values() if isinstance(value, Spider)}
    spider = _choose(list(spiders.values()), path, name)
    spider.file = path
    return spider


def _choose(spiders: list[Spider], path: Path, name: str) -> Spider:
    names = ", ".join(sorted(spider.name for spider in spiders))
    if name:
        spiders = [spider for spider in spiders if spider.name == name]
        if not spiders:
            raise SpiderError(f"{path} has no spider {name!r}; it has: {names or 'none'}")
    if not spiders:
        raise SpiderError(
            f"{path} has no spider; write one, like: spider = Spider('name', start='https://example.org/')"
        )
    if len(spiders) > 1:
        raise SpiderError(f"{path} has {len(spiders)} spiders ({names}); choose one with --spider NAME")
    if not spiders[0].default_handler:
        raise SpiderError(f"spider {spiders[0].name!r} in {path} has no handler; put @spider.page above a function")
    return spiders[0]


def _where(error: BaseException, path: Path) -> str:
    """The traceback from the file's own lines on."""
    frames = traceback.extract_tb(error.__traceback__)
    own = next((index for index, frame in enumerate(frames) if Path(frame.filename) == path.resolve()), 0)
    return "".join(traceback.format_list(frames[own:]) + traceback.format_exception_only(error)).rstrip()
