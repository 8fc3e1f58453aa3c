"""The frontier contract as tests; :mod:`uttu.frontier.base` has it in prose.

A backend inherits :class:`FrontierContract` in its test file and supplies the fixture ``store``, described in
:mod:`uttu.testing.contracts.store`. The tests are coroutines: run them with pytest-asyncio in auto mode, or mark the
class. They use a backend through the protocols only, and advance its clock instead of waiting.
"""

from __future__ import annotations

from uttu.testing.contracts.history import EventContract, HistoryContract
from uttu.testing.contracts.inspector import InspectorContract, PinContract
from uttu.testing.contracts.lanes import HoldContract, OrderContract, PaceContract
from uttu.testing.contracts.leases import LeaseContract
from uttu.testing.contracts.ledger import ClaimContract, LedgerContract
from uttu.testing.contracts.listing import DeadGroupContract, DeadPageContract, LanePageContract
from uttu.testing.contracts.outbox import MemoContract, OutboxContract, ReopenContract
from uttu.testing.contracts.settlement import AdmissionContract, SettleContract
from uttu.testing.contracts.store import StoreUnderTest
from uttu.testing.contracts.trimming import TrimmingContract

__all__ = ["FrontierContract", "StoreUnderTest"]


class FrontierContract(
    AdmissionContract,
    OrderContract,
    PaceContract,
    HoldContract,
    LeaseContract,
    SettleContract,
    OutboxContract,
    TrimmingContract,
    MemoContract,
    LedgerContract,
    ClaimContract,
    InspectorContract,
    PinContract,
    LanePageContract,
    DeadPageContract,
    DeadGroupContract,
    HistoryContract,
    EventContract,
    ReopenContract,
):
    """All contracts of a frontier and its store."""
