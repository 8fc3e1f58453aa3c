"""The sink that a target on the command line means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from weft.errors import UsageError
from weft.sinks.base import Sink
from weft.sinks.csv import Csv
from weft.sinks.json import Json
from weft.sinks.jsonl import JsonLines
from weft.sinks.parquet import Parquet
from weft.sinks.sqlite import Sqlite
from weft.sinks.stdout import Stdout

_BY_SUFFIX: Final[dict[str, Callable[[Path], Sink]]] = {
    ".jsonl": JsonLines,
    ".ndjson": JsonLines,
    ".jl": JsonLines,
    ".json": Json,
    ".csv": Csv,
    ".parquet": Parquet,
    ".db": Sqlite,
    ".sqlite": Sqlite,
    ".sqlite3": Sqlite,
}


def sink_for(target: str, stdout: BinaryIO | None = None) -> Sink:
    """``-`` is standard output (see there for ``stdout``), anything else a file whose ending says the format.

    :raises UsageError: the ending is not known.
    :raises SinkError: the format needs a package that is not installed.
    """
    if target == "-":
        return Stdout(stdout)
    path = Path(target).expanduser()
    make = _BY_SUFFIX.get(path.suffix.lower())
    if make is None:
        known = ", ".join(_BY_SUFFIX)
        raise UsageError(f"can't tell the format of the output {target!r}: use - or a name that ends in {known}")
    return make(path)
