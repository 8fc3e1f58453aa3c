"""The directions of imports hold for every module: none is left out of ``.importlinter``."""

from __future__ import annotations

import configparser
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
# What only holds modules, and what may use everything.
ROOMS = {"weft.bus", "weft.fetch", "weft.frontier", "weft.sinks"}
FREE = "weft.testing"


def contract(name: str, key: str) -> set[str]:
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter")
    return set(parser[f"importlinter:contract:{name}"][key].replace("|", " ").split())


def modules() -> set[str]:
    files = (file.relative_to(SOURCE).with_suffix("") for file in (SOURCE / "weft").rglob("*.py"))
    return {".".join(file.parts).removesuffix(".__init__") for file in files} - {"weft"}


def is_within(module: str, listed: set[str]) -> bool:
    parts = module.split(".")
    return any(".".join(parts[:end]) in listed for end in range(1, len(parts) + 1))


def test_every_module_is_in_a_layer() -> None:
    layers = contract("layers", "layers")
    assert layers <= modules()
    assert {module for module in modules() if not is_within(module, {*layers, FREE})} == ROOMS


def test_the_engine_is_kept_from_every_technology() -> None:
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter")
    lines = parser["importlinter:contract:layers"]["layers"].split("\n")
    above = lines[: lines.index("weft.engine")]
    in_rooms = {name for line in above for name in line.split(" | ") if name.rpartition(".")[0] in ROOMS}
    shared = {"weft.bus.subscription", "weft.bus.backlog"}  # of all brokers, and so of none
    assert in_rooms - shared <= contract("no-technology-in-engine", "forbidden_modules")


def test_nobody_but_the_command_line_is_free_to_use_what_is_for_tests() -> None:
    known = contract("testing", "source_modules") | {"weft.cli", "weft.__main__", FREE}
    plain = {"weft.errors", "weft.clock", "weft.version", "weft.process", "weft.addresses"}
    assert {module for module in modules() if not is_within(module, known)} == plain
