"""The frontier's contract as tests: what :mod:`weft.frontier.base` says in prose.

A backend passes by inheriting :class:`FrontierContract` in its test file and supplying the
fixture ``store``, described in :mod:`weft.testing.frontier_store`. The tests are coroutines;
run them with pytest-asyncio in its auto mode, or mark the class. They see a backend through the
protocols only, and turn its clock instead of waiting.
"""

from __future__ import annotations

from weft.testing.frontier_inspector import InspectorContract, PinContract
from weft.testing.frontier_lanes import HoldContract, OrderContract, PaceContract
from weft.testing.frontier_leases import LeaseContract
from weft.testing.frontier_ledger import ClaimContract, LedgerContract
from weft.testing.frontier_settling import AdmissionContract, SettleContract
from weft.testing.frontier_shelves import MemoContract, OutboxContract, ReopenContract
from weft.testing.frontier_store import Store

__all__ = ["FrontierContract", "Store"]


class FrontierContract(
    AdmissionContract,
    OrderContract,
    PaceContract,
    HoldContract,
    LeaseContract,
    SettleContract,
    OutboxContract,
    MemoContract,
    LedgerContract,
    ClaimContract,
    InspectorContract,
    PinContract,
    ReopenContract,
):
    """Everything a frontier and its store must do."""
