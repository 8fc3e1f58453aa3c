"""Which functions of the package a function reaches, found in the source: by names, imports and attributes of modules.

A node is a function, a method, a class or a table at the top of a module: ``uttu.operations.crawls.read_all``. Pages
call their data as ``visit.data.read_items(…)``; such a call leads to the method of ``DashboardData``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import uttu

SOURCE = Path(uttu.__file__).parent
PAGE_DATA = "uttu.api.page_data.DashboardData"


def list_modules(*folders: str) -> dict[str, ast.Module]:
    """The modules of these folders of the package, by name."""
    found = {}
    for folder in folders:
        for file in sorted((SOURCE / folder).rglob("*.py")):
            parts = file.relative_to(SOURCE.parent).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = ast.parse(file.read_text())
    return found


def build_graph(modules: dict[str, ast.Module]) -> dict[str, set[str]]:
    """The names that each node refers to."""
    graph: dict[str, set[str]] = {}
    for module, tree in modules.items():
        scope = _Scope(module, tree, modules)
        for name, node in _list_nodes(tree):
            graph.setdefault(f"{module}.{name}", set()).update(scope.refer(name, node))
    for known in list(graph):
        # A class leads to its methods.
        graph[known] |= {other for other in graph if other.startswith(f"{known}.")}
    return graph


def reach(graph: dict[str, set[str]], roots: Iterable[str]) -> set[str]:
    """All nodes that the roots lead to, and the roots."""
    found: set[str] = set()
    left = [root for root in roots if root in graph]
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            left += [other for other in graph[node] if other in graph]
    return found


def _list_nodes(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node
            case ast.ClassDef(name=name, body=body):
                yield name, ast.Module(node.bases, [])  # type: ignore[arg-type]
                for each in body:
                    if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                        yield f"{name}.{each.name}", each
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node


class _Scope:
    """Resolves the names of one module. Imports inside of functions count for the whole module."""

    def __init__(self, module: str, tree: ast.Module, modules: dict[str, ast.Module]) -> None:
        self._module = module
        self._modules = modules
        self._names = {name: f"{module}.{name}" for name, _ in _list_nodes(tree) if "." not in name}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                self._names |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}

    def refer(self, name: str, node: ast.AST) -> set[str]:
        own = name.partition(".")[0]
        found = set()
        for each in ast.walk(node):
            match each:
                case ast.Name(id=used) if used in self._names:
                    found.add(self._names[used])
                case ast.Attribute(value=ast.Name(id="self"), attr=attribute):
                    found.add(f"{self._module}.{own}.{attribute}")
                case ast.Attribute(value=ast.Name(id=used), attr=attribute) if used in self._names:
                    found.add(f"{self._names[used]}.{attribute}")
            if isinstance(each, ast.Attribute) and _is_page_data(each.value):
                found.add(f"{PAGE_DATA}.{each.attr}")
        return found


def _is_page_data(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(attr="data" | "_data") | ast.Name(id="data"):
            return True
    return False
