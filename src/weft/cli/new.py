"""``weft new``: a spider to begin with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

_TEMPLATE = Path(__file__).with_name("templates") / "spider.py.txt"
_name = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*").fullmatch


def new(
    name: Annotated[str, typer.Argument(help="The spider's name, and its file's.", metavar="NAME", show_default=False)],
    url: Annotated[str, typer.Argument(help="Where it starts.", metavar="URL")] = "https://example.org/",
) -> None:
    """Write NAME.py, a small spider that works, to begin with."""
    import string

    from weft.cli.exits import FAILED
    from weft.cli.one_request import given_url
    from weft.cli.words import say
    from weft.model.url import host_of

    name = name.removesuffix(".py")
    _check(name)
    start = given_url(url)
    file = Path(f"{name}.py")
    domain = host_of(start).removeprefix("www.")
    text = string.Template(_TEMPLATE.read_text()).substitute(name=name, start=start, domain=domain)
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise typer.BadParameter(f"{file} is there already; choose another name, or move it away") from None
    except OSError as error:
        say(f"weft: can't write {file}: {error.strerror}")
        raise typer.Exit(FAILED) from error
    print(
        f"{file} is a spider that starts at {start}. Try it with:\n\n    weft crawl {file} -o {name}.jsonl --limit 20\n"
    )


def _check(name: str) -> None:
    """Wrong names end the program as wrong usage."""
    import sys
    import sysconfig
    from importlib.machinery import PathFinder

    if not _name(name):
        raise typer.BadParameter(
            f"{name!r} can't be a spider's name: it is made of letters, digits, '-', '_' and '.', and names a file here"
        )
    # The spider's folder is searched for modules first, so json.py in it would be taken for Python's own.
    module = name.partition(".")[0]
    installed = PathFinder.find_spec(module, [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    if installed is not None or module in sys.stdlib_module_names or module == "weft":
        raise typer.BadParameter(f"{name}.py would hide the Python module {module!r}; choose another name")
