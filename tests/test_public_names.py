"""No public class shares its name with another, so that a name in a log, a docstring or a traceback is unambiguous."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import uttu
import uttu.bus

SOURCE = Path(__file__).parents[1] / "src" / "uttu"

# Name: why two classes may have it.
EXCEPTIONS: dict[str, str] = {}


def public_classes() -> dict[str, list[str]]:
    """Public classes at the top of public modules by name, with the modules that define them."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(SOURCE.rglob("*.py")):
        module = ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts)
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module)
    return found


def test_no_two_public_classes_share_a_name() -> None:
    twins = {name: modules for name, modules in public_classes().items() if len(modules) > 1}
    assert {name: modules for name, modules in twins.items() if name not in EXCEPTIONS} == {}


def test_every_exception_is_still_needed() -> None:
    classes = public_classes()
    assert [name for name in EXCEPTIONS if len(classes.get(name, ())) < 2] == []


def test_the_command_line_imports_little() -> None:
    """``uttu --help`` answers at once because it loads neither the engine nor the parsers."""
    heavy = "{'uttu.engine', 'uttu.spider', 'selectolax', 'pyreqwest', 'lxml', 'uvloop', 'rich'}"
    code = f"import sys, uttu.cli.app; print(sorted(set(sys.modules) & {heavy}))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


def test_dir_lists_the_public_names() -> None:
    for name in ("uttu", "uttu.bus"):
        # In a process of its own: names that were asked for before are there anyway.
        code = f"import {name} as module; print(sorted(set(module.__all__) - set(dir(module))))"
        shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert shown.stdout == "[]\n"


def test_the_names_of_the_bus() -> None:
    assert all(getattr(uttu.bus, name) is not None for name in uttu.bus.__all__)
    with pytest.raises(AttributeError, match="nosuch"):
        uttu.bus.nosuch  # noqa: B018


def test_importing_the_bus_loads_little() -> None:
    code = "import sys, uttu.bus; print(sorted(set(sys.modules) & {'msgspec', 'redis', 'uttu.runtime'}))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


async def test_connecting_to_a_bus() -> None:
    from uttu.bus import Bus, Capability, connect

    bus: Bus = await connect("memory:")
    assert Capability.DELAY in bus.capabilities
    await bus.close()
    with pytest.raises(uttu.UttuError, match="nosuch"):
        await connect("nosuch://host")
