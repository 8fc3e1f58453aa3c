"""What Weft left behind. Uttu was called Weft until version 0.1.

Folders, settings files and Redis keys of that name are refused with the command that renames them: ``uttu move
--rename``. SQLite files and schedules are read as they are. :func:`rename_key` knows the names of the keys:

    weft:{NAME}, weft:{NAME}:…     a crawl                              → uttu:{NAME}, uttu:{NAME}:…
    weft:{NAME}:jobs:…             the schedules of an app              → uttu:{NAME}:jobs:…
    weft:bus:{NAME}:…              a bus                                → uttu:bus:{NAME}:…
    weft:crawls                    the names of the crawls, a SET       → uttu:crawls

An app and a bus are called ``weft`` unless the settings say otherwise, and now ``uttu``: their NAME changes, too.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

from uttu.errors import ConfigError

FOLDER: Final = ".weft"
SETTINGS_FILE: Final = "weft.toml"
ENVIRONMENT_PREFIX: Final = "WEFT_"
APPLICATION: Final = 0x57656674  # "Weft", SQLite's mark of whose file it is
CRAWLS_KEY: Final = "weft:crawls"
KEY_PATTERN: Final = "weft:*"
COMMAND: Final = "uttu move --rename"

_JOBS_KEY: Final = re.compile(r"weft:\{(?P<name>[^}]+)\}:jobs:(?P<rest>.+)", re.DOTALL)
_BUS_KEY: Final = re.compile(r"weft:bus:\{(?P<name>[^}]+)\}:(?P<rest>.+)", re.DOTALL)
_CRAWL_KEY: Final = re.compile(r"weft:\{(?P<name>[^}]+)\}(?P<rest>(?::.*)?)", re.DOTALL)


def check_folder(folder: Path) -> None:
    """``folder`` is a ``.uttu``, which need not exist.

    :raises ConfigError: there is only a ``.weft`` beside it.
    """
    old = folder.with_name(FOLDER)
    if not folder.exists() and old.is_dir():
        raise ConfigError(
            f"{old} was made by Weft, as Uttu was called before. Keep its crawls and jobs with: "
            + shlex.join(["mv", str(old), str(folder)])
        )


def check_settings_file(file: Path) -> None:
    """``file`` is a ``uttu.toml`` that does not exist.

    :raises ConfigError: there is a ``weft.toml`` beside it.
    """
    old = file.with_name(SETTINGS_FILE)
    if old.exists():
        raise ConfigError(f"{old} is not read any more, as Weft is called Uttu now: rename it to {file.name}")


def rename_key(key: str) -> str | None:
    """The new name of a Redis key; None if it is ``weft:crawls`` or not a key of Weft."""
    if found := _BUS_KEY.fullmatch(key):
        return f"uttu:bus:{{{rename_default(found['name'])}}}:{found['rest']}"
    if found := _JOBS_KEY.fullmatch(key):
        return f"uttu:{{{rename_default(found['name'])}}}:jobs:{found['rest']}"
    if found := _CRAWL_KEY.fullmatch(key):
        return f"uttu:{{{found['name']}}}{found['rest']}"
    return None


def rename_default(name: str) -> str:
    """The name of an app or bus: the default has changed."""
    return "uttu" if name == "weft" else name


def former_name(name: str) -> str:
    """What an app or bus of this name was called."""
    return "weft" if name == "uttu" else name


def rename_schedule(text: bytes) -> bytes:
    """A schedule, as JSON, with the new names of the built-in tasks and of the settings file."""
    if b'"weft.' not in text:
        return text
    return text.replace(b'"source":"weft.toml"', b'"source":"uttu.toml"').replace(b'"task":"weft.', b'"task":"uttu.')
