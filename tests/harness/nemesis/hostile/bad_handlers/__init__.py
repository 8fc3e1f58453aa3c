"""Handlers that misbehave, on an ordinary page of an ordinary host.

Each is a function that takes a page. Its docstring, in a few words, is what the table says of it. ``KINDS`` puts them
in order, with what must become of the page, and whether the handler

* ``blocks`` the event loop, so that only the watchdog or another process can help;
* is ``deadly`` for the process it runs in, so that only another process can go on;
* is ``endless``: the crawl has more to fetch than it ever can;
* ``may_fail`` the crawl: it sabotages what the crawl itself needs, so all that is demanded is that the crawl ends;
* is ``busy``: the time that it takes is its own, so only the watchdog bounds the gap.

A handler that allocates memory by itself can't be kept from it; ``megabytes`` is then what its page may cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from tests.harness.nemesis.hostile.bad_handlers import blocking, harming, raising, yielding
from uttu import Page


class Misdeed(msgspec.Struct, frozen=True):
    handler: Callable[[Page], Any]
    ends: str = "done|dead"
    blocks: bool = False
    deadly: bool = False
    endless: bool = False
    may_fail: bool = False
    busy: bool = False
    megabytes: int = 400

    @property
    def name(self) -> str:
        return "handlers/" + self.handler.__name__.strip("_").replace("_", "-")

    @property
    def about(self) -> str:
        return (self.handler.__doc__ or "").strip().rstrip(".")


_BLOCKING: Final = (
    blocking.while_true,
    blocking.while_true_async,
    blocking.while_true_deaf,
    blocking.sleeps,
    blocking.regex,
    blocking.holds_gil,
    blocking.waits_for_lock,
    blocking.reads_socket,
    blocking.waits_for_child,
    blocking.slow_generator,
    blocking.ignores_all_signals,
    blocking.masks_signals_and_sleeps,
    blocking.error_text,
    blocking.blocks_in_cleanup,
    blocking.replaced_by_program,
    blocking.grows,
    blocking.recursion_unlimited,
)
_DEADLY: Final = (
    harming.exits_0,
    harming.exits_1,
    harming.segfault,
    harming.aborts,
    harming.kills_itself,
    harming.exhausts_stack,
    harming.cancels_all,
    harming.closes_everything,
    harming.limits_file_size,
)
_DEAD: Final = (
    blocking.hangs,
    blocking.hangs_deaf,
    blocking.hangs_in_cleanup,
    blocking.cancels_itself,
    raising.raises_cancelled,
    raising.raises_generator_exit,
    raising.raises_interrupt,
    raising.raises_interrupt_async,
    raising.raises_exit,
    raising.raises_exit_async,
    raising.raises_base,
    raising.raises_group,
    raising.raises_stop,
    raising.raises_stop_async,
    raising.raises_memory,
    raising.raises_unprintable,
    raising.raises_surrogate,
    raising.recursion,
    raising.recursion_json,
    yielding.endless_items,
    yielding.endless_items_async,
    yielding.endless_nothing,
    yielding.endless_nested,
    yielding.item_shared,
    yielding.links_endless,
    yielding.links_meta,
    yielding.requests_meta,
    yielding.requests_body,
    yielding.item_deep,
    yielding.item_cyclic,
    yielding.item_surrogates,
    yielding.item_object,
    yielding.request_surrogate,
    yielding.request_meta,
    yielding.request_meta_cyclic,
    harming.runs_loop,
    harming.warns,
    harming.stops_loop,
)
# Another process has to go on, or this one after a while, but the page may be done by then.
_AFTERWARDS: Final = (
    harming.cancels_all_later,
    harming.exits_later,
    harming.stops_itself,
    blocking.starves_threads,
)
_EITHER: Final = (
    yielding.item_lying,
    blocking.cancels_later,
    yielding.endless_same,
    yielding.large_items,
    yielding.million_items,
    yielding.item_nan,
    yielding.item_int,
    yielding.item_nul,
    yielding.item_keys,
    yielding.request_long,
    yielding.request_priority,
    yielding.request_header,
    yielding.request_method,
    yielding.request_depth,
)
_DONE: Final = (
    harming.forks,
    harming.forks_and_waits,
    harming.leaves_program,
    harming.leaves_thread,
    harming.leaves_busy_thread,
    harming.leaves_task,
    harming.leaves_pool,
    harming.leaves_process,
    harming.leaves_deaf_task,
    harming.leaves_exit,
    harming.leaves_interrupt,
    harming.masks_signals,
    harming.replaces_output,
    harming.removes_output,
    harming.changes_folder,
    harming.clears_environment,
    harming.ignores_signals,
    harming.disables_gc,
)
_SABOTAGE: Final = (
    harming.patches_json,
    harming.patches_time,
    harming.patches_open,
    harming.limits_recursion,
    harming.sets_policy,
    harming.deletes_store,
    harming.limits_files,
    harming.closes_output,
    harming.closes_descriptors,
)
_ENDLESS: Final = (yielding.endless_requests, yielding.endless_follow, yielding.million_children, yielding.request_tree)

KINDS: Final[tuple[Misdeed, ...]] = (
    *(Misdeed(handler, ends="dead", blocks=True) for handler in _BLOCKING),
    *(Misdeed(handler, ends="dead", deadly=True) for handler in _DEADLY),
    *(Misdeed(handler, deadly=True) for handler in _AFTERWARDS),
    *(Misdeed(handler, ends="dead") for handler in _DEAD),
    *(Misdeed(handler) for handler in _EITHER),
    *(Misdeed(handler, may_fail=True) for handler in _SABOTAGE),
    Misdeed(harming.prints_much, busy=True),
    Misdeed(harming.logs_much, busy=True),
    Misdeed(yielding.item_1gb, ends="dead", busy=True, megabytes=2500),
    Misdeed(yielding.item_100mb, ends="dead", busy=True, megabytes=600),
    Misdeed(raising.raises_large, ends="dead", megabytes=600),
    Misdeed(yielding.request_meta_large, ends="dead", megabytes=800),
    *(Misdeed(handler, ends="done") for handler in _DONE),
    *(Misdeed(handler, endless=True) for handler in _ENDLESS),
)
