"""Every operation is reachable by the API, by a page and by a command; or the reason why not is written down here."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.api.references import build_graph, list_modules, reach
from uttu.api.routes import ENDPOINTS
from uttu.jobs.schedules.catalog import ScheduleCatalog

API, PAGE, COMMAND = "API", "page", "command"

# What is no operation by itself: helpers for people at a terminal, and parts of the process that crawls.
HELPERS = {
    "uttu.operations.format_count": "formats a number",
    "uttu.operations.bus.build_options": "builds the options of a subscription from flags",
    "uttu.operations.bus.connect_configured_bus": "connects",
    "uttu.operations.bus.resolve_bus_url": "reads the settings",
    "uttu.operations.bus.wait_for_capacity": "paces a publisher; publish_messages has it as max_lag",
    "uttu.operations.control.pause": "decides for change_state",
    "uttu.operations.control.resume": "decides for change_state",
    "uttu.operations.control.stop": "decides for change_state",
    "uttu.operations.crawls.build_crawl_command": "formats a command",
    "uttu.operations.crawls.format_command": "formats a command",
    "uttu.operations.crawls.has_fetched_nothing": "chooses the exit code of a crawl in the foreground",
    "uttu.operations.crawls.read_running_status": "is a check of uttu worker before it joins",
    "uttu.operations.fetch.parse_target": "parses the words of a command line",
    "uttu.operations.fetch.create_fetcher": "builds what fetch_page uses",
    "uttu.operations.fetch.fetch_with_redirects": "is fetch_page with an open fetcher, for uttu shell",
    "uttu.operations.jobs.check_broker": "is a check before tasks are sent",
    "uttu.operations.jobs.check_results": "is a check before results are awaited",
    "uttu.operations.jobs.check_task": "is a check before tasks are sent",
    "uttu.operations.jobs.map_driver_errors": "maps errors",
    "uttu.operations.lines.describe_source": "names a pipe or file",
    "uttu.operations.lines.open_source": "opens a pipe or file of the command line",
    "uttu.operations.lines.read_lines": "reads a pipe or file of the command line",
    "uttu.operations.lines.parse_message": "parses a line of a pipe or file",
    "uttu.operations.lines.format_delivery": "formats a message as a line",
    "uttu.operations.monitor.find_slowest": "formats the progress of a crawl in the foreground",
    "uttu.operations.lines.delivery_dict": "formats a message as data",
    "uttu.operations.spiders.describe_spider": "describes a loaded spider, for find_spiders",
    "uttu.operations.spiders.main": "is the process in which a spider file is loaded",
    "uttu.operations.connections.kept_connections": "keeps connections of a program that runs long",
}

# Operations that one of the three does not have, and why.
EXCEPTIONS = {
    ("uttu.operations.bus.watch_group", API): "a client polls …/groups; pages are live by themselves",
    ("uttu.operations.bus.watch_group", PAGE): "the page of a broker is live by itself",
    (
        "uttu.operations.jobs.wait_for_result",
        API,
    ): "no request waits for a task; a client polls /jobs/tasks/{id}",
    ("uttu.operations.jobs.wait_for_result", PAGE): "the page of a task is live by itself",
    ("uttu.operations.monitor.watch_crawl", API): "the event stream and /crawls/{store}/{crawl} show the same",
    ("uttu.operations.monitor.watch_crawl", PAGE): "the page of a crawl is live by itself",
    ("uttu.operations.move.rename_former", API): "repairs stores of a former version, on the machine that has them",
    ("uttu.operations.move.rename_former", PAGE): "repairs stores of a former version, on the machine that has them",
    ("uttu.operations.move.rename_former_folder", API): "as rename_former",
    ("uttu.operations.move.rename_former_folder", PAGE): "as rename_former",
    ("uttu.operations.jobs.read_job_workers", COMMAND): "Celery has it: uttu jobs inspect stats",
    ("uttu.operations.jobs.resize_pool", COMMAND): "Celery has it: uttu jobs control pool_grow",
    ("uttu.operations.jobs.shutdown_worker", COMMAND): "Celery has it: uttu jobs control shutdown",
    ("uttu.operations.history.read_events", PAGE): "reads on from a position, for streams; pages read backwards",
}


@cache
def parse_modules() -> dict[str, ast.Module]:
    return list_modules("api", "cli", "operations", "jobs/schedules")


@cache
def find_references() -> dict[str, set[str]]:
    return build_graph(parse_modules())


def list_operations() -> list[str]:
    """The public functions of ``uttu.operations``."""
    return [
        f"{module}.{node.name}"
        for module, tree in parse_modules().items()
        if module.startswith("uttu.operations")
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
    ]


def find_roots(surface: str) -> set[str]:
    match surface:
        case "API":
            endpoints = [each.call or each.respond for each in ENDPOINTS]
            return {f"{each.__module__}.{each.__qualname__}" for each in endpoints if each is not None}
        case "page":
            return {"uttu.api.pages.routes.PAGES", "uttu.api.pages.forms.FORMS"}
        case _:
            return {node for node in find_references() if node.startswith("uttu.cli.")}


@cache
def find_reached(surface: str) -> set[str]:
    """What a surface reaches. ``uttu dashboard`` starts the API, which makes nothing of it a command."""
    graph = find_references()
    if surface == COMMAND:
        graph = {node: others for node, others in graph.items() if not node.startswith("uttu.api.")}
    return reach(graph, find_roots(surface))


@pytest.mark.parametrize("surface", [API, PAGE, COMMAND])
def test_every_operation_is_reachable(surface: str) -> None:
    operations = [each for each in list_operations() if each not in HELPERS]
    gaps = [each for each in operations if each not in find_reached(surface) and (each, surface) not in EXCEPTIONS]
    assert not gaps, f"No {surface} reaches these operations. Add one, or argue in EXCEPTIONS: {gaps}"


def test_every_exception_is_needed() -> None:
    known = set(list_operations())
    assert not HELPERS.keys() - known
    assert not [each for each, surface in EXCEPTIONS if each in find_reached(surface) or each not in known]


# The public methods of the catalog of schedules are operations, too, but for those that the others use.
SCHEDULING = [
    name
    for name, value in vars(ScheduleCatalog).items()
    if callable(value) and not name.startswith("_") and name not in ("change", "find")
]
_CATALOGS = ("catalog", "book")


@pytest.mark.parametrize("surface", [API, PAGE, COMMAND])
def test_schedules(surface: str) -> None:
    called = set()
    for module, tree in parse_modules().items():
        for node in tree.body:
            if f"{module}.{getattr(node, 'name', '')}" in find_reached(surface):
                called |= {
                    each.attr
                    for each in ast.walk(node)
                    if isinstance(each, ast.Attribute)
                    and isinstance(each.value, ast.Name)
                    and each.value.id in _CATALOGS
                }
    assert not set(SCHEDULING) - called


def test_the_search_finds_gaps() -> None:
    """A function that nothing uses is not reached, and one that a page uses through its data is."""
    assert "uttu.operations.crawls.read_keys" in find_reached(PAGE)
    assert "uttu.operations.bus.watch_group" in find_reached(COMMAND)
    assert "uttu.operations.bus.watch_group" not in find_reached(API) | find_reached(PAGE)
    assert "uttu.operations.spiders.main" not in find_reached(COMMAND)
